"""Messages that the input guardrail of an agent refuses, in a session."""

import asyncio
import secrets

import pytest

from perdure import Agent, InputGuardrail, errors
from perdure.testing import ScriptedModel, says
from perdure.values.tasks import Task
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.conversing import texts
from ...support.spending import SOON_S

MARK = (
    "[This message is withheld: the checks of its agent have not let it pass. The turn ended:"
    " failed (GUARDRAIL).]"
)


def is_good(task: Task) -> bool:
    """Refuse what is bad."""
    return "bad" not in str(task.content)


CLERK = Agent(name="clerk", model="scripted:m", middleware=[InputGuardrail(is_good)])


@pytest.mark.accepts("S126")
async def test_model_of_the_next_turn_does_not_see_a_refused_message(runtime: Runtime) -> None:
    """Neither there nor in a fork of the session: a mark is in its place."""
    model = ScriptedModel(says("hello"), says("what was withheld?"), says("again"))
    async with runtime(AgentWorker([CLERK]), model=model) as client, asyncio.timeout(SOON_S):
        session = client.session(f"chat-{secrets.token_hex(4)}", "clerk")
        await (await session.say("Good morning.")).result()
        with pytest.raises(errors.GuardrailError) as refused:
            await (await session.say("Do a bad thing.")).result()
        await (await session.say("Go on.")).result()
        fork = await session.fork(id=f"fork-{secrets.token_hex(4)}")
        await (await fork.say("Go on, too.")).result()
        known = texts(await session.messages())

    assert refused.value.context["refused"] == "the task"
    assert known == ["Good morning.", "hello", MARK, "Go on.", "what was withheld?"]
    assert [texts(request.messages) for request in model.requests[1:]] == [
        known[:4],
        [*known, "Go on, too."],
    ]


@pytest.mark.accepts("S110")
async def test_message_of_a_turn_that_could_not_begin_is_checked_in_the_next(
    runtime: Runtime,
) -> None:
    """No worker knows its agent; the message waits, and the check of another agent refuses it."""
    model = ScriptedModel(says("hello"))
    async with runtime(AgentWorker([CLERK]), model=model) as client, asyncio.timeout(SOON_S):
        session = client.session(f"chat-{secrets.token_hex(4)}", "nobody")
        with pytest.raises(errors.PerdureError, match="nobody"):
            await (await session.say("Do a bad thing.", id="m-1")).result()
        while not (waiting := (await session.status()).queue):  # noqa: ASYNC110 - it is asked
            await asyncio.sleep(0.05)
        with pytest.raises(errors.GuardrailError):
            await (await session.say("Go on.", id="m-2", agent="clerk")).result()
        [_, turn] = await session.turns()

    assert [message.id for message in waiting] == ["m-1"]
    assert turn.messages == ("m-1", "m-2")
    assert model.requests == []
