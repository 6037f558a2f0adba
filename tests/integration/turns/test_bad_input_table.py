"""Every row of the table of bad inputs, on a real server, with a real worker that runs other turns
as well.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from pathlib import Path

import pytest

from perdure import AgentReport

from ...conftest import Runtime
from ...support.bad_input.bench import BadInput, Bench, End, bench
from ...support.bad_input.table import CATALOGUE, PAGE, page

PROMPTLY_S = 60.0
"""A row takes a few seconds, and ten times as long on a machine that is very busy."""

BATCHES = 12
"""Neighbours in the table are in different ones, so that large replies do not come at once."""

ROWS = [CATALOGUE[first::BATCHES] for first in range(BATCHES)]


@pytest.mark.slow
@pytest.mark.accepts("E29", "U17", "U18", "U6", "Y9")
@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: "-".join(str(row.number) for row in rows))
async def test_bad_inputs_have_their_outcomes_and_no_other_turn_notices(
    runtime: Runtime, tmp_path: Path, rows: list[BadInput]
) -> None:
    """Several rows at once, beside two ordinary turns, which the bench checks."""
    async with bench(runtime, tmp_path) as made:
        found = await asyncio.gather(*(unlike(row, made) for row in rows))

    assert list(chain(*found)) == []


async def unlike(row: BadInput, made: Bench) -> list[str]:
    """The difference from the expected outcome."""
    try:
        async with asyncio.timeout(PROMPTLY_S):
            ends = await row.tried(made)
    except Exception as error:  # noqa: BLE001 - the other rows go on
        return [f"{row.number}: {row.outcome} expected, but {error!r}"]
    return [
        f"{row.number}: {row.outcome} expected, but {told(end)}"
        for end in ends
        if not row.outcome.fits(end)
    ]


def told(end: End) -> str:
    """The description of an end."""
    if isinstance(end, int):
        return f"the status is {end}"
    if not isinstance(end, AgentReport):
        return f"{end.code}: {end.message} (report: {end.report is not None})"
    results = [
        (result.content[:200], result.is_error) for step in end.steps for result in step.results
    ]
    return f"the turn answers {end.output!r} after {results}"


@pytest.mark.accepts("U19")
def test_page_has_the_table() -> None:
    """`make bad-input` writes the page."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_table_has_77_rows() -> None:
    """Each row has its number."""
    assert [row.number for row in CATALOGUE] == list(range(1, 78))
