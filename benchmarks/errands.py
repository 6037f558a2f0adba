"""The job of a tree, that every loop does: a parent that gives errands to others, one or several at
a time.

Its task is `TIMES BYTES DELAY STEPS AT_ONCE`: so often it delegates, to so many at once; each of
the others does the job of `benchmarks.job` with so many steps. Model and delay are those of that
job.
"""

from __future__ import annotations

from benchmarks.job import next_call


async def next_errands(task: str, asked: int) -> list[str] | None:
    """What the parent's model says after `asked` answers: the tasks of the others, or None when it
    is done.
    """
    times, size, delay, steps, at_once = task.split()
    if await next_call(f"{times} {size} {delay}", asked) is None:
        return None
    return [f"{steps} {size} {delay}"] * int(at_once)
