"""Replay all histories of a folder, or every Nth, with an empty cache: `python
tests/replay/fresh.py FOLDER N`.

They are replayed in processes of their own, one for each core, forks of this one: importing the
workflows takes as long as a hundred replays.
"""

import asyncio
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from perdure.temporal.data_converter import chosen
from perdure.workflows import AgentTurn
from perdure.workflows.single_input import OneInput


def read(path: Path) -> WorkflowHistory:
    """Read a history under the id of its workflow, which is a prefix of the ids of its children."""
    history = WorkflowHistory.from_json("", path.read_text(encoding="utf-8"))
    return replace(
        history,
        workflow_id=history.events[0].workflow_execution_started_event_attributes.workflow_id,
    )


async def replay(paths: list[Path]) -> None:
    """Replay them one by one; the first failure ends it with its error and its name."""
    replayer = Replayer(data_converter=chosen(), workflows=[AgentTurn], interceptors=[OneInput()])
    for path in paths:
        try:
            await replayer.replay_workflow(read(path))
        except Exception as error:
            error.add_note(f"while {path.name} was replayed")
            raise


def replay_some(paths: list[Path]) -> None:
    """The work of one process."""
    asyncio.run(replay(paths))


if __name__ == "__main__":
    found = sorted(Path(sys.argv[1]).glob("*.json"))[:: int(sys.argv[2])]
    cores = min(os.cpu_count() or 1, len(found) // 20 + 1)
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("fork")) as pool:
        list(pool.map(replay_some, [found[core::cores] for core in range(cores)]))
    print(f"{len(found)} histories of this session replayed in a fresh process")
