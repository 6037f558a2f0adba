"""Logins at MCP servers in trees of agents: each agent asks for the subject of the first turn."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent
from perdure.clients import AgentClient, Turn
from perdure.testing import ByTask, ScriptedModel, call, calls

from ...support.data_subjects import home
from ...support.delegating import delegate, spawn
from ...support.logins import DONE, LOG_IN, LUNCH, Office, office, until
from ...support.spending import look

__all__ = ["home", "office"]


def boss(**fields: Any) -> Agent:
    """The agent that turns are started with."""
    return Agent(**{"name": "secretary", "model": "scripted:secretary", **fields})


def clerk(**fields: Any) -> Agent:
    """An agent that works for it."""
    given = {"name": "clerk", "model": "scripted:clerk", "description": "Knows the calendar."}
    return Agent(**{**given, **fields})


def hand_over(to: str) -> Any:
    """An answer that hands the turn over."""
    return calls(call("hand_over", agent=to, message="Go on."))


async def asking(client: AgentClient, number: int = 1) -> list[Turn[Any]]:
    """The turns of the clerk that wait for a login, once there are so many."""
    found: list[Turn[Any]] = []

    async def wait() -> bool:
        asked = [entry.id async for entry, one in client.pending_approvals("clerk") if one.question]
        found[:] = [client.turn(id) for id in asked]
        return len(found) == number

    await until(wait)
    return found


@pytest.mark.accepts("G134")
async def test_delegate_asks_the_subject_of_the_turn_above(office: Office) -> None:
    agents = boss(delegates=["clerk"]), clerk(toolboxes=[office.server()])
    client = await office.client()
    script = delegate("clerk", "note it"), LOG_IN, LUNCH, DONE, DONE
    async with office.worker(*script, agents=agents).running(client.temporal):
        turn = await office.start(client)
        [below] = await asking(client)
        await office.log_in(client, below)
        report = await turn.result()

    assert report.output == "noted"
    assert office.calendar.events == {"anna": ["Lunch"]}


@pytest.mark.slow
@pytest.mark.accepts("G134")
async def test_delegate_inherits_the_tools_that_a_login_has_brought(office: Office) -> None:
    agents = boss(delegates=["clerk"], toolboxes=[office.server()]), clerk()
    client = await office.client()
    script = LOG_IN, delegate("clerk", "note it"), LUNCH, DONE, DONE
    async with office.worker(*script, agents=agents).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)
        await turn.result()

    assert office.calendar.events == {"anna": ["Lunch"]}


@pytest.mark.slow
@pytest.mark.accepts("G134")
async def test_one_login_answers_delegates_that_were_started_at_once(office: Office) -> None:
    agents = boss(delegates=["clerk"]), clerk(toolboxes=[office.server()])
    client = await office.client()
    models = {
        "Note it.": ScriptedModel(spawn(("clerk", "one"), ("clerk", "two")), DONE),
        "one": ScriptedModel(LOG_IN, LUNCH, DONE),
        "two": ScriptedModel(LOG_IN, LUNCH, DONE),
    }
    async with office.worker(agents=agents, model=ByTask(models)).running(client.temporal):
        turn = await office.start(client)
        below = await asking(client, 2)
        await office.log_in(client, below[0])
        await turn.result()

    assert office.calendar.events == {"anna": ["Lunch", "Lunch"]}


@pytest.mark.slow
@pytest.mark.accepts("G134")
async def test_agent_that_a_turn_is_handed_to_asks_and_hands_back(office: Office) -> None:
    """The first agent has no calendar; the other has its tools at once when it is back."""
    agents = (
        boss(handoffs=["clerk"], tools=[look]),
        clerk(toolboxes=[office.server()], handoffs=["secretary"]),
    )
    client = await office.client()
    script = (
        *(hand_over("clerk"), LOG_IN, LUNCH, hand_over("secretary")),
        *(calls(call("look")), hand_over("clerk"), LUNCH, DONE),
    )
    async with office.worker(*script, agents=agents).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)
        report = await turn.result()

    assert report.output == "noted"
    assert office.calendar.events == {"anna": ["Lunch", "Lunch"]}
