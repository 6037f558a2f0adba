"""Replay every history of a folder with nothing cached: `python tests/replay/fresh.py FOLDER`. Run in a process of its own."""

import asyncio
import sys
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from perdure.workflows import AgentTurn
from perdure.workflows.inputs import OneInput


async def replay(histories: list[WorkflowHistory]) -> None:
    """Replay them one by one; the first that does not replay ends it with its error."""
    replayer = Replayer(workflows=[AgentTurn], interceptors=[OneInput()])
    for history in histories:
        await replayer.replay_workflow(history)


if __name__ == "__main__":
    found = [WorkflowHistory.from_json(path.stem, path.read_text(encoding="utf-8")) for path in sorted(Path(sys.argv[1]).glob("*.json"))]
    asyncio.run(replay(found))
    print(f"{len(found)} histories of this session replayed in a fresh process")
