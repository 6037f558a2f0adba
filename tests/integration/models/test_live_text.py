"""Live text: a model's answer is shown while it is generated, adds nothing to history, and finally
equals the recorded answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from itertools import takewhile
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter

from perdure import Agent, AssistantMessage, Budget, Outcome, Price, Text, errors
from perdure.activities.provider import Heard, ModelRequest
from perdure.clients import AgentClient, Event, TextBegins, TextVoid, Turn
from perdure.clients.reading.live_text import Piece
from perdure.temporal.histories.runs import describe
from perdure.testing import ScriptedModel, call, calls, says, slowly
from perdure.testing.stub_provider import StubProvider, StubReply
from perdure.turn.facts import CallFailed, ModelAnswered
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker

from ...conftest import Runtime, eventually
from ...support.counting import counting
from ...support.loopback import VENDORS, Vendor
from ...support.speaking import ADDER, Speaker, speaking
from ...support.telemetry import Reversing, Traces, queue

PAUSE = timedelta(milliseconds=200)
"""Long enough that a text of ten words is heard in several pieces."""


async def everything(turn: Turn) -> list[Piece]:
    return [said async for said in turn.text()]


async def everything_live(turn: Turn) -> list[Any]:
    return [one async for one in turn.live()]


def answers(one: object) -> bool:
    """Whether this is the event of a model's answer."""
    return isinstance(one, Event) and isinstance(one.fact, ModelAnswered)


async def first_of(turn: Turn) -> Piece | None:
    async with contextlib.aclosing(turn.live()) as telling:
        async for one in telling:
            if isinstance(one, str | TextBegins | TextVoid):
                return one
    return None


def texts(said: Iterable[Piece]) -> dict[int, str]:
    """The text of each step as it was delivered, without void text."""
    out: dict[int, str] = {}
    step = 0
    for one in said:
        if isinstance(one, str):
            out[step] += one
        else:
            step = one.step
            out[step] = ""
    return {step: text for step, text in out.items() if text}


def kinds(history: WorkflowHistory) -> list[int]:
    return [event.event_type for event in history.events]


def two_steps(pause: timedelta = PAUSE) -> ScriptedModel:
    return ScriptedModel(
        slowly(
            calls(call("add", a=1, b=2), text="Let me add these two numbers before I answer."),
            pause=pause,
        ),
        slowly("It is three, as everybody knows, and the answer ends here.", pause=pause),
    )


@pytest.mark.accepts("E2")
async def test_text_is_seen_before_the_answer_is_complete(runtime: Runtime) -> None:
    """The model continues only after its first text was seen; the complete answer starts with
    it.
    """
    async with speaking(runtime, "The first half, ", "and the second.") as (speaker, _, turn):
        said = []
        async with asyncio.timeout(60):
            async for one in turn.text():
                said.append(one)
                if one == "The first half, ":
                    assert not speaker.is_done
                    speaker.go_on()

    assert "".join(one for one in said if isinstance(one, str)) == "The first half, and the second."
    assert said[:2] == [TextBegins(1), "The first half, "]


@pytest.mark.accepts("E2")
@pytest.mark.slow
async def test_live_text_adds_no_event_to_history(runtime: Runtime) -> None:
    """The same turn, live with two watchers and not live: the same events in the same order."""
    histories = []
    for live, pause in ((True, PAUSE), (False, timedelta())):
        async with runtime(ADDER, model=two_steps(pause)) as client:
            turn = await client.start(ADDER, "go", live=live)
            await asyncio.gather(everything(turn), everything(turn))
            histories.append(kinds(await client.history(turn)))

    assert histories[0] == histories[1]


@pytest.mark.slow
async def test_text_of_each_step_is_told_whole_and_once(runtime: Runtime) -> None:
    """For watchers from the start, for late ones, in another process, and after the turn has
    ended. Those who watch the events as well see the text of a step before the event that records
    it.
    """
    async with runtime(ADDER, model=two_steps()) as client:
        turn = await client.start(ADDER, "go", live=True)
        other = AgentClient.from_temporal(client.temporal, task_queue=client.task_queue)
        both = asyncio.create_task(everything_live(turn))
        early = [asyncio.create_task(everything(turn)) for _ in range(3)]
        await first_of(turn)
        late = asyncio.create_task(everything(other.turn(turn.id)))
        told = await asyncio.gather(*early, late)
        report = await turn.result()
        after = await everything(turn)
        events = [event async for event in turn.events()]

    whole = {place: step.message.text for place, step in enumerate(report.steps, 1)}
    assert [texts(said) for said in (*told, after)] == [whole] * 5
    assert after == [TextBegins(1), whole[1], TextBegins(2), whole[2]]
    assert all(len(said) > len(after) for said in told)
    assert [one for one in await both if isinstance(one, Event)] == events
    before = list(takewhile(lambda one: not answers(one), await both))
    assert texts(one for one in before if isinstance(one, str | TextBegins | TextVoid)) == {
        1: whole[1]
    }


@pytest.mark.slow
async def test_many_listeners_look_as_often_as_one(runtime: Runtime) -> None:
    """Twenty in one process share each poll, and there is no poll when no text is generated."""
    async with speaking(runtime, "The first half, ", "and the second.") as (speaker, client, turn):
        temporal, service = counting(client.temporal)
        here = AgentClient.from_temporal(temporal, task_queue=client.task_queue)
        watched = here.turn(turn.id)
        await watched.first_run()  # asks once, and that is no look for text

        def looks() -> int:
            return service.calls["describe_workflow_execution"]

        earlier = looks()
        listening = [asyncio.create_task(everything(watched)) for _ in range(20)]
        await eventually(lambda: looks() > earlier, "the first look")
        before = looks()
        await asyncio.sleep(1)
        in_a_second = looks() - before
        await eventually(lambda: looks() > before, "another look")
        speaker.go_on()
        told = await asyncio.gather(*listening)

    assert {texts(said)[1] for said in told} == {"The first half, and the second."}
    assert in_a_second <= 1 / 0.25 + 1


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.slow
async def test_model_is_streamed_only_where_that_is_asked_for(runtime: Runtime, live: bool) -> None:
    """Otherwise the text of a step comes when it is recorded."""
    pause = timedelta(seconds=0.7 if live else 0)
    model = ScriptedModel(slowly("one two three", pause=pause))
    async with runtime(ADDER, model=model) as client:
        told = await everything(await client.start(ADDER, "go", live=live))

    assert (len(model.streamed), texts(told)) == (int(live), {1: "one two three"})
    assert (told == [TextBegins(1), "one two three"]) is not live


async def test_provider_that_cannot_stream_gives_the_text_at_the_end(runtime: Runtime) -> None:
    """A user's provider with two methods."""

    class Plain:
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            return ModelAnswer(message=AssistantMessage(parts=(Text(text="hi"),)))

        async def close(self) -> None: ...

    async with runtime(ADDER, model=Plain()) as client:
        assert await everything(await client.start(ADDER, "go", live=True)) == [TextBegins(1), "hi"]


async def test_words_of_a_protocol_are_not_told_live(runtime: Runtime) -> None:
    """They belong to the format of the protocol, not to the answer."""
    model = ScriptedModel(slowly("Thought: easy\nFinal Answer: three", pause=PAUSE))
    agent = Agent(name="adder", model="vendor:m", protocol="react_text")
    async with runtime(agent, model=model) as client:
        told = await everything(await client.start(agent, "go", live=True))

    assert (told, model.streamed) == ([TextBegins(1), "three"], [])


@pytest.mark.slow
async def test_long_text_is_told_to_its_end_when_it_is_recorded(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats carry only the end of it: the rest comes with the record, in order."""
    monkeypatch.setenv("PERDURE_LIVE_TEXT", "off")
    long = "".join(f"{number} äöü " for number in range(10_000))
    async with speaking(runtime, long, "and the end") as (speaker, _, turn):
        listening = asyncio.create_task(everything(turn))
        first = asyncio.create_task(first_of(turn))
        await asyncio.sleep(2)
        is_early = first.done()
        speaker.go_on()
        said = await listening

    assert (is_early, await first) == (False, TextBegins(1))
    assert said == [TextBegins(1), long + "and the end"]


@pytest.mark.slow
async def test_text_that_outgrows_what_is_carried_goes_on_for_those_who_kept_up(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part fits into a heartbeat, all of them together do not."""
    monkeypatch.setenv("PERDURE_LIVE_TEXT", "off")
    parts = [f"{number} " * 3_000 for number in range(4)]
    async with speaking(runtime, *parts) as (speaker, _, turn):
        heard, lengths = "", list[int]()
        async with asyncio.timeout(60):
            async for one in turn.text():
                heard += one if isinstance(one, str) else ""
                lengths.append(len(heard))
                place = next((place for place in range(1, 4) if heard == "".join(parts[:place])), 0)
                if place:
                    speaker.gates[place - 1].set()

    assert heard == "".join(parts)
    assert {len("".join(parts[:place])) for place in range(1, 5)} <= set(lengths)


# failures in between


class Breaks(StubProvider):
    """Interrupts the first answer; the next one is complete."""

    def reply(self, body: Mapping[str, Any]) -> StubReply:
        text = "The answer to your question is of course five, and has always been."
        first: StubReply = {"text": text[:-1] + ", I think", "pace_s": 0.5, "cut_after": 8}
        return {"text": text, "pace_s": 0.05} if self.requests else first


@pytest.mark.slow
@pytest.mark.accepts("M8", "E2")
@pytest.mark.parametrize("vendor", VENDORS)
async def test_stream_that_is_cut_in_a_turn_is_a_failure_that_is_tried_again(
    runtime: Runtime, vendor: Vendor
) -> None:
    """The text of the first attempt is void, the attempt is charged at its reservation, and the
    answer is that of the second one only.
    """
    price = Price(input=1, output=10)
    with Breaks([]) as stub:
        app = AgentWorker(
            ADDER,
            providers={"vendor": vendor.make(stub.anthropic_url, None)},
            prices={"vendor:*": price},
        )
        async with runtime(app) as client:
            turn = await client.start(ADDER, "go", live=True, budget=Budget(usd=1))
            told = [one async for one in turn.live()]
            report = await turn.result()

    said = [one for one in told if isinstance(one, str | TextBegins | TextVoid)]
    failed = [
        one.fact for one in told if isinstance(one, Event) and isinstance(one.fact, CallFailed)
    ]
    void = said.index(TextVoid(1))
    assert report.output == "The answer to your question is of course five, and has always been."
    assert "".join(one for one in said[:void] if isinstance(one, str)) in report.output
    assert len(said[:void]) > 1
    assert said[void + 1] == TextBegins(1, attempt=2)
    assert texts(said) == {1: report.output}
    assert [(fact.error.code, fact.error.context["charged"]) for fact in failed] == [
        ("LLM_UNAVAILABLE", True)
    ]
    assert report.cost is not None
    # the output limit of the interrupted attempt, instead of its short text
    assert report.cost > Decimal("0.08")


class Broken(Speaker):
    """A model whose stream breaks off at its end, each time."""

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        for gate in self.gates:
            gate.clear()
        await super().stream(request, heard)
        raise errors.LLMUnavailableError("cut")


@pytest.mark.slow
async def test_turn_that_fails_takes_back_what_was_heard(runtime: Runtime) -> None:
    """Both attempts were interrupted: no text counts."""
    broken = Broken("I think ", "it is")
    async with runtime(ADDER, model=broken) as client:
        turn = await client.start(ADDER, "go", live=True)
        told = []
        async for one in turn.text():
            told.append(one)
            if one == "I think ":
                broken.go_on()
        with pytest.raises(errors.LLMUnavailableError):
            await turn.result()

    assert texts(told) == {}
    assert [one for one in told if not isinstance(one, str)] == [
        *[TextBegins(1), TextVoid(1)],
        *[TextBegins(1, attempt=2), TextVoid(1, attempt=2)],
    ]


@pytest.mark.slow
async def test_turn_that_is_cancelled_while_its_model_speaks_takes_back_what_was_heard(
    runtime: Runtime,
) -> None:
    """The call has no answer, so the transcript has no text of it."""
    async with speaking(runtime, "The first half, ", "and the second.") as (_, _, turn):
        said = []
        async with asyncio.timeout(60):
            async for one in turn.text():
                said.append(one)
                if one == "The first half, ":
                    await turn.cancel("enough")
        with pytest.raises(errors.TurnCancelledError) as caught:
            await turn.result()

    assert said == [TextBegins(1), "The first half, ", TextVoid(1)]
    assert caught.value.report is not None
    assert caught.value.report.steps == ()


@pytest.mark.slow
async def test_heard_words_that_are_not_those_recorded_are_taken_back(runtime: Runtime) -> None:
    """A provider whose stream and answer differ: the answer counts."""
    parts = ["It is ", "six", "."]
    speaker = Speaker(*parts, answer="It is five.")
    async with runtime(ADDER, model=speaker) as client:
        told = []
        async for one in (await client.start(ADDER, "go", live=True)).text():
            told.append(one)
            if one in parts[:2]:
                speaker.gates[parts.index(str(one))].set()

    assert texts(told) == {1: "It is five."}
    assert TextVoid(1) in told


# order, options and telemetry


async def test_same_turn_is_attached_to_whether_live_or_not(runtime: Runtime) -> None:
    """Live text is no part of the task."""
    async with runtime(ADDER, model=ScriptedModel(says("hi"))) as client:
        first = await client.start(ADDER, "go", id="same-live")
        again = await client.start(ADDER, "go", id="same-live", live=True)
        told = await everything(again)

    assert (await again.first_run(), told) == (await first.first_run(), [TextBegins(1), "hi"])


async def test_text_of_a_turn_that_is_not_there_is_an_error(runtime: Runtime) -> None:
    """Like its events: after its retention, or on another server."""
    async with runtime(ADDER, model=ScriptedModel()) as client:
        gone = AgentClient.from_temporal(client.temporal, task_queue=client.task_queue)._turn(
            "not-there", ("",)
        )
        with pytest.raises(errors.TurnNotFoundError):
            await everything(gone)


@pytest.mark.slow
async def test_outcome_is_the_same_with_and_without(runtime: Runtime) -> None:
    """Output, steps, usage and spending."""
    reports = []
    for live in (True, False):
        async with runtime(ADDER, model=two_steps()) as client:
            reports.append(await client.run(ADDER, "go", id=f"outcome-{live}", live=live))

    one, other = (report.model_dump(exclude={"turn_id", "duration", "steps"}) for report in reports)
    assert one == other
    assert reports[0].outcome is Outcome.COMPLETED


async def test_live_text_goes_through_the_codec(
    perdure_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With encryption, heartbeats have no readable text; a client with the key gets all of it."""
    monkeypatch.setenv("PERDURE_LIVE_TEXT", "off")
    client = await Client.connect(
        perdure_server, data_converter=DataConverter(payload_codec=Reversing())
    )
    app = AgentWorker(
        ADDER,
        providers={"vendor": Speaker("The first half, ", "and the second.")},
        task_queue=queue(),
    )
    async with app.running(client):
        turn = await AgentClient.from_temporal(client, task_queue=app.task_queue).start(
            ADDER, "go", live=True
        )
        speaker = app.providers["vendor"]
        assert isinstance(speaker, Speaker)
        said, held = [], list[bytes]()
        async with asyncio.timeout(60):
            async for one in turn.text():
                said.append(one)
                if one == "The first half, ":
                    pending = (await describe(client, turn.id)).pending_activities
                    held = [
                        payload.data
                        for activity in pending
                        for payload in activity.heartbeat_details.payloads
                    ]
                    speaker.go_on()

    assert texts(said) == {1: "The first half, and the second."}
    assert len(held) == 1
    assert b"first half" not in held[0]
    assert b"first half" in held[0][::-1]


@pytest.mark.slow
async def test_live_call_has_the_same_span(runtime: Runtime) -> None:
    """Provider, charge and parent."""
    spans = []
    for live in (False, True):
        traces = Traces()
        async with runtime(
            traces.worker(Agent(name="adder", model="scripted:adder")), model=ScriptedModel("hi")
        ) as client:
            await client.run("adder", "go", id=f"traced-{live}", live=live)
        spans.append((traces.tree(), sorted(traces.named("chat adder").attributes or {})))

    assert spans[0] == spans[1]
    assert "gen_ai.request.model" in spans[0][1]
