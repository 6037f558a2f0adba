"""The same sessions in the simulator and on a real server: facts, commands, answers and bills."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.testing.simulation.server.clock import START

from ...support.fidelity.comparing import differences
from ...support.fidelity.real import played, worker_of
from ...support.fidelity.script import new_root
from ...support.fidelity.session_script import SessionScript
from ...support.fidelity.simulated import simulated

SEEDS = range(42, 92)
FAST = 2


@pytest.mark.accepts("Y177")
@pytest.mark.table(FAST)
@pytest.mark.parametrize("seed", SEEDS)
async def test_session_is_the_same_on_a_real_server(seed: int, runtime: Any) -> None:
    """What is drawn besides what is drawn of turns: messages of all kinds, what takes them back,
    interruptions, additions, closes and cancels, idle ends, and new runs of the session.

    Not compared are the order of calls that run at once, the number of workflow tasks, times, and
    what people send in the moment in which something else happens.
    """
    root = new_root()
    ours = SessionScript(seed, root, START)
    theirs = SessionScript(seed, root, datetime.now(UTC))
    # the simulator has an event loop of its own
    simulated_play = await asyncio.to_thread(simulated, ours)
    worker, provider = worker_of(theirs)
    async with runtime(worker) as client:
        real_play = await played(theirs, provider, client.temporal, client.task_queue)

    differ = differences(simulated_play, real_play)
    assert not differ, differ
    assert ours.billed == theirs.billed
