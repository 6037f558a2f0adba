"""The rows of the tables, each measured in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from benchmarks.effects import episodes, handwritten, kills
from benchmarks.effects.behaviours import Behaviour
from benchmarks.effects.grading import MEASURES, Graded, counted
from benchmarks.effects.templates import MODES, cases
from benchmarks.effects.tools import (
    BOTH,
    CALL_KEY,
    CONFIGURATIONS,
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
KILLED = (NO_KEY, EFFECT_KEY, READ_BACK)


def measured(system: str, name: str, behaviours: Sequence[Behaviour], address: str) -> list[Graded]:
    """All episodes of a row, in a process of their own."""
    configuration = next(one for one in CONFIGURATIONS if one.name == name)
    if system == LOOP:
        return asyncio.run(handwritten.run(configuration, behaviours, [*cases()]))
    return asyncio.run(episodes.run(configuration, behaviours, [*cases()], address))


def killed(name: str, moment: str, behaviours: Sequence[Behaviour], address: str) -> list[Graded]:
    """All tasks of a configuration, whose worker is killed at a moment."""
    configuration = next(one for one in CONFIGURATIONS if one.name == name)
    return asyncio.run(kills.run(configuration, moment, behaviours, address))


def by_behaviour(
    row: Sequence[Graded], behaviours: Sequence[Behaviour]
) -> Mapping[str, Sequence[int]]:
    """Each measure, for each behaviour."""
    counts = [counted(one for one in row if one.behaviour is each) for each in behaviours]
    return {measure: [each[measure] for each in counts] for measure in MEASURES}


def by_mode(row: Sequence[Graded], behaviours: Sequence[Behaviour]) -> Mapping[str, Sequence[int]]:
    """Exactly-once success in each mode, for each behaviour."""
    return {
        mode: by_behaviour([one for one in row if one.case.fault is mode], behaviours)[
            "exactly once"
        ]
        for mode in MODES
    }
