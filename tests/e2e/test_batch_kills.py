"""A batch whose workers are killed: each task has one turn and one result, and memory and histories
stay small.

`PERDURE_BATCH_TASKS` is the number of tasks, and `PERDURE_BATCH_KILLS` that of the kills.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import Client

from perdure import Budget, limits
from perdure.batch.wire import part_id
from perdure.clients import State
from perdure.temporal.names import MEMO_BATCH

from ..support.e2e.stories import Process, Tell, supervised
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor

__all__ = ["has_supervisor"]

TASKS = int(os.environ.get("PERDURE_BATCH_TASKS", "150"))
KILLS = int(os.environ.get("PERDURE_BATCH_KILLS", "2"))
APP = "tests.support.e2e.batch_app:make"
SAMPLES = 20
"""How often the memory is measured."""
MARGIN_MB = 30


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory after a number of results, of this process and of the larger worker."""

    results: int
    client_mb: int
    worker_mb: int

    @classmethod
    def now(cls, results: int, workers: list[Process]) -> Memory:
        """What the processes have now."""
        return cls(
            results=results,
            client_mb=memory_mb(os.getpid()),
            worker_mb=max(memory_mb(process) for worker in workers for process in _of(worker)),
        )


def _of(worker: Process) -> list[int]:
    """The processes that do the work: those below a supervisor, or the worker itself."""
    return supervised(worker.pid) or [worker.pid]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.accepts("E75", "E88", "E117", "Y54")
async def test_each_task_of_a_batch_has_one_turn_when_workers_are_killed(
    tell: Tell, tmp_path: Path
) -> None:
    """Two workers, of which one is killed and replaced several times. A model may be asked again by
    the turn that was killed, but no turn has two answers.
    """
    story, batch_id = await tell(), f"batch-{secrets.token_hex(6)}"
    path = tmp_path / "tasks.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(1, TASKS + 1):
            file.write(json.dumps({"task": f"task {number}", "id": f"t{number}"}) + "\n")
    environment = {"E2E_JOURNAL": str(tmp_path)}
    workers = [await story.worker(APP, **environment) for _ in range(2)]
    began = time.monotonic()

    batch = await story.client.start_batch(
        batch_id,
        "classifier",
        path,
        at_once=20,
        budget=Budget(usd="100", model_calls=TASKS * 10),
    )
    found: Counter[str] = Counter()
    memory: list[Memory] = []
    async for result in batch.results():
        found[result.id] += 1
        if len(found) % max(1, TASKS // SAMPLES) == 0:
            memory.append(Memory.now(len(found), workers))
        if len(found) % (TASKS // (KILLS + 1) + 1) == 0:
            workers.append(await story.replace(workers.pop(0), APP, **environment))
    status = await batch.wait()
    took = time.monotonic() - began
    sizes = await histories(story.temporal, batch_id)
    asked = Counter((tmp_path / "asked").read_text(encoding="utf-8").splitlines())

    print(
        f"\n{TASKS} tasks, {KILLS} kills: {took:.0f} s; {sum(asked.values())} requests;"
        f" {len(sizes)} histories, of at most {max(events for events, _ in sizes)} events and"
        f" {max(size for _, size in sizes)} bytes"
    )
    for one in memory:
        print(f"after {one.results} results: client {one.client_mb} MB, worker {one.worker_mb} MB")
    assert (status.state, status.done, status.failed) == (State.COMPLETED, TASKS, 0)
    assert found == Counter(f"t{number}" for number in range(1, TASKS + 1))
    assert set(asked) == {f"task {number}" for number in range(1, TASKS + 1)}
    assert sum(asked.values()) <= TASKS + KILLS * 20
    assert status.budget is not None
    assert status.cost is not None
    assert status.cost < 100
    assert max(events for events, _ in sizes) < limits.BATCH_EVENTS + 1_000
    assert max(size for _, size in sizes) < 10_000_000
    assert_flat(memory)


async def histories(client: Client, batch: str) -> list[tuple[int, int]]:
    """The events and bytes of each workflow of a batch, and of each run of the batch itself."""
    runs = client.list_workflows(f"WorkflowId = '{batch}'")
    sizes = [(run.id, run.run_id) async for run in runs]
    note = await (await client.get_workflow_handle(batch).describe()).memo_value(MEMO_BATCH)
    [only] = note["rounds"]
    parts = [part_id(batch, 1, only["digest"], part) for part in range(1, only["parts"] + 1)]
    found = []
    for workflow_id, run_id in [*sizes, *((part, None) for part in parts)]:
        described = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
        info = described.raw_info
        found.append((info.history_length, info.history_size_bytes))
    return found


def assert_flat(memory: list[Memory]) -> None:
    """Neither the client nor the larger of its workers needs more at the end than near the
    beginning.
    """
    early, late = memory[SAMPLES // 5 : SAMPLES // 2], memory[-SAMPLES // 4 :]
    for which in ("client_mb", "worker_mb"):
        most = max(getattr(one, which) for one in early)
        assert max(getattr(one, which) for one in late) <= most + MARGIN_MB, which


def memory_mb(pid: int) -> int:
    """The memory that a process has now."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0
