"""The job of a tree, for every implementation: a parent that delegates tasks, one or several at a
time.

Its task is `TIMES BYTES DELAY STEPS AT_ONCE`: the number of delegations, and how many of them run
at once; each delegate does the job of `benchmarks.job` with this number of steps. Model and delay
are those of that job.
"""

from __future__ import annotations

from benchmarks.job import next_call


async def next_errands(task: str, asked: int) -> list[str] | None:
    """The parent's reply after `asked` answers: the tasks of the delegates, or None at the end."""
    times, size, delay, steps, at_once = task.split()
    if await next_call(f"{times} {size} {delay}", asked) is None:
        return None
    return [f"{steps} {size} {delay}"] * int(at_once)
