"""Text of a response while it is generated, by OpenAI's own client."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from perdure import Agent, OutputGuardrail, errors
from perdure.clients import AgentClient
from perdure.testing import ByTask, ScriptedModel, fails, says, slowly

from ...conftest import Runtime
from ...support.gateway.responses import by_name, events_of, key, openai_of, resume
from ...support.gateway.served import served
from ...support.open_responses import event_in

PAUSE = timedelta(seconds=0.6)
COUNTED = "One two three four."
DELTA = "response.output_text.delta"
DESK = Agent(name="desk", model="main")
GUARDED = Agent(
    name="guarded",
    model="main",
    middleware=[OutputGuardrail(lambda report: "SECRET" not in str(report.output))],
)


def text_in(events: list[dict[str, Any]]) -> str:
    """The pieces of text in events."""
    return "".join(one["delta"] for one in events if one["type"] == DELTA)


async def stream_of(ai: AsyncOpenAI, text: str, **more: Any) -> list[dict[str, Any]]:
    """The events of a response about a text."""
    given: dict[str, Any] = {"model": "desk", "input": text, **more}
    return await events_of(await ai.responses.create(stream=True, **given))


@pytest.mark.accepts("H172")
async def test_text_has_the_same_numbers_in_pieces_and_as_a_whole(runtime: Runtime) -> None:
    """A client goes on after each piece, in another process, and has exactly the rest."""
    model = ScriptedModel(slowly(COUNTED, pause=PAUSE))
    async with (
        runtime(DESK, model=ByTask({"count": model})) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        live = await stream_of(ai, "count", extra_headers=key("h172-b"))
        other = AgentClient.from_temporal(client.temporal)
        async with served(other, by_name) as elsewhere, openai_of(elsewhere) as theirs:
            whole = await resume(theirs, "h172-b", -1)
            pieces = [one for one in live if one["type"] == DELTA]
            resumed = [await resume(theirs, "h172-b", piece["sequence_number"]) for piece in pieces]

    assert len(pieces) > 1
    assert text_in(live) == text_in(whole) == COUNTED
    assert [one for one in live if one["type"] != DELTA] == [
        {**one, "response": {**one["response"], "background": False}} if "response" in one else one
        for one in whole
        if one["type"] != DELTA
    ]
    assert [one["sequence_number"] for one in live] == sorted(
        {one["sequence_number"] for one in live}
    )
    told = ""
    for piece, rest in zip(pieces, resumed, strict=True):
        told += piece["delta"]
        assert told + text_in(rest) == COUNTED
        assert rest[-1] == whole[-1]


@pytest.mark.accepts("H173")
@pytest.mark.slow
async def test_text_that_does_not_count_ends_the_stream_with_an_error(runtime: Runtime) -> None:
    """After the number of the error, or of the last piece, there is another text as a whole."""
    model = ScriptedModel(
        slowly(fails(errors.LLMUnavailableError("gone")), pieces=["Never ", "mind"], pause=PAUSE),
        says("Said."),
    )
    again = ScriptedModel(
        slowly(fails(errors.LLMUnavailableError("gone")), pieces=["Not", "hing"], pause=PAUSE),
        says("Said."),
    )
    async with (
        runtime(DESK, model=ByTask({"fail": model, "fail again": again})) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        body = {"model": "desk", "input": "fail", "stream": True}
        answer = await http.post("/openai/v1/responses", json=body, headers=key("h173-a"))
        events = [
            event_in(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")
        ]
        report = await client.turn("@ai/h173-a").result()
        error, last = events[-1], events[-2]
        after_error = await resume(ai, "h173-a", error["sequence_number"])
        after_piece = await resume(ai, "h173-a", last["sequence_number"])
        with pytest.raises(openai.APIError) as raised:
            await stream_of(ai, "fail again")

    assert last["type"] == DELTA
    assert (error["type"], error["code"]) == ("error", "TEXT_VOID")
    assert error["sequence_number"] < events[-3]["sequence_number"]
    assert report.output == text_in(after_error) == text_in(after_piece) == "Said."
    assert after_error == after_piece
    assert after_error[0]["type"] == "response.output_item.added"
    assert raised.value.code == "TEXT_VOID"


@pytest.mark.accepts("H174")
async def test_answer_that_is_checked_is_not_told_before(runtime: Runtime) -> None:
    """Not in pieces, and not at all if it is refused; one that passes comes as a whole."""
    models = {
        "tell": ScriptedModel(slowly("The SECRET is out.", pause=PAUSE)),
        "greet": ScriptedModel(slowly("Good morning to you.", pause=PAUSE)),
    }
    async with (
        runtime(GUARDED, model=ByTask(models)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        refused, passed = await asyncio.gather(
            stream_of(ai, "tell", model="guarded"), stream_of(ai, "greet", model="guarded")
        )

    assert refused[-1]["type"] == "response.failed"
    assert "SECRET" not in str(refused)
    assert [one["delta"] for one in passed if one["type"] == DELTA] == ["Good morning to you."]


@pytest.mark.accepts("H24", "H172")
@pytest.mark.slow
async def test_stream_of_a_cancelled_response_ends_within_its_text(runtime: Runtime) -> None:
    """Its message is incomplete, and is not in the response."""
    model = ScriptedModel(slowly("One two three four five six seven eight.", pause=PAUSE))
    async with (
        runtime(DESK, model=ByTask({"count": model})) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        stream = await ai.responses.create(model="desk", input="count", stream=True)
        events = []
        async for event in stream:
            events.append(event)
            if event.type == DELTA and len([one for one in events if one.type == DELTA]) == 1:
                started = events[0]
                assert started.type == "response.created"
                await ai.responses.cancel(started.response.id)

    assert [one.type for one in events[-2:]] == [
        "response.output_item.done",
        "response.incomplete",
    ]
    done, ended = events[-2:]
    assert done.type == "response.output_item.done"
    assert done.item.type == "message"
    assert done.item.status == "incomplete"
    assert ended.type == "response.incomplete"
    assert (ended.response.status, ended.response.output) == ("cancelled", [])
