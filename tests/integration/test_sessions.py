"""Sessions: conversations of many turns."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Budget, Outcome, errors, limits
from perdure.activities.provider import ModelRequest
from perdure.clients import Session
from perdure.session.facts import MessageSent, TurnBegan, TurnRecorded
from perdure.session.state import fold
from perdure.temporal.session_history import session_facts
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Message, UserMessage

from ..conftest import RecordingClient, Runtime
from .spending import Held, app, look, usage


def texts(messages: Sequence[Message]) -> list[str]:
    """What the user and the model have said."""
    return [
        message.text
        for message in messages
        if isinstance(message, UserMessage | AssistantMessage) and message.text
    ]


def session_of(client: RecordingClient, **given: Any) -> Session:
    return client.session(f"chat-{secrets.token_hex(4)}", "spender", **given)


@pytest.mark.accepts("E7", "E51")
async def test_each_turn_begins_with_the_messages_of_those_before(runtime: Runtime) -> None:
    """Tool calls and results included; readers see the same messages as the models."""
    model = ScriptedModel(
        calls(call("look"), text="I look."), says("found"), says("as before"), says("bye")
    )
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say("Find it.", id="m-1")
        report = await first.result()
        second = await session.say("And now?")
        await second.result()
        third = await session.say("Thanks.")
        await third.result()
        again = await session.say("Find it.", id="m-1")
        known = await until_recorded(session, 3)
        turns = await session.turns()

    assert [one.disposition for one in (first, second, third)] == ["started"] * 3
    assert [one.turn_id for one in (first, second, third)] == [
        f"{session.id}/{number}" for number in (1, 2, 3)
    ]
    assert (report.output, again.turn_id) == ("found", first.turn_id)
    assert texts(model.requests[3].messages) == [
        *("Find it.", "I look.", "found", "And now?", "as before", "Thanks.")
    ]
    assert [type(one).__name__ for one in model.requests[2].messages] == [
        *("UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage", "UserMessage")
    ]
    assert known == (*model.requests[3].messages, AssistantMessage.model_validate(known[-1]))
    assert [turn.outcome for turn in turns] == [Outcome.COMPLETED] * 3


async def until_recorded(session: Session, turns: int) -> tuple[Message, ...]:
    """The messages of a session after so many turns."""
    count = 0
    async for event in session.events():
        if isinstance(event.fact, TurnRecorded) and event.fact.part and event.fact.part.end:
            count += 1
        if count == turns:
            break
    return await session.messages()
