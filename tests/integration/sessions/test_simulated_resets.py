"""The same resets in the simulator and on a real server: what the runs that go on do and reach."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.testing.simulation.server.clock import START

from ...support.fidelity.comparing import differences
from ...support.fidelity.real import played, worker_of
from ...support.fidelity.script import Script, new_root
from ...support.fidelity.session_script import SessionScript
from ...support.fidelity.simulated import simulated

TURNS, SESSIONS = range(60), range(60)
FAST = 2
RESETS = 2
"""So many of the runs are reset: the turn or the session, a delegate, or a turn of the session."""


@pytest.mark.accepts("Y178")
@pytest.mark.table(FAST)
@pytest.mark.parametrize("seed", TURNS)
async def test_turns_that_are_reset_are_the_same_on_a_real_server(seed: int, runtime: Any) -> None:
    """Facts, commands, answers and bills of all runs, those that were reset included.

    Not compared are the digests of runs that have second ids, which are random.
    """
    root = new_root()
    ours, theirs = (Script(seed, root, resets=RESETS) for _ in range(2))
    await _compare(ours, theirs, runtime)


@pytest.mark.accepts("Y178")
@pytest.mark.table(FAST)
@pytest.mark.parametrize("seed", SESSIONS)
async def test_sessions_that_are_reset_are_the_same_on_a_real_server(
    seed: int, runtime: Any
) -> None:
    """Their turns as well, of which some go on although nobody waits for them any more."""
    root = new_root()
    ours = SessionScript(seed, root, START, resets=RESETS)
    theirs = SessionScript(seed, root, datetime.now(UTC), resets=RESETS)
    await _compare(ours, theirs, runtime)


async def _compare(ours: Script, theirs: Script, runtime: Any) -> None:
    # the simulator has an event loop of its own
    simulated_play = await asyncio.to_thread(simulated, ours)
    worker, provider = worker_of(theirs)
    async with runtime(worker) as client:
        real_play = await played(theirs, provider, client.temporal, client.task_queue)
    differ = differences(simulated_play, real_play)
    assert not differ, differ
    assert ours.billed == theirs.billed
