"""The same turns in the simulator and on a real server: facts, commands and bills."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ...support.fidelity.comparing import differences
from ...support.fidelity.real import played, worker_of
from ...support.fidelity.script import Script, new_root
from ...support.fidelity.simulated import simulated

SEEDS = range(40)
FAST = 3


@pytest.mark.accepts("Y150")
@pytest.mark.table(FAST)
@pytest.mark.parametrize("seed", SEEDS)
async def test_turn_is_the_same_on_a_real_server(seed: int, runtime: Any) -> None:
    """The agents, the input, answers, results, and the orders of people are drawn by the seed."""
    root = new_root()
    ours, theirs = Script(seed, root), Script(seed, root)
    # the simulator has an event loop of its own
    simulated_play = await asyncio.to_thread(simulated, ours)
    worker, provider = worker_of(theirs)
    async with runtime(worker) as client:
        real_play = await played(theirs, provider, client.temporal, client.task_queue)

    differ = differences(simulated_play, real_play)
    assert not differ, differ
    assert ours.billed == theirs.billed
