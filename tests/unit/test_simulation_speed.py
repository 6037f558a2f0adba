"""What keeps the simulator fast, and its seeds the same on a slow machine."""

from __future__ import annotations

import asyncio

import pytest

from perdure.temporal.payloads import pack, parsing_once, unpack
from perdure.testing.simulation import simulate
from perdure.testing.simulation.server.loops import QuickLoop
from perdure.turn.wire import Steer, TurnRequest
from perdure.values.tasks import Task


@pytest.mark.accepts("S29")
def test_time_of_an_activity_is_what_it_waits() -> None:
    """A timer of an hour fires at once, and nothing else moves the clock."""
    loop = QuickLoop()
    before = loop.time()
    loop.run_until_complete(asyncio.sleep(3600))
    after = loop.time()
    loop.close()

    assert before == 0
    assert after == pytest.approx(3600)


@pytest.mark.accepts("S30")
def test_equal_payloads_are_parsed_once_in_a_simulation() -> None:
    """As one value for each class; afterwards, each payload has its own value again."""
    raw = pack(TurnRequest(agent="any", task=Task(content="go")))
    with parsing_once():
        first, second = unpack(raw, TurnRequest), unpack(raw, TurnRequest)
        with pytest.raises(Exception, match="not a valid Steer"):
            unpack(raw, Steer)
    third = unpack(raw, TurnRequest)

    assert first is second
    assert third is not first
    assert third == first


@pytest.mark.accepts("S30")
def test_simulation_leaves_no_parsed_value_behind() -> None:
    """Neither for the next simulation nor for anything else in the process."""
    raw = pack(TurnRequest(agent="any", task=Task(content="go")))
    simulate(1)

    assert unpack(raw, TurnRequest) is not unpack(raw, TurnRequest)
