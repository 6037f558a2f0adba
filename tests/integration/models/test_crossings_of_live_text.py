"""Live text of turns that go on from others, change hands, or are started by something else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Agent, OutputGuardrail, errors
from perdure.clients import TextBegins, TextVoid, Turn, TurnText
from perdure.session.facts import TurnOver
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.delegating import delegate
from ...support.scheduling import DAILY, new_id
from ...support.speaking import Speaker

PARTS = ("one ", "two ", "three")
CLERK = Agent(name="clerk", model="clerk:m")


def speaker_is_at(speaker: Speaker, said: list[Any]) -> None:
    """Give the next part when the one before it was heard."""
    for gate in speaker.gates[: len([piece for piece in said if isinstance(piece, str)])]:
        gate.set()


async def heard_of(turn: Turn[Any], speaker: Speaker) -> list[Any]:
    """The text of a turn, each part of which is given when the one before it was heard."""
    said = list[Any]()
    async with asyncio.timeout(60):
        async for piece in turn.text():
            said.append(piece)
            speaker_is_at(speaker, said)
    return said


@pytest.mark.accepts("E195")
async def test_text_of_a_fork_is_its_own_and_comes_as_it_is_generated(runtime: Runtime) -> None:
    """A fork of a live turn is live. The steps that it has taken over are not said again."""
    speaker = Speaker(*PARTS)
    async with runtime(CLERK, model=speaker) as client:
        speaker.go_on()
        turn = await client.start(CLERK, "go", live=True)
        await turn.result()
        for gate in speaker.gates:
            gate.clear()
        fork = await turn.fork(say="Again.")
        said = await heard_of(fork, speaker)

    assert said == [TextBegins(1), *PARTS]


@pytest.mark.slow
@pytest.mark.accepts("E195")
async def test_text_of_a_resumed_turn_is_its_own(runtime: Runtime) -> None:
    """The text of the turn that was cancelled in the middle is void."""
    speaker = Speaker(*PARTS)
    async with runtime(CLERK, model=speaker) as client, asyncio.timeout(60):
        turn = await client.start(CLERK, "go", live=True)
        before = list[Any]()
        async for piece in turn.text():
            before.append(piece)
            if piece == "one ":
                await turn.cancel()
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
        resumed = await turn.resume()
        said = await heard_of(resumed, speaker)

    assert before == [TextBegins(1), "one ", TextVoid(1)]
    assert said == [TextBegins(1), *PARTS]


@pytest.mark.slow
@pytest.mark.accepts("E195")
async def test_text_after_a_handoff_comes_as_it_is_generated(runtime: Runtime) -> None:
    host = Agent(name="host", model="host:m", handoffs=["clerk"])
    speaker = Speaker(*PARTS)
    script = ScriptedModel(calls(call("hand_over", agent="clerk", message="go on")))
    app = AgentWorker([host, CLERK], providers={"host": script, "clerk": speaker})
    async with runtime(app) as client:
        turn = await client.start("host", "go", live=True)
        said = await heard_of(turn, speaker)

    assert said == [TextBegins(2), *PARTS]


@pytest.mark.slow
@pytest.mark.accepts("E194", "E195")
async def test_delegate_that_hands_over_is_held_to_its_checks(runtime: Runtime) -> None:
    """They are those of the agent that it was started with."""
    checked = OutputGuardrail(lambda _: False)
    boss = Agent(name="boss", model="boss:m", delegates=["host"])
    host = Agent(name="host", model="host:m", handoffs=["clerk"], middleware=[checked])
    models = {
        "boss": ScriptedModel(delegate("host", "Say it."), says("The end.")),
        "host": ScriptedModel(calls(call("hand_over", agent="clerk", message="x"), text="I ask.")),
        "clerk": ScriptedModel(says("a canary")),
    }
    async with runtime(AgentWorker([boss, host, CLERK], providers=models)) as client:
        turn = await client.start("boss", "go", live=True)
        said = [piece async for piece in turn.text(delegates=True)]

    below = [piece.piece for piece in said if isinstance(piece, TurnText)]
    assert below == [TextBegins(1), "I ask."]


@pytest.mark.slow
@pytest.mark.accepts("E195")
async def test_turns_of_a_batch_say_their_text_when_it_is_recorded(runtime: Runtime) -> None:
    """Each its own, also that of a delegate."""
    boss = Agent(name="boss", model="boss:m", delegates=["clerk"])
    models = {
        "boss": ScriptedModel(delegate("clerk", "Say it."), says("The end.")),
        "clerk": ScriptedModel(says("one two three")),
    }
    async with runtime(AgentWorker([boss, CLERK], providers=models)) as client:
        batch = await client.start_batch(new_id("live-batch"), "boss", ["go"])
        [result] = [each async for each in batch.results()]
        assert result.turn_id is not None
        turn = client.turn(result.turn_id)
        said = [piece async for piece in turn.text(delegates=True)]

    pieces = [piece.piece if isinstance(piece, TurnText) else piece for piece in said]
    assert pieces == [TextBegins(1), "one two three", TextBegins(2), "The end."]


@pytest.mark.slow
@pytest.mark.accepts("E195")
async def test_message_of_a_schedule_has_live_text_in_a_live_session(runtime: Runtime) -> None:
    """Of a turn that a schedule starts by itself, the text comes when it is recorded."""
    speaker = Speaker(*PARTS)
    async with runtime(CLERK, model=speaker) as client, asyncio.timeout(60):
        session = client.session(new_id("live-talk"), "clerk", live=True)
        speaker.go_on()
        await (await (await session.say("hello")).turn()).result()
        for gate in speaker.gates:
            gate.clear()
        daily = await client.create_schedule(
            new_id("live-daily"), "clerk", "Go.", **DAILY, session=session.id
        )
        await daily.run_now()
        said = list[Any]()
        async for item in session.live():
            if isinstance(item, TurnText) and item.turn_id.endswith("/2"):
                said.append(item.piece)
                speaker_is_at(speaker, said)
            elif not isinstance(item, TurnText) and isinstance(item.fact, TurnOver) and said:
                break
        await session.close()
        alone = await client.create_schedule(new_id("alone"), "clerk", "Go.", **DAILY)
        turn = client.turn(await alone.run_now())
        whole = [piece async for piece in turn.text()]

    assert said == [TextBegins(1), *PARTS]
    assert whole == [TextBegins(1), "".join(PARTS)]
