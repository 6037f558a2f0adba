"""The rows of the tables, each measured in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.effects import episodes, handwritten, kills
from benchmarks.effects.behaviours import Behaviour
from benchmarks.effects.grading import MEASURES, Graded, counted
from benchmarks.effects.templates import MODES, cases
from benchmarks.effects.tools import (
    BOTH,
    CALL_KEY,
    EFFECT_KEY,
    NO_KEY,
    READ_BACK,
)

LOOP, PERDURE = "loop", "perdure"
ROWS = {
    f"{system}, {configuration.name}": (system, configuration)
    for system, configurations in (
        (LOOP, (NO_KEY, CALL_KEY, EFFECT_KEY)),
        (PERDURE, (NO_KEY, CALL_KEY, EFFECT_KEY, READ_BACK, BOTH)),
    )
    for configuration in configurations
}
KILLED = (
    f"{LOOP}, {NO_KEY.name}",
    f"{LOOP}, {EFFECT_KEY.name}",
    f"{PERDURE}, {NO_KEY.name}",
    f"{PERDURE}, {EFFECT_KEY.name}",
    f"{PERDURE}, {READ_BACK.name}",
)
"""The rows whose processes are killed."""
KILL_ROWS = [f"{name}, {moment}" for name in KILLED for moment in kills.MOMENTS]


def measured(row: str, address: str) -> list[Graded]:
    """All episodes of a row, in a process of their own."""
    system, configuration = ROWS[row]
    if system == LOOP:
        return asyncio.run(handwritten.run(configuration, [*Behaviour], [*cases()]))
    return asyncio.run(episodes.run(configuration, [*Behaviour], [*cases()], address))


def killed(row: str, moment: str, address: str) -> list[Graded]:
    """All tasks of a row, whose process is killed at a moment."""
    system, configuration = ROWS[row]
    if system == LOOP:
        return asyncio.run(kills.run_loops(configuration, moment))
    return asyncio.run(kills.run(configuration, moment, address))


def by_behaviour(
    row: Sequence[Graded], behaviours: Sequence[Behaviour] = (*Behaviour,)
) -> dict[str, list[int]]:
    """Each measure, for each behaviour."""
    counts = [counted(one for one in row if one.behaviour is each) for each in behaviours]
    return {measure: [each[measure] for each in counts] for measure in MEASURES}


def by_mode(
    row: Sequence[Graded], behaviours: Sequence[Behaviour] = (*Behaviour,)
) -> dict[str, list[int]]:
    """Exactly-once success in each mode, for each behaviour."""
    return {
        mode: by_behaviour([one for one in row if one.case.fault is mode], behaviours)[
            "exactly once"
        ]
        for mode in MODES
    }
