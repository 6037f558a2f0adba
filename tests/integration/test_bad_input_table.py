"""Every row of the table of bad inputs, tried on a real server, by a real worker that has other turns to run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import AgentReport

from ..conftest import Runtime
from .bad_bench import BadInput, Bench, End, bench
from .bad_inputs import AWAITED, CATALOGUE

PROMPTLY_S = 30.0
"""A row takes at most a few seconds, also on a machine that is very busy."""

AT_ONCE = 9
BATCHES = [CATALOGUE[first : first + AT_ONCE] for first in range(0, len(CATALOGUE), AT_ONCE)]


@pytest.mark.accepts("U30", "U31")
@pytest.mark.parametrize("rows", BATCHES, ids=lambda rows: f"{rows[0].number}-{rows[-1].number}")
async def test_bad_inputs_have_their_outcomes_and_no_other_turn_notices(
    runtime: Runtime, tmp_path: Path, rows: list[BadInput]
) -> None:
    """Some rows at once, beside two honest turns, which the bench looks at."""
    async with bench(runtime, tmp_path) as made:
        ends = await asyncio.gather(*(tried(made, row) for row in rows))

    assert [found for row, end in zip(rows, ends, strict=True) for found in unlike(row, end)] == []


async def tried(made: Bench, row: BadInput) -> list[End]:
    """The ends of a row, in time."""
    async with asyncio.timeout(PROMPTLY_S):
        return list(await row.tried(made))


def unlike(row: BadInput, ends: list[End]) -> list[str]:
    """What is not as the row has it."""
    return [f"{row.number}: {row.outcome} expected, but {told(end)}" for end in ends if not row.outcome.fits(end)]


def told(end: End) -> str:
    """An end in words."""
    if not isinstance(end, AgentReport):
        return f"{end.code}: {end.message} (report: {end.report is not None})"
    results = [(result.content[:200], result.is_error) for step in end.steps for result in step.results]
    return f"the turn answers {end.output!r} after {results}"
