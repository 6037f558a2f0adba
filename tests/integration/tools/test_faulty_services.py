"""A tool pays while its service fails, and the ledger of the service is the witness."""

from __future__ import annotations

import pytest

from perdure.testing import Fault

from ...support.faulty_payments import CASES, COUNTS, counted, measured

QUICK = (Fault.TIMEOUT_POST, Fault.TIMEOUT_LATE, Fault.CUT_POST)


@pytest.mark.accepts("Y146")
@pytest.mark.parametrize(
    "faults", [QUICK, pytest.param(tuple(Fault), marks=pytest.mark.slow)], ids=["some", "all"]
)
async def test_what_perdure_does_itself_pays_at_most_once(faults: tuple[Fault, ...]) -> None:
    """It repeats no call. What a model repeats with one key of its own is paid once."""
    names = ("tell", "tell, stopped", "blind, own key")
    cells = await measured([case for case in CASES if case.name in names], faults)

    doubled = {(cell.fault, cell.case) for cell in cells if cell.did == "twice"}
    delivered = {(Fault.DUPLICATE_DELIVERY, name) for name in names[:2]}
    assert len(cells) == len(faults) * len(names)
    assert doubled == {(fault, name) for fault, name in delivered if fault in faults}
    overclaimed = COUNTS["overclaims"]
    assert {(cell.fault, cell.case) for cell in cells if overclaimed(*cell.pair)} == doubled
    assert {cell.fault for cell in cells if cell.case == names[2] and cell.did != "once"} <= {
        Fault.OUTAGE
    }
    stopped = [cell for cell in cells if cell.case == names[1] and cell.fault.shows == "nothing"]
    assert {cell.says for cell in stopped} == {"unknown"}


async def test_counts_are_those_of_the_cells() -> None:
    """A second payment is seen as one: it would otherwise be no proof that there is none."""
    [cell] = await measured([case for case in CASES if case.name == "blind"], [Fault.TIMEOUT_POST])

    assert cell.pair == ("twice", "paid")
    assert {name for name, count in counted([cell.pair]).items() if count} == {
        "twice",
        "overclaims",
    }
