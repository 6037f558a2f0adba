"""Events by key in the simulator and on a real server: the same facts, signals and answers."""

from __future__ import annotations

import asyncio

import pytest

from perdure.events import WaitBegan
from perdure.temporal.histories.turn_history import HistoryReader

from ...conftest import Runtime
from ...support.fidelity.events import (
    FIRST,
    NAME,
    SECOND,
    answers,
    facts_of,
    kept,
    simulated,
    waited,
)
from ...support.keyed_events import MODEL, keeper, key_of_test, waiter
from ...support.spending import until

TURNS = 2


@pytest.mark.accepts("S26")
async def test_events_by_key_are_the_same_on_a_real_server(runtime: Runtime) -> None:
    """One is there before the turns wait, is sent again, and another one ends both of two calls."""
    key = key_of_test()
    ours, our_keeper = await asyncio.to_thread(simulated, key, TURNS)

    async with runtime(waiter(parallel_tools=True), model=MODEL) as client:
        await client.emit(NAME, key=key, body=FIRST, id=FIRST)
        turns = [await client.start("waiter", answers(key)) for _ in range(TURNS)]
        for turn in turns:
            await until(turn, WaitBegan)
        for event_id in (FIRST, SECOND):
            await client.emit(NAME, key=key, body=event_id, id=event_id)
        reader = HistoryReader(client.temporal.data_converter, is_worker=True)
        theirs = []
        for turn in turns:
            await turn.result()
            history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
            theirs.append(waited(await facts_of(reader, history.events), history.events))
        their_keeper = kept((await keeper(client, key).fetch_history()).events)

    assert ours == theirs
    assert our_keeper == their_keeper
