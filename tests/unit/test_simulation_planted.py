"""Faults that are planted into a copy of the product, and the promises that find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.matrix.controls import CONTROLS

from ..support.planted import PLANTED, Planted, found, found_in_every_order, plant
from ..support.planted_operations import ALL


@pytest.mark.slow
@pytest.mark.accepts("Y112")
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_planted_fault_is_found(fault: Planted, tmp_path: Path) -> None:
    """By one of the promises that it breaks, within some seeds."""
    plant(fault, tmp_path)
    seed, promise = found(fault, tmp_path)

    assert seed >= 0, promise
    assert promise in fault.promises


@pytest.mark.slow
@pytest.mark.accepts("Y151")
@pytest.mark.parametrize(
    "fault",
    [fault for fault in PLANTED if fault.space],
    ids=lambda fault: fault.name.replace(" ", "-"),
)
def test_planted_fault_is_found_in_every_order(fault: Planted, tmp_path: Path) -> None:
    """By the search of all orders of a small turn."""
    plant(fault, tmp_path)

    assert found_in_every_order(fault, tmp_path) in fault.promises


def test_every_fault_can_still_be_planted(tmp_path: Path) -> None:
    """The code that each of them replaces is there, once; also for the kill matrix."""
    root = Path(__file__).parents[2]
    controls = [control.planted for control in CONTROLS]

    for fault in (*ALL, *controls):
        for file, before, _ in ((fault.file, fault.before, fault.after), *fault.also):
            assert (root / file).read_text(encoding="utf-8").count(before) == 1, fault.name
