"""Images and files in messages to a session and to a running turn."""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.converter import DataConverter, ExternalStorage
from temporalio.worker import Replayer

from perdure import (
    Agent,
    InputGuardrail,
    Media,
    ModelProfile,
    Task,
    Text,
    UserMessage,
    errors,
    limits,
)
from perdure.clients import AgentClient
from perdure.events import Said, TurnStarted
from perdure.session.facts import MessageSent
from perdure.temporal.histories.runs import describe, runs_up_to
from perdure.testing import ScriptedModel, fails, says
from perdure.testing.runtime import local_runtime
from perdure.worker import AgentWorker
from perdure.workflows.session.agent_session import AgentSession
from perdure.workflows.single_input import OneInput

from ...conftest import Runtime
from ...support.conversing import Paced, session_of, until_idle
from ...support.session_runs import short_runs
from ...support.spending import app
from ...support.storage import Folder

PNG = Media(media_type="image/png", data=base64.b64encode(b"pixels" * 500).decode())
PDF = Media(media_type="application/pdf", url="https://example.com/terms.pdf")
ASKED = (Text(text="What is it?"), PNG)
BRIEF = "What is it? [image/png, 3 KB]"


def picture(bytes_: int, media_type: str = "image/png") -> Media:
    """An image of this size, which is not the same twice."""
    data = base64.b64encode(secrets.token_bytes(bytes_)).decode()
    return Media(media_type=media_type, data=data)


def users(messages: Any) -> list[tuple[Any, ...]]:
    """The parts of the user's messages."""
    return [one.parts for one in messages if isinstance(one, UserMessage)]


@pytest.mark.slow
@pytest.mark.accepts("E180")
async def test_message_with_an_image_is_read_as_it_was_sent(runtime: Runtime) -> None:
    """By the turn that it begins and by those after it; readers name it by its kind and size."""
    model = ScriptedModel(says("a cat"), says("the same"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        sent = await session.say(ASKED, id="m-1")
        assert (await sent.result()).output == "a cat"
        report = await (await session.say("Sure?")).result()
        messages = await session.messages()
        first = await client.turn(f"{session.id}/1").result()
        events = []
        async for event in session.events():
            events.append(event.fact)
            if isinstance(event.fact, MessageSent):
                break

    assert users(model.requests[0].messages) == [ASKED]
    assert users(model.requests[1].messages) == [ASKED, (Text(text="Sure?"),)]
    assert users(report.messages) == users(model.requests[1].messages)
    assert users(messages)[0] == ASKED == users(first.messages)[0]
    assert events[-1] == MessageSent("m-1", BRIEF, parts=ASKED)


@pytest.mark.slow
@pytest.mark.accepts("E180", "E181")
async def test_images_wait_and_are_steered_and_read_once(runtime: Runtime) -> None:
    """A status names them by kind and size; a message of the same id is the same message."""
    model = Paced(says("one"), says("two"), says("three"))
    second, third = (picture(300),), (Text(text="And these terms?"), PDF, PNG)
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say("first", id="m-1")
        await model.begun.acquire()
        await session.say(second, id="m-2")
        again = await session.say("other words", id="m-2")
        waits = (await session.status()).queue
        steered = await session.say(third, id="m-3", if_busy="steer")
        model.let_go(3)
        await first.result()
        turn = await session.turn_of("m-2")
        await turn.result()
        events = [event async for event in client.turn(first.turn_id).events()]

    assert again.disposition == "queued"
    assert [(one.text, one.parts) for one in waits] == [("[image/png, 300 bytes]", ())]
    assert steered.disposition == "steered"
    assert users(model.requests[1].messages) == [(Text(text="first"),), third]
    assert users(model.requests[2].messages) == [(Text(text="first"),), third, second]
    [said] = [event.fact for event in events if isinstance(event.fact, Said)]
    assert said.parts == third
    assert said.text == f"And these terms? [application/pdf, {PDF.url}] [image/png, 3 KB]"
    assert PNG.data is not None
    assert PNG.data not in json.dumps([event.to_json() for event in events])


@pytest.mark.slow
@pytest.mark.accepts("E180", "E54")
async def test_images_of_an_interrupted_turn_stay_in_order(runtime: Runtime) -> None:
    """Those that it had not read are given to the next turn, with those that have come since. The
    JSON of its events has no data.
    """
    model = Paced(says("never"), says("done"))
    steered, queued, last = (picture(100),), (Text(text="second"), picture(200)), (picture(300),)
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say(ASKED)
        await model.begun.acquire()
        await session.say(steered, if_busy="steer")
        await session.say(queued)
        final = await session.say(last, if_busy="interrupt")
        with pytest.raises(errors.TurnCancelledError) as cancelled:
            await first.result()
        model.let_go(2)
        await final.result()
        turns = await session.turns()
        began = await anext(client.turn(final.turn_id).events())

    assert cancelled.value.report is not None
    assert users(cancelled.value.report.unread) == [steered]
    assert users(model.requests[1].messages) == [ASKED, steered, queued, last]
    assert [len(turn.messages) for turn in turns] == [2, 3]
    assert isinstance(began.fact, TurnStarted)
    assert users(began.fact.request.said) == [queued, last]
    told = json.dumps(began.to_json())
    assert [image.data for image in (queued[1], last[0]) if str(image.data) in told] == []


@pytest.mark.slow
@pytest.mark.accepts("E180", "E47", "E58")
async def test_images_are_in_forks_and_in_resumed_turns(runtime: Runtime) -> None:
    model = Paced(says("one"), says("never"), says("forked"), says("resumed"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        model.let_go()
        await (await session.say(ASKED)).result()
        await model.begun.acquire()
        second = await session.say("second")
        await model.begun.acquire()
        await session.say((picture(100),), if_busy="steer", id="m-3")
        await session.cancel("enough")
        with pytest.raises(errors.TurnCancelledError):
            await second.result()
        model.let_go(3)
        fork = await session.fork(1, id=f"{session.id}-fork")
        await (await fork.say("again")).result()
        resumed = await client.turn(second.turn_id).resume()
        await resumed.result()

    assert users(model.requests[2].messages) == [ASKED, (Text(text="again"),)]
    [first, second_, third] = users(model.requests[3].messages)
    assert (first, second_) == (ASKED, (Text(text="second"),))
    assert third == users(model.requests[3].messages)[-1]
    assert third[0].media_type == "image/png"


# Models that do not take them


def seers(*agents: Agent, **models: ScriptedModel) -> AgentWorker:
    """A worker whose models of the vendor `blind` take text alone."""
    return AgentWorker(*agents, providers=models, profiles={"blind:*": ModelProfile(media={})})


@pytest.mark.slow
@pytest.mark.accepts("E182", "M33")
async def test_model_without_vision_gets_sentences_for_images_that_came_later(
    runtime: Runtime,
) -> None:
    """Of a message to the running turn, and of earlier turns of a session; the turn goes on."""
    model = Paced(says("one"), says("two"), says("three"))
    async with runtime(seers(Agent(name="spender", model="blind:m"), blind=model)) as client:
        session = session_of(client)
        first = await session.say("first")
        await model.begun.acquire()
        await session.say(ASKED, if_busy="steer")
        model.let_go(3)
        await first.result()
        refused = await session.say(ASKED)
        with pytest.raises(errors.LLMInvalidRequestError, match="takes no image/png"):
            await refused.result()
        report = await (await session.say("Still there?")).result()

    sentence = Text(text="[image/png, 3 KB: this model takes no image/png]")
    seen = (Text(text="What is it?"), sentence)
    assert users(model.requests[1].messages) == [(Text(text="first"),), seen]
    assert users(model.requests[2].messages)[1:] == [seen, seen, (Text(text="Still there?"),)]
    assert users(report.messages)[1:3] == [ASKED, ASKED]


@pytest.mark.accepts("E182")
async def test_next_model_reads_the_image_that_a_turn_begins_with(runtime: Runtime) -> None:
    """As for the task of any turn."""
    blind, seeing = ScriptedModel(says("never")), ScriptedModel(says("a cat"))
    agent = Agent(name="spender", model=["blind:m", "seeing:m"])
    async with runtime(seers(agent, blind=blind, seeing=seeing)) as client:
        report = await (await session_of(client).say(ASKED)).result()

    assert report.output == "a cat"
    assert blind.call_count == 0


@pytest.mark.slow
@pytest.mark.accepts("E182", "M34")
async def test_broken_image_does_not_end_every_later_turn(runtime: Runtime) -> None:
    """The provider rejects it once; the next turn is asked without it."""
    rejected = errors.LLMInvalidRequestError("m: could not process image (status 400)")
    model = ScriptedModel(fails(rejected), fails(rejected), says("I cannot see it."))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        with pytest.raises(errors.LLMInvalidRequestError):
            await (await session.say(ASKED)).result()
        report = await (await session.say("And now?")).result()

    assert report.output == "I cannot see it."
    assert users(model.requests[2].messages) == [
        (
            Text(text="What is it?"),
            Text(text="[image/png, 3 KB: the provider of this model rejected the request with it]"),
        ),
        (Text(text="And now?"),),
    ]


@pytest.mark.accepts("E180", "U21")
async def test_input_guardrail_sees_text_and_images_of_messages(runtime: Runtime) -> None:
    """Of the first message, of one that waited, and of one that is steered."""
    seen: list[Any] = []

    def is_good(task: Task) -> bool:
        seen.append(task.content)
        return len(seen) < 3

    model = Paced(says("one"), says("two"))
    queued, steered = (picture(100),), (Text(text="third"), picture(200))
    guarded = app(middleware=[InputGuardrail(is_good)])
    async with runtime(guarded, model=model) as client:
        session = session_of(client)
        first = await session.say(ASKED)
        await model.begun.acquire()
        await session.say(queued, id="m-2")
        await session.say(steered, id="m-3", if_busy="steer")
        model.let_go(2)
        await first.result()
        with pytest.raises(errors.GuardrailError):
            await (await session.turn_of("m-2")).result()

    assert seen == [ASKED, steered, queued]
    assert model.call_count == 2


# What is refused


@pytest.mark.slow
@pytest.mark.accepts("E181")
async def test_content_that_no_model_could_read_is_refused(runtime: Runtime) -> None:
    """Before anything is recorded, and by the session and the turn themselves as well."""
    bad: dict[str, Any] = {
        "content must be a message, not empty": [],
        "content must be a message": [Text(text=" ")],
        "part 2 has neither data nor a url": [Text(text="a"), Media(media_type="image/png")],
        "part 1 has data that is not base64": [Media(media_type="image/png", data="%")],
        "a list of Text and Media, not": ["text"],
    }
    model = Paced(says("one"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        for reason, content in bad.items():
            with pytest.raises(errors.InvalidRequestError, match=reason):
                await session.say(content)
        await session.say("first")
        await model.begun.acquire()
        turn = client.turn(f"{session.id}/1")
        for reason, content in bad.items():
            with pytest.raises(errors.InvalidRequestError, match=reason):
                await turn.steer(content)
        wrong = {"text": "", "parts": [{"type": "media", "media_type": "a"}]}
        for handle, update in ((session.id, "say"), (turn.id, "steer")):
            with pytest.raises(WorkflowUpdateFailedError):
                await client.temporal.get_workflow_handle(handle).execute_update(update, wrong)
        assert (await session.status()).queue == ()
        model.let_go()
        await turn.result()


@pytest.mark.slow
@pytest.mark.accepts("E181")
async def test_images_that_are_too_large_together_are_refused(runtime: Runtime) -> None:
    """At once; a session takes them again when a turn has read those before."""
    most = limits.UNREAD_MEDIA_BYTES * 3 // 4 - 2_000
    model = Paced(says("one"), says("two"), says("three"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say((picture(most),))
        await model.begun.acquire()
        turn = client.turn(first.turn_id)
        await session.say((picture(most // 2),), id="m-2")
        with pytest.raises(errors.SessionBusyError, match="1 messages wait"):
            await session.say((picture(most // 2 + 4_000),))
        with pytest.raises(errors.TooLargeError, match=r"as addresses .* an external storage"):
            await session.say((picture(most + 4_000),))
        await turn.steer((picture(most // 2),))
        with pytest.raises(errors.TooLargeError, match="unread messages to the turn with images"):
            await turn.steer((picture(most // 2 + 4_000),))
        await turn.steer("text is not counted with them")
        with pytest.raises(errors.TooLargeError, match="more than the 1500000 that fit"):
            await turn.steer((picture(1_200_000),))
        model.let_go(3)
        await (await session.turn_of("m-2")).result()

    assert [len(users(one.messages)) for one in model.requests] == [1, 3, 4]


@pytest.mark.slow
@pytest.mark.accepts("E181", "M31")
async def test_large_image_of_a_message_goes_through_external_storage(
    perdure_server: str, tmp_path: Path
) -> None:
    """In a session and in a running turn; the histories have references, and replay."""
    converter = dataclasses.replace(
        DataConverter.default, external_storage=ExternalStorage(drivers=[Folder(tmp_path)])
    )
    temporal = await Client.connect(perdure_server, data_converter=converter)
    model = Paced(says("one"), says("two"), says("three"))
    worker = dataclasses.replace(
        app(), providers={"scripted": model}, task_queue=f"test-{secrets.token_hex(6)}"
    )
    large = [(picture(3_000_000),) for _ in range(3)]
    client = AgentClient.from_temporal(temporal, task_queue=worker.task_queue)
    async with worker.running(temporal):
        session = client.session(f"chat-{secrets.token_hex(4)}", "spender")
        first = await session.say(large[0])
        await model.begun.acquire()
        await session.say(large[1], id="m-2")
        await session.say(large[2], if_busy="steer")
        model.let_go(3)
        await first.result()
        await (await session.turn_of("m-2")).result()
        await session.close()
        handle = temporal.get_workflow_handle(session.id)
        await handle.result()
    history = await handle.fetch_history()
    await Replayer(
        workflows=[AgentSession], interceptors=[OneInput()], data_converter=converter
    ).replay_workflow(history)

    assert users(model.requests[2].messages) == [large[0], large[2], large[1]]
    assert sum(event.ByteSize() for event in history.events) < 60_000


# Later runs


@pytest.mark.slow
@pytest.mark.accepts("E180", "E115", "Y51")
async def test_images_stay_in_later_runs_of_a_session() -> None:
    """Also those that wait. More than fits into the input of a run is read before it begins."""
    model = Paced(says("one"), says("two"), says("three"))
    large = picture(limits.UNREAD_MEDIA_BYTES * 3 // 4 - 2_000)
    async with (
        short_runs() as address,
        local_runtime(app(), model=model, address=address) as client,
    ):
        session = client.session(f"chat-{secrets.token_hex(4)}", "spender")
        await session.say(ASKED)
        await model.begun.acquire()
        await session.say((PNG,), id="m-2")
        model.let_go(2)
        await (await session.turn_of("m-2")).result()
        await session.say((large,), id="m-3")
        await model.begun.acquire()
        await model.begun.acquire()
        await session.interrupt()
        await session.resume()
        await until_idle(session)
        runs = await runs_up_to(client.temporal, await describe(client.temporal, session.id))
        messages = await session.messages()

    assert len(runs) > 1
    assert users(model.requests[2].messages) == [ASKED, (PNG,), (large,)]
    assert users(messages)[-1] == (large,)
