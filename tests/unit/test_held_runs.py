"""The list of runs that a worker process holds, as its supervisor reads it after its death."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from perdure import limits
from perdure.worker.supervision import held_runs
from perdure.worker.supervision.held_runs import HeldRun, HeldRuns, WorkerConnection

RUN = "0197f0a4-5c3e-7a51-b0fb-3a2f6ad1c0{:02x}"
HAMMER = """
import sys
from perdure.worker.supervision.held_runs import HeldRuns
held, number = HeldRuns(int(sys.argv[1])), 0
while True:
    number += 1
    held.begin("é" * (number % 400 + 1), f"{number:036d}")
    if number > 50:
        held.end(f"{number - 50:036d}")
    if number == 100:
        print("at work", flush=True)
"""


@pytest.fixture
def file() -> Iterator[int]:
    """A new list."""
    created = held_runs.create()
    yield created
    os.close(created)


def test_run_is_in_the_list_while_it_is_cached_or_at_work(file: int) -> None:
    """Those at work come first, each once, and none is left over."""
    held, first, second = HeldRuns(file), RUN.format(1), RUN.format(2)
    held.keep("turn/1", first)
    held.begin("turn/2", second)
    held.begin("turn/2", second)
    both = held_runs.read(file)
    held.end(second)
    one_left = held_runs.read(file)
    held.end(second)
    held.begin("turn/1", first)
    held.drop(first)
    dropped = held_runs.read(file)
    held.end(first)

    assert both == [
        HeldRun("turn/2", second, is_cached=False, is_active=True),
        HeldRun("turn/1", first, is_cached=True, is_active=False),
    ]
    assert one_left == both
    assert dropped == [HeldRun("turn/1", first, is_cached=False, is_active=True)]
    assert held_runs.read(file) == []


def test_list_that_is_full_leaves_runs_out_and_takes_others_later(file: int) -> None:
    """An id that is too long is left out as well."""
    held = HeldRuns(file)
    for number in range(limits.HELD_RUNS + 1):
        held.begin("turn", f"{number:036d}")
    full = len(held_runs.read(file))
    held.end(f"{limits.HELD_RUNS:036d}")
    held.end(f"{0:036d}")
    held.begin("x" * 1_001, RUN.format(1))
    held.begin("x" * 1_000, RUN.format(2))

    last = next(run for run in held_runs.read(file) if run.run_id == RUN.format(2))
    assert full == limits.HELD_RUNS
    assert last.workflow_id == "x" * 1_000
    assert len(held_runs.read(file)) == limits.HELD_RUNS


def test_state_and_connection_of_a_process(file: int) -> None:
    """It is starting, serves, and has left. That it has served is known afterwards."""
    held, connection = HeldRuns(file), WorkerConnection("7@host.1f2e", "agents")
    told = [(held_runs.state(file), held_runs.has_served(file))]
    held.serve(connection)
    told.append((held_runs.state(file), held_runs.has_served(file)))
    held.leave()
    told.append((held_runs.state(file), held_runs.has_served(file)))

    assert told == [
        (held_runs.STARTING, False),
        (held_runs.SERVING, True),
        (held_runs.LEFT, True),
    ]
    assert held_runs.connection(file) == connection


@pytest.mark.accepts("P38")
@pytest.mark.parametrize("seed", range(5))
def test_entry_is_complete_or_absent_wherever_the_process_is_killed(file: int, seed: int) -> None:
    """Every entry has the text that belongs to its run, after `kill -9` at any moment."""
    command = [sys.executable, "-c", HAMMER, str(file)]
    with subprocess.Popen(command, pass_fds=[file], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(random.Random(seed).uniform(0, 0.05))
        os.kill(writer.pid, signal.SIGKILL)

    runs = held_runs.read(file)

    assert 49 <= len(runs) <= 51
    assert all(run.workflow_id == "é" * (int(run.run_id) % 400 + 1) for run in runs)


@pytest.mark.accepts("P39")
def test_runs_stay_in_the_list_of_a_process_that_drains(file: int) -> None:
    """Those in memory, and those that come later; not those that had left before."""
    held = HeldRuns(file)
    held.begin("over", RUN.format(1))
    held.end(RUN.format(1))
    held.keep("cached", RUN.format(2))
    held.drain()
    held.drop(RUN.format(2))
    held.begin("late", RUN.format(3))
    held.end(RUN.format(3))

    assert sorted(run.workflow_id for run in held_runs.read(file)) == ["cached", "late"]
    assert not any(run.is_cached or run.is_active for run in held_runs.read(file))
