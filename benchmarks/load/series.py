"""The loads of the tables, in 20 minutes."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.load import sizing
from benchmarks.load.app import Job
from benchmarks.load.figures import figures
from benchmarks.load.idle import idle
from benchmarks.load.traffic import Load, run

IDLE_SESSIONS = 500
LIMIT_S = 300.0
"""A load that takes longer is given up."""

_FULL = Load(turns=40, seconds=30, job=Job(steps=4, tools=1, seconds=0.5))
_HALF = Load(turns=12, seconds=25, job=Job(steps=2, tools=1, seconds=0.5))
WORKERS = {f"{n}-workers": replace(_FULL, workers=n) for n in (1, 2, 4)}
OPEN = {
    name: Load(turns=turns, seconds=40, job=Job(steps=2, tools=1, seconds=turns / 25))
    for name, turns in ((sizing.OPEN_FEW, 10), ("100-open", 100), (sizing.OPEN_MANY, 1000))
}
"""25 steps a second at most, whatever the number of open turns: each waits for its model longer."""
KILLS = {
    "kills": Load(
        turns=30, sessions=10, seconds=40, kills=7, job=Job(steps=4, tools=2, seconds=0.5)
    )
}
SIZES = {
    sizing.SHORT: _HALF,
    sizing.LONG: replace(_HALF, job=Job(steps=8, tools=1, seconds=0.5)),
    sizing.TOOLS: replace(_HALF, job=Job(steps=4, tools=3, seconds=0.5)),
    sizing.MESSAGES: replace(_HALF, turns=0, sessions=12),
    sizing.LONG_MESSAGES: replace(
        _HALF, turns=0, sessions=12, job=Job(steps=4, tools=3, seconds=0.5)
    ),
}
_CHECK = Load(turns=30, sessions=10, seconds=40, job=Job(steps=5, tools=2, seconds=4.0))
CHECK = {
    sizing.CHECK: _CHECK,
    sizing.CHECK_BUSY: replace(_CHECK, turns=60, sessions=20),
}
"""Not used for the costs. The second one is more than two cores can do."""
LOADS: Mapping[str, Load] = {**SIZES, **OPEN, **CHECK, **WORKERS, **KILLS}


async def measure(
    loads: Mapping[str, Load], idle_sessions: int, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run all loads, and keep the figures after each: one that fails costs no other."""
    found: dict[str, Any] = {"points": {}, "idle": None, "failed": {}}
    for name, load in loads.items():
        try:
            async with asyncio.timeout(LIMIT_S):
                found["points"][name] = figures(await run(load))
        except Exception as error:  # noqa: BLE001 - the other loads go on
            traceback.print_exc()
            found["failed"][name] = repr(error)
        keep(found)
    try:
        found["idle"] = await idle(idle_sessions, seconds=30) if idle_sessions else None
    except Exception as error:  # noqa: BLE001 - the loads are worth keeping
        traceback.print_exc()
        found["failed"]["idle"] = repr(error)
    keep(found)
    return found
