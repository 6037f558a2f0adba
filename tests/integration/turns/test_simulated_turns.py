"""The same turns in the simulator and on a real server: facts, commands and bills."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ...support.fidelity.comparing import Shown, difference, shown
from ...support.fidelity.real import played, worker_of
from ...support.fidelity.script import Script
from ...support.fidelity.simulated import simulated

SEEDS = range(40)
FAST = 3


@pytest.mark.accepts("Y150")
@pytest.mark.table(FAST)
@pytest.mark.parametrize("seed", SEEDS)
async def test_turn_is_the_same_on_a_real_server(seed: int, runtime: Any) -> None:
    """The agents, the input, answers, results, and the orders of people are drawn by the seed."""
    script = Script(seed)
    runs = await asyncio.to_thread(simulated, script)  # it has an event loop of its own
    ours = {run.id: shown(run.facts, run.history.events, run.read) for run in runs}
    bill = dict(script.billed)
    script.billed.clear()
    worker, provider = worker_of(script)
    async with runtime(worker) as client:
        provider.client = client.temporal
        turns = await played(script, client.temporal, client.task_queue)
    theirs = {turn.id: shown(turn.facts, turn.events, turn.state) for turn in turns}

    assert {name: compared(ours.get(name), theirs.get(name)) for name in ours | theirs} == (
        dict.fromkeys(ours | theirs, "")
    )
    assert script.billed == bill


def compared(ours: Shown | None, theirs: Shown | None) -> str:
    """How a turn differs; a turn that only one of them has differs, too."""
    if ours is None or theirs is None:
        return f"only in {'the simulator' if theirs is None else 'reality'}"
    return difference(ours, theirs)
