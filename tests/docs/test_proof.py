"""The page of what is promised is its table, and the table forgets nothing of the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import get_args

import pytest

from perdure.clients.gateway.application import operations
from perdure.clients.reading.events import kind_of
from perdure.session.facts import SessionFact
from perdure.turn.facts import Recorded
from perdure.workflows import WORKFLOWS

from .. import acceptance
from ..support.docs import proof
from ..support.docs.files import ROOT
from ..support.findings import FINDINGS
from ..support.planted_operations import ALL
from ..support.proof import (
    FEATURES,
    PROMISES,
    SIMULATED,
    SURFACES,
    TAINTS,
    Feature,
    Promise,
    Surface,
    is_simulated,
)

ROWS = (*PROMISES, *TAINTS)
WHAT_TO_DO = (
    "is in no column of tests/support/proof.py. Name it in the column of the feature or surface"
    " that it belongs to. If it is a new one, add a column, with a cell in each row: the ids of the"
    " statements whose tests show that the promise holds with it, by(…); why it does not apply,"
    " no(…); or what is not tested, gap(…). Then run python -m tests.support.docs.proof"
)


def difference(named: Iterable[str], known: Collection[str]) -> list[str]:
    """What the columns lack, name twice, or name although it is not there any more."""
    counts = Counter(named)
    return [
        *(f"{name} {WHAT_TO_DO}" for name in sorted(set(known) - set(counts))),
        *(f"{name} is in several columns" for name, count in counts.items() if count > 1),
        *(f"{name} is not there any more" for name in sorted(set(counts) - set(known))),
    ]


@pytest.mark.accepts("Y120")
def test_page_is_that_of_the_table() -> None:
    """`python -m tests.support.docs.proof` writes it."""
    assert proof.PAGE.read_text(encoding="utf-8") == proof.page()


@pytest.mark.accepts("Y152")
def test_findings_of_reviews_are_planted_or_say_why_not() -> None:
    """A finding with the name of a fault that is not planted would promise too much."""
    planted = {fault.name for fault in ALL}

    assert [one.fault for one in FINDINGS if bool(one.planted) == bool(one.reason)] == []
    assert {one.planted for one in FINDINGS if one.planted} <= planted


@pytest.mark.accepts("Y120")
def test_every_crossing_has_a_cell() -> None:
    """It has tests or a simulation, or says why there is none."""
    filled = {
        (row.name, key): [
            bool(cell.ids) or (isinstance(row, Promise) and is_simulated(row, key)),
            bool(cell.reason),
            bool(cell.missing),
        ]
        for row in ROWS
        for key, cell in row.cells.items()
    }

    assert [row.name for row in PROMISES if row.cells.keys() != FEATURES.keys()] == []
    assert [row.name for row in TAINTS if row.cells.keys() != SURFACES.keys()] == []
    assert [place for place, ways in filled.items() if sum(ways) != 1] == []


@pytest.mark.slow
@pytest.mark.accepts("Y120")
def test_statements_in_cells_exist_and_have_tests() -> None:
    """A cell with an id that no test names would promise a test that there is not."""
    known = {statement.id for statement in acceptance.statements()}
    shown = {
        accepted
        for path in (ROOT / "tests").rglob("test_*.py")
        for accepted, _ in acceptance.marked(path)
    }
    named = {one for row in ROWS for cell in row.cells.values() for one in cell.ids}

    assert sorted(named - known) == []
    assert sorted(named - shown) == []


@pytest.mark.accepts("Y120")
def test_promises_that_are_simulated_are_checks_of_the_simulator() -> None:
    """A new check is one of a promise."""
    table = (ROOT / "docs/simulation.md").read_text(encoding="utf-8")
    rows = table.split("| promise | meaning |\n|---|---|\n")[1].split("\n\n")[0].splitlines()

    assert {check for row in PROMISES for check in row.checks} == {
        row.split("|")[1].strip() for row in rows
    }
    assert FEATURES.keys() >= SIMULATED


@pytest.mark.accepts("Y120")
def test_columns_name_all_that_the_code_has() -> None:
    """A new workflow, kind of fact, operation or protocol needs a place in the tables."""
    columns: list[Feature | Surface] = [*FEATURES.values(), *SURFACES.values()]
    gateway = (ROOT / "clients/gateway").iterdir()

    assert (
        difference(
            [name for column in columns for name in column.workflows],
            [workflow.__name__ for workflow in WORKFLOWS],
        )
        == []
    )
    assert (
        difference(
            [name for feature in FEATURES.values() for name in feature.facts],
            [kind_of(fact) for fact in (*get_args(Recorded), *get_args(SessionFact))],
        )
        == []
    )
    assert (
        difference(
            [name for feature in FEATURES.values() for name in feature.operations],
            [operation.name for operation in operations()],
        )
        == []
    )
    assert (
        difference(
            [name for surface in SURFACES.values() for name in surface.folders],
            [path.name for path in gateway if path.is_dir() and path.name[0] != "_"],
        )
        == []
    )


def test_what_is_forgotten_is_named() -> None:
    """With what to do; a check that never fails would show nothing."""
    [lost, twice, gone] = difference(["a", "b", "b"], ["b", "new"])

    assert lost.startswith("new is in no column of tests/support/proof.py.")
    assert (twice, gone) == ("b is in several columns", "a is not there any more")
