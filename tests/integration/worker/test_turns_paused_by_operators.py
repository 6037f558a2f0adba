"""A turn that an operator paused in Temporal itself: Temporal's client (1.35) cannot parse that
status, and it ends every long poll at once.
"""

import asyncio

import pytest

from perdure import AgentReport, Outcome, errors
from perdure.clients import AgentClient, Turn
from perdure.session.facts import SessionClosed, SessionFact
from perdure.testing import ByTask, ScriptedModel, calls, says
from perdure.testing.scripted import call
from perdure.turn.facts import Scheduled

from ...support.listing import eventually_listed, listed
from ...support.pausing import operator, pausable
from ...support.spending import SOON_S, Held, app, ended, queue, until

__all__ = ["pausable"]


@pytest.mark.slow
async def test_turn_that_an_operator_paused_is_listed(pausable: str) -> None:
    """Temporal's own client fails on the whole page."""
    client = AgentClient.from_temporal(
        (await AgentClient.connect(pausable)).temporal, task_queue="nobody"
    )
    await client.start("listed", "1", id="runs")
    await client.start("listed", "2", id="rests")
    await operator(pausable, "pause", "rests")
    await eventually_listed(client, ["rests"], agent="listed", state="paused")

    assert await listed(client, agent="listed", state="running") == ["runs"]
    assert await listed(client, agent="listed") == ["rests", "runs"]


@pytest.mark.slow
async def test_turn_that_an_operator_paused_is_found_followed_and_cancelled(
    pausable: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its followers wait, get a note with the reason, and receive the end when it continues."""
    models = {"go": Held(calls(call("look")), says("done")), "stop": Held(says("never"))}
    later = await AgentClient.connect(pausable)
    async with queue(pausable) as work, work.worker(app(), ByTask(models)):
        turns = [await work.client.start("spender", task) for task in models]
        await asyncio.gather(*(until(turn, Scheduled) for turn in turns))
        await asyncio.gather(*(operator(pausable, "pause", turn.id) for turn in turns))
        going, stopping = [later.turn(turn.id) for turn in turns]
        ends = [asyncio.create_task(ended(turn)) for turn in (going, stopping)]
        models["go"].let_go.set()
        heard = await stopping.cancel("enough")
        await asyncio.wait(ends, timeout=1)
        waited = [not end.done() for end in ends]
        await asyncio.gather(*(operator(pausable, "unpause", turn.id) for turn in turns))
        done, stopped = await asyncio.gather(*ends)

    assert isinstance(done, AgentReport)
    assert isinstance(stopped, errors.TurnCancelledError)
    assert (done.outcome, done.output, stopped.report and stopped.report.outcome) == (
        Outcome.COMPLETED,
        "done",
        Outcome.CANCELLED,
    )
    assert (heard, waited, {told(caplog, turn) for turn in turns}) == (True, [True, True], {1})


@pytest.mark.slow
async def test_events_of_a_session_that_an_operator_paused_go_on(pausable: str) -> None:
    """Its followers wait, and receive the end when it continues."""
    async with queue(pausable) as work, work.worker(app(), ScriptedModel(says("hi"))):
        session = work.client.session("rests-as-well", "spender")
        await (await session.say("hello")).result()

        async def followed() -> list[SessionFact]:
            return [event.fact async for event in session.events()]

        following = asyncio.create_task(followed())
        await operator(pausable, "pause", session.id)
        await asyncio.wait({following}, timeout=1)
        has_waited = not following.done()
        sessions = work.client.sessions
        async with asyncio.timeout(SOON_S):
            while not (  # noqa: ASYNC110 - the list lags behind
                found := [one async for one in sessions(id_prefix=session.id)]
            ):
                await asyncio.sleep(0.1)
        await operator(pausable, "unpause", session.id)
        await session.close()
        facts = await following

    assert has_waited
    assert isinstance(facts[-1], SessionClosed)
    assert [(one.id, one.state, one.ended_at) for one in found] == [(session.id, "open", None)]


def told(caplog: pytest.LogCaptureFixture, turn: Turn) -> int:
    """How often a follower was notified that a turn is paused."""
    return sum(
        record.getMessage().startswith(f"turn {turn.id} is paused in Temporal")
        for record in caplog.records
    )
