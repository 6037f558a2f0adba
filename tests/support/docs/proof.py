"""The page of what is promised and tested: `python -m tests.support.docs.proof` writes
`docs/proof.md` from the table in `tests/support/proof.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..findings import FINDINGS, Finding
from ..planted import Planted
from ..planted_operations import ALL
from ..proof import (
    FEATURES,
    FOUND,
    PROMISES,
    SURFACES,
    TAINTS,
    Feature,
    Promise,
    Surface,
    Taint,
    is_simulated,
)
from . import kill_matrix, measured, simulated_seeds

PAGE = Path(__file__).parents[3] / "docs/proof.md"

HEAD = """# What is promised, and how it is tested

This page has a table of promises and features, and one of texts that must not leave and of ways
out. Each cell names the statements of [the requirements](acceptance.md) whose tests show this
crossing, or says that no test does. A promise is seldom broken by the feature that it was made
for, and often by one that came later. So the table is made from `tests/support/proof.py`, and a
test fails if a workflow, a kind of event, an operation over HTTP or a folder of the gateway is in
none of its columns.

## What is promised

| promise | meaning | known as |
|---|---|---|
PROMISED
## What is not

- **Exactly one effect.** A tool that was in flight when its worker died has an unknown outcome.
  Perdure starts it at most once, or again with the same key if it is idempotent. Only the service
  behind the tool can make exactly one effect of that key.
- **The bill after a reset.** A reset in Temporal forgets what was spent after its point, and
  delegates that began after it go on: [Operating](operating.md#reset-a-turn).
- **Temporal Cloud.** All tests run on Temporal's own development server.
- **Real providers.** Models are scripted, or a stub that speaks the three APIs. Recorded traffic of
  real providers is parsed, and one small model runs locally.
- **Hostile code.** Tools are trusted code of the worker.

[What does not work yet](not-yet.md) lists the missing features.

## How it is tested

Tests run on a real Temporal server, with the real worker and the real client; what a model says is
scripted. At the end of each test, the fold of each history is compared with the summary and the
memo that its workflow has written. A fresh process replays the histories at the end.

| command | what it does |
|---|---|
| `make test` | all but the slow tests: among them worker processes that are killed, simulated \
turns, and stored histories of earlier releases |
| `make test-slow` | the others: kills at random moments, a server that is away, a browser, two \
releases on one queue, all rows of long tables |
| `make proof` | all of the simulations, planted faults and kills below, in half an hour; it keeps \
what every stage printed, with the versions and seeds. `ARGS=--long` for a night |
| `make simulate SEEDS=10000` | [simulated turns](simulation.md): the real workflows on a \
deterministic server |
| `make -C benchmarks soak` | trees, batches, sessions and a turn of 5,000 steps, killed for an \
hour and a half |
| `make -C benchmarks matrix` | [the kill matrix](#the-kill-matrix) |
| `make bench-effects` | [effects while the service fails](#effects-while-the-service-fails): \
twelve tasks in the modes of LIMBO, and kills of their worker |
| `make -C benchmarks effects-peers` | the same tasks, modes and kills on other frameworks |
| `make -C benchmarks peers-matrix` | kills of four other systems, with defaults and best \
settings, judged by the same witness; no run on a quiet machine has been kept yet |
| `make acceptance` | lists the tests of each statement |

## Promises and features

`S`: the [simulator](simulation.md#what-is-checked) has the feature, and checks the promise in each
simulation. `n/a`: the promise does not apply, for the reason below the table. **Not tested** is a
gap.

"""
TAINTED = """
## Texts that must not leave

The tests plant these texts in a session with its delegates, and look for them on every surface, in
plain and in encoded form. Where a text is allowed, it has to be found.

| text | where it is allowed |
|---|---|
"""
HISTORY = """
## What crossings have found

Each of these faults was in a feature that had tests, and broke a promise that had tests.

| fault | crossing | mended |
|---|---|---|
"""
PLANTED_HEAD = """
## Planted faults

Each of the COUNT is one replacement in a copy of the product, and one of the promises broke within
so many seeds from 0 on when it was planted. What is simulated later changes what a seed is, but for
seeds with a [focus](simulation.md#many-seeds): these have its features and no other, and what it
aims at happens far more often. `test_simulation_planted.py`, one of the slow tests, searches them
again.

On 2026-11-28, all of them were searched again, and all but one were found. Some lose their seeds
whenever the product writes other events: the one, calls that end in the task of a cancel in another
order than that of the calls, is left out since, and others have another focus. So the number of
seeds says how rare a fault is, and not which seed finds it.

| fault | promise | within |
|---|---|---|
"""
FINDINGS_HEAD = """
## Findings of reviews

These are the faults of workflows that reviews have found. They were mended before there was a
simulator, so they are planted into the code of today. The table says which check finds each, or
why none does.

| fault | mended | found by | within |
|---|---|---|---|
"""


def page() -> str:
    """The page of the documentation."""
    promised = "".join(f"| {one.name} | {one.meaning} | {one.term} |\n" for one in PROMISES)
    headings = [feature.name for feature in FEATURES.values()]
    ways_out = [surface.name for surface in SURFACES.values()]
    return "".join(
        [
            HEAD.replace("PROMISED", promised),
            *_table("promise", headings, PROMISES, FEATURES),
            *_reasons(PROMISES, FEATURES),
            TAINTED,
            *(f"| {one.name} | {one.where} |\n" for one in TAINTS),
            "\n",
            *_table("text", ways_out, TAINTS, SURFACES),
            *_reasons(TAINTS, SURFACES),
            "\n## Gaps\n\n",
            *(list(_gaps()) or ["None: each crossing has a test or a reason.\n"]),
            simulated_seeds.section(),
            kill_matrix.SECTION,
            *measured.sections(),
            HISTORY,
            *(f"| {one.fault} | {one.crossing} | {one.mended} |\n" for one in FOUND),
            PLANTED_HEAD.replace("COUNT", str(len(ALL))),
            *map(_planted, ALL),
            FINDINGS_HEAD,
            *map(_finding, FINDINGS),
        ]
    )


Rows = Sequence[Promise | Taint]
Columns = Mapping[str, Feature] | Mapping[str, Surface]


def _table(corner: str, headings: list[str], rows: Rows, columns: Columns) -> Iterator[str]:
    """Yield the lines of a table. Reasons have numbers."""
    numbers = {reason: number for number, reason in enumerate(_distinct(rows, columns), 1)}
    yield f"| {corner} | {' | '.join(headings)} |\n"
    yield f"|---{'|---' * len(headings)}|\n"
    for row in rows:
        cells = (_shown(row, key, numbers) for key in columns)
        yield f"| {row.name} | {' | '.join(cells)} |\n"


def _shown(row: Promise | Taint, key: str, numbers: Mapping[str, int]) -> str:
    cell = row.cells[key]
    if cell.missing:
        return "**not tested**"
    if cell.reason:
        return f"n/a ({numbers[cell.reason]})"
    simulated = ["`S`"] if isinstance(row, Promise) and is_simulated(row, key) else []
    return " ".join([*cell.ids, *simulated])


def _distinct(rows: Rows, columns: Columns) -> list[str]:
    """Return the reasons of a table, each once, in the order of its cells."""
    cells = (row.cells[key] for row in rows for key in columns)
    return list(dict.fromkeys(cell.reason for cell in cells if cell.reason))


def _reasons(rows: Rows, columns: Columns) -> Iterator[str]:
    """Yield the reasons of a table, by their numbers."""
    for number, reason in enumerate(_distinct(rows, columns), 1):
        yield f"{'' if number > 1 else chr(10)}{number}. {reason[0].upper()}{reason[1:]}.\n"


def _gaps() -> Iterator[str]:
    """Yield the lines of the crossings that no test shows."""
    tables: list[tuple[Rows, Columns]] = [(PROMISES, FEATURES), (TAINTS, SURFACES)]
    for rows, columns in tables:
        for row in rows:
            for key, column in columns.items():
                if row.cells[key].missing:
                    yield f"- {row.name}, {column.name}: {row.cells[key].missing}.\n"


def _planted(fault: Planted) -> str:
    """Return the row of a planted fault that is found."""
    return f"| {fault.name} | {' or '.join(fault.promises)} | {_seeds(fault)} |\n"


def _seeds(fault: Planted) -> str:
    """Return how many seeds of what were searched."""
    plural = {"batch": "batches"}.get(fault.kind, f"{fault.kind}s")
    focus = f", focus: {', '.join(fault.focus)}" if fault.focus else ""
    return f"{fault.seeds:,} {plural}{focus}"


def _finding(finding: Finding) -> str:
    """Return the row of a finding of a review."""
    if not finding.planted:
        return f"| {finding.fault} | {finding.mended} | not found: {finding.reason} | |\n"
    faults = {one.name: one for one in ALL}
    fault = faults[finding.planted]
    found_by, within = " or ".join(fault.promises), _seeds(fault)
    return f"| {finding.fault} | {finding.mended} | {found_by} | {within} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
