"""OpenAI's Responses API over the gateway, by OpenAI's own client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from starlette.requests import Request

from perdure import Agent, OutputGuardrail, errors, limits, tool
from perdure.clients import AgentClient
from perdure.clients.gateway import Caller
from perdure.clients.gateway.operations import operations_of
from perdure.clients.gateway.responses import operations
from perdure.events import Decided
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.values.messages import Media, Text, UserMessage
from perdure.values.reports import StopReason, Usage

from ...conftest import Runtime
from ...support.gateway.responses import by_name, events_of, failing, key, openai_of, resume
from ...support.gateway.served import as_, served, until_not
from ...support.long_turns import SHORT_TASK, begin, filling, reader, runs_of
from ...support.open_responses import event_in, response_in
from ...support.thorough import some


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


@tool
def look_up(order: int) -> str:
    """Find an order."""
    if order == 0:
        raise ValueError("no such order")
    return f"order {order} was sent"


DESK = Agent(name="desk", model="main", tools=[refund, look_up], instructions="Be kind.")
USED = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4)


def asks(*answers: str) -> ScriptedModel:
    """A model that wants to pay back, and then answers."""
    return ScriptedModel(
        calls(call("refund", euros=40), text="I pay.", usage=USED),
        *(says(answer) for answer in answers),
    )


@contextlib.asynccontextmanager
async def desk(
    runtime: Runtime, *agents: Agent[Any], **models: ScriptedModel
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient, AsyncOpenAI]]:
    """A client, a gateway and OpenAI's client, with models that are chosen by the task."""
    async with (
        runtime(agents or DESK, model=ByTask(models)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        yield client, http, ai


def checked(response: Response) -> Response:
    """The response, which is valid by OpenAI's types."""
    return Response.model_validate(json.loads(response.to_json()), strict=False)


def tried(events: list[dict[str, Any]]) -> list[int]:
    """The numbers after which the test resumes: all of them in thorough runs."""
    return [*some(range(len(events))), len(events) - 1]


def kinds(events: Iterable[dict[str, Any]]) -> list[str]:
    return [one["type"].removeprefix("response.") for one in events]


@pytest.mark.accepts("H20", "H21", "H111")
async def test_response_is_created_approved_and_read(runtime: Runtime) -> None:
    """A response that waits says so; a decision is an input, in the name of the caller. The same
    key is the same response.
    """
    async with desk(runtime, lost=asks("Done."), other=asks()) as (client, _, ai):
        background = await ai.responses.create(
            model="desk",
            input="lost",
            background=True,
            metadata={"region": "north"},
            extra_headers=key("r1-a"),
        )
        waits = await ai.responses.create(
            model="desk", input="lost", metadata={"region": "north"}, extra_headers=key("r1-a")
        )
        with pytest.raises(openai.ConflictError) as conflict:
            await ai.responses.create(model="desk", input="other", extra_headers=key("r1-a"))
        text, paid, request = checked(waits).output
        assert request.type == "mcp_approval_request"
        decision: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": request.id,
            "approve": True,
            "reason": "fine",
        }
        stale = f"{request.id.rpartition(':')[0]}:000000000000"
        denial: Any = {**decision, "approval_request_id": stale, "approve": False}
        with pytest.raises(openai.ConflictError) as not_shown:
            await ai.responses.create(model="desk", previous_response_id=waits.id, input=[denial])
        done = await ai.responses.create(
            model="desk", previous_response_id=waits.id, input=[decision]
        )
        with pytest.raises(openai.ConflictError) as decided:
            await ai.responses.create(model="desk", previous_response_id=waits.id, input=[decision])
        read = await ai.responses.retrieve(waits.id)
        turn = client.turn("@ai/r1-a")
        [fact] = [one.fact async for one in turn.events() if isinstance(one.fact, Decided)]

    assert background.id == waits.id == done.id == "@ai/r1-a"
    assert background.status in ("queued", "in_progress")
    assert (waits.status, waits.usage, text.type) == ("in_progress", None, "message")
    assert (waits.model, waits.metadata) == ("desk", {"region": "north"})
    assert (background.background, waits.background, done.background) == (True, False, False)
    assert paid.type == "mcp_call"
    assert (paid.name, json.loads(paid.arguments), paid.status) == (
        "refund",
        {"euros": 40},
        "in_progress",
    )
    assert (request.name, paid.approval_request_id) == ("refund", request.id)
    assert (conflict.value.code, decided.value.code) == ("TURN_CONFLICT", "APPROVAL_CONFLICT")
    assert not_shown.value.code == "APPROVAL_CONFLICT"
    assert checked(done) == checked(read).model_copy(update={"background": False})
    assert (done.status, done.output_text, done.error) == ("completed", "I pay.Done.", None)
    paid = done.output[1]
    assert paid.type == "mcp_call"
    assert (paid.status, paid.output) == ("completed", "paid 40 euros")
    assert [one.phase for one in done.output if one.type == "message"] == [
        "commentary",
        "final_answer",
    ]
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.total_tokens) == (
        10,
        5,
        15,
    )
    assert done.usage.input_tokens_details.cached_tokens == 4
    assert (fact.decision.by, fact.decision.reason) == ("anna@example.com", "fine")


@pytest.mark.slow
@pytest.mark.accepts("H22")
async def test_stream_goes_on_after_every_number_in_another_process(runtime: Runtime) -> None:
    """The same events with the same numbers, whoever follows, and when."""
    model = ScriptedModel(
        calls(call("look_up", order=7), call("look_up", order=0), text="I look."),
        calls(call("refund", euros=40)),
        says("Sent."),
    )
    async with desk(runtime, lost=model) as (client, _, ai):
        stream = await ai.responses.create(
            model="desk", input="lost", stream=True, background=True, extra_headers=key("r2-a")
        )
        live: list[dict[str, Any]] = []
        async for one in stream:
            live.append(json.loads(one.to_json()))
            if one.type == "response.output_item.done" and one.item.type == "mcp_approval_request":
                decision: Any = {
                    "type": "mcp_approval_response",
                    "approval_request_id": one.item.id,
                    "approve": False,
                }
                await ai.responses.create(
                    model="desk",
                    background=True,
                    previous_response_id="r2-a",
                    input=[decision],
                )
        other = AgentClient.from_temporal(client.temporal)
        async with served(other, by_name) as elsewhere, openai_of(elsewhere) as theirs:
            resumed = await asyncio.gather(
                *(
                    resume(theirs, "@ai/r2-a", live[place]["sequence_number"])
                    for place in tried(live)
                )
            )
            async with theirs.responses.stream(response_id="@ai/r2-a") as official:
                whole = [one.type async for one in official]
                final = await official.get_final_response()
            read = await theirs.responses.retrieve("@ai/r2-a")

    numbers = [one["sequence_number"] for one in live]
    assert numbers == sorted(set(numbers))
    assert resumed == [live[place + 1 :] for place in tried(live)]
    message = [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]
    begins = ["output_item.added", "mcp_call_arguments.done", "mcp_call.in_progress"]
    assert kinds(live) == [
        *("created", "in_progress", *message, *begins, *begins),
        *("mcp_call.completed", "output_item.done", "mcp_call.failed", "output_item.done"),
        *(*begins, "output_item.added", "output_item.done"),
        *("mcp_call.failed", "output_item.done", *message, "completed"),
    ]
    assert whole == [one["type"] for one in live]
    assert live[-1]["response"] == json.loads(read.to_json())
    assert [one.type for one in final.output] == [one.type for one in read.output]
    assert final.output_text == read.output_text == "I look.Sent."
    failed = read.output[2]
    assert failed.type == "mcp_call"
    assert failed.error is not None
    assert "no such order" in str(failed.error)


@pytest.mark.accepts("H23")
@pytest.mark.slow
async def test_response_goes_on_after_another_and_in_a_conversation(runtime: Runtime) -> None:
    """A fork knows the messages before it, and so does the next message of a conversation."""
    model = ScriptedModel(
        says("Hello."), says("Again."), says("One."), says("Two."), says("Yes."), says("Bye.")
    )
    async with desk(runtime, Hi=model, More=model, Yes=model) as (client, _, ai):
        first = await ai.responses.create(model="desk", input="Hi", extra_headers=key("r3-a"))
        second = await ai.responses.create(
            model="desk", input="More", previous_response_id=first.id, extra_headers=key("r3-b")
        )
        again = await ai.responses.create(
            model="desk", input="More", previous_response_id=first.id, extra_headers=key("r3-b")
        )
        address = "https://example.org/cat.png"
        seen: Any = [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "More"},
                    {"type": "input_image", "image_url": address},
                ],
            }
        ]
        talk = [
            await ai.responses.create(model="desk", input=given, conversation="r3-talk")
            for given in ("Hi", seen)
        ]
        said = [
            await ai.responses.create(
                model="desk", input="Yes", conversation="r3-talk", extra_headers=key("m-3")
            )
            for _ in range(2)
        ]
        given: Any = [
            {"role": "user", "content": "Hi"},
            *(one.to_dict() for one in first.output),
            {"role": "user", "content": [{"type": "input_text", "text": "Yes"}]},
        ]
        stateless = await ai.responses.create(model="desk", input=given, extra_headers=key("r3-c"))
        messages = await client.session("@ai/r3-talk").messages()
        await client.session("@ai/r3-talk").close()
        report = await client.turn("@ai/r3-b").result()

    assert (first.output_text, second.output_text) == ("Hello.", "Again.")
    assert (second.id, second.previous_response_id) == ("@ai/r3-b", "@ai/r3-a")
    assert again == second
    assert [one.text for one in report.messages if one.role != "tool"] == [
        "Hi",
        "Hello.",
        "More",
        "Again.",
    ]
    assert [one.output_text for one in talk] == ["One.", "Two."]
    assert [one.id for one in talk] == ["@ai/r3-talk/1", "@ai/r3-talk/2"]
    assert [one.conversation and one.conversation.id for one in talk] == ["@ai/r3-talk"] * 2
    assert [one.text for one in messages if one.role != "tool"] == [
        *("Hi", "One.", "More", "Two.", "Yes", "Yes."),
    ]
    assert messages[2] == UserMessage(
        parts=(Text(text="More"), Media(media_type="image/png", url=address))
    )
    assert said[0] == said[1]
    assert stateless.output_text == "Bye."
    assert [one.role for one in model.requests[-1].messages] == ["user", "assistant", "user"]


@pytest.mark.accepts("H23", "H24")
@pytest.mark.slow
async def test_message_to_a_busy_conversation_is_queued_and_a_response_cancelled(
    runtime: Runtime,
) -> None:
    """The response of a message that waits is queued until its turn begins. A response that is
    cancelled says so, to its stream as well; one that is over is returned as it is.
    """
    async with desk(runtime, lost=asks("Here.")) as (_, http, ai):
        first = await ai.responses.create(model="desk", input="lost", conversation="r4-talk")
        early = await ai.responses.create(
            model="desk", input="More", conversation="r4-talk", background=True
        )
        queued = await ai.responses.retrieve(early.id)
        with pytest.raises(openai.BadRequestError) as open_:
            await ai.responses.create(model="desk", input="More", previous_response_id=first.id)
        stream = await ai.responses.retrieve(first.id, stream=True)
        cancelled = await ai.responses.cancel(first.id)
        events = await events_of(stream)
        again = await ai.responses.cancel(first.id)
        await http.post("/v1/sessions/r4-talk/resume")

        async def status() -> int:
            found = await ai.responses.retrieve(early.id)
            return int(found.status == "completed")

        await until_not(0, status)
        late = await ai.responses.retrieve(early.id)
        await http.post("/v1/sessions/r4-talk/close")

    assert (early.id, early.status, queued.status) == ("@ai/r4-talk/2", "queued", "queued")
    assert checked(queued).conversation == early.conversation
    assert open_.value.param == "previous_response_id"
    assert (cancelled.status, cancelled.error) == ("cancelled", None)
    assert checked(again) == cancelled
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"] == json.loads(cancelled.to_json())
    assert [one.type for one in cancelled.output] == [
        "message",
        "mcp_call",
        "mcp_approval_request",
    ]
    assert late.output_text == "Here."


@pytest.mark.accepts("H25")
@pytest.mark.slow
async def test_response_says_how_its_turn_ended(runtime: Runtime) -> None:
    """An answer of a type is alone in the text; what a guardrail has refused is in none; a limit
    and a failure are told apart; options reach the model.
    """
    typed = Agent(name="typed", model="main", output=int)
    guarded = Agent(
        name="guarded", model="main", middleware=[OutputGuardrail(lambda _: "not that")]
    )
    models = {
        "number": ScriptedModel(says("seven"), says('{"value": 7}')),
        "secret": ScriptedModel(says("The secret.")),
        "long": ScriptedModel(says("Half", stop=StopReason.MAX_TOKENS)),
        "calls": asks(),
        "more": ScriptedModel(*(calls(call("look_up", order=n)) for n in (1, 2))),
        "picture": ScriptedModel(says("A cat.")),
    }
    async with desk(runtime, DESK, typed, guarded, **models) as (client, _, ai):
        picture: Any = [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "picture"},
                    {"type": "input_image", "image_url": "https://example.org/cat.png?x=1"},
                    {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERg=="},
                ],
            }
        ]
        number, secret, long, spent, more, cat, unknown = await asyncio.gather(
            ai.responses.create(model="typed", input="number"),
            ai.responses.create(model="guarded", input="secret"),
            ai.responses.create(model="desk", input="long", max_output_tokens=50, temperature=0.5),
            ai.responses.create(model="desk", input="calls", background=True),
            ai.responses.create(model="desk", input="more", max_tool_calls=1),
            ai.responses.create(model="desk", input=picture, tool_choice="none"),
            ai.responses.create(model="nobody", input="x"),
        )
        turn = client.turn(spent.id)
        await turn.wait(60)
        await client.temporal.get_workflow_handle(turn.id).terminate("enough")
        ended = await ai.responses.retrieve(spent.id)
        everything = [
            str(await resume(ai, one.id, -1)) for one in (number, secret, long, ended, cat)
        ]

    for one in (number, secret, long, ended, more, cat, unknown):
        checked(one)
    assert (number.status, number.output_text) == ("completed", '{"value": 7}')
    assert (secret.status, secret.output) == ("failed", [])
    assert secret.error is not None
    assert secret.error.message.startswith("GUARDRAIL: ")
    assert "The secret." not in everything[1]
    assert (long.status, long.output_text) == ("incomplete", "Half")
    assert long.incomplete_details is not None
    assert long.incomplete_details.reason == "max_output_tokens"
    assert (long.temperature, long.max_output_tokens) == (0.5, 50)
    assert models["long"].requests[0].options.max_output_tokens == 50
    assert models["long"].requests[0].options.temperature == 0.5
    assert ended.error is not None
    assert (ended.status, ended.error.message[:17]) == ("failed", "TURN_TERMINATED: ")
    assert ended.output[1].type == "mcp_call"
    assert ended.output[1].status == "incomplete"
    assert more.error is not None
    assert (more.status, more.error.message[:22]) == ("failed", "TURN_BUDGET_EXCEEDED: ")
    asked = models["picture"].requests[0]
    [message] = asked.messages
    assert isinstance(message, UserMessage)
    assert [(one.media_type, one.url) for one in message.parts if isinstance(one, Media)] == [
        ("image/png", "https://example.org/cat.png?x=1"),
        ("application/pdf", None),
    ]
    assert (asked.options.tool_choice, cat.tool_choice) == ("none", "none")
    assert unknown.error is not None
    assert unknown.error.message.startswith("UNKNOWN_AGENT: ")


IMAGE = [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]
DECISION = {"type": "mcp_approval_response", "approval_request_id": "mcpr_a:b", "approve": True}
REFUSED: dict[str, tuple[dict[str, Any], str | None]] = {
    "an unknown parameter": ({"moderation": {"model": "x"}}, "moderation"),
    "instructions that are no text": ({"instructions": ["Be rude."]}, "instructions"),
    "tools": ({"tools": [{"type": "web_search"}]}, "tools"),
    "a type without a schema": ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    "any JSON": ({"text": {"format": {"type": "json_object"}}}, "text.format.type"),
    "more than all words": ({"top_p": 1.5}, "top_p"),
    "one call at a time": ({"parallel_tool_calls": False}, "parallel_tool_calls"),
    "a tool that must be called": ({"tool_choice": "required"}, "tool_choice"),
    "a hot model": ({"temperature": 11}, "temperature"),
    "no tokens": ({"max_output_tokens": 0}, "max_output_tokens"),
    "a model that is a number": ({"model": 7}, "model"),
    "no model": ({"model": None}, "model"),
    "an empty input": ({"input": ""}, None),
    "no items": ({"input": []}, "input"),
    "an answer": ({"input": [{"role": "assistant", "content": "Yes."}]}, "input"),
    "a system prompt alone": ({"input": [{"role": "system", "content": "Obey."}]}, "input"),
    "an image of the system": (
        {"input": [{"role": "system", "content": 7}, {"role": "user", "content": "x"}]},
        "input[0]",
    ),
    "a result": (
        {"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]},
        "input[0]",
    ),
    "content of a strange kind": ({"input": [{"role": "user", "content": 7}]}, "input[0]"),
    "a file id": ({"input": IMAGE}, "input[0].content[0]"),
    "two places": ({"previous_response_id": "a", "conversation": "b"}, "conversation"),
    "a decision about nothing": ({"input": [DECISION]}, "previous_response_id"),
    "a decision and a message": (
        {"input": [DECISION, {"role": "user", "content": "x"}], "previous_response_id": "a"},
        "input",
    ),
    "a strange decision": (
        {"input": [{**DECISION, "approval_request_id": "x"}], "previous_response_id": "a"},
        "input[0]",
    ),
    "a limit in a conversation": (
        {"conversation": "r6-talk", "max_tool_calls": 9},
        "max_tool_calls",
    ),
    "images after another": (
        {
            "previous_response_id": "a",
            "input": [
                {
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": "https://example.org/a.png"}],
                }
            ],
        },
        "input",
    ),
    "metadata that is no text": ({"metadata": {"a": 1}}, "metadata.a"),
}


async def code_of(asked: Awaitable[object]) -> tuple[type[openai.APIStatusError], object]:
    """The class and the code of the error of OpenAI's client."""
    error = await failing(asked)
    return type(error), error.code


PATH = "/openai/v1/responses"


async def stream_of(http: httpx.AsyncClient, **given: Any) -> list[dict[str, Any]]:
    """The events of the stream of a request, read without OpenAI's client; all are valid."""
    response = await http.post(PATH, json={"model": "desk", "stream": True, **given})
    lines = response.text.splitlines()
    return [event_in(line[6:]) for line in lines if line.startswith("data: ")]


@pytest.mark.accepts("H140", "H141")
async def test_responses_and_events_are_valid_for_strict_clients(runtime: Runtime) -> None:
    """By the published schema, as they are on the wire, whatever the response is in; and what a
    request has said of itself is in its answer.
    """
    models = {
        "later": asks(),
        "lost": asks("Done."),
        "Hi": asks("Hello."),
        "bad": ScriptedModel(*[fails(errors.LLMAuthError("no key"))] * 2),
    }
    async with desk(runtime, **models) as (_, http, _):

        async def post(**given: Any) -> dict[str, Any]:
            return response_in((await http.post(PATH, json={"model": "desk", **given})).text)

        async def get(response: str) -> dict[str, Any]:
            return response_in((await http.get(f"{PATH}/{response}")).text)

        at_once = await post(input="later", background=True, temperature=0.5, max_tool_calls=3)
        waits = await post(input="lost", metadata={"a": "b"}, parallel_tool_calls=True)
        decision = {**DECISION, "approval_request_id": waits["output"][-1]["id"]}
        told = await stream_of(http, previous_response_id=waits["id"], input=[decision])
        done = await get(waits["id"])
        failed = await stream_of(http, input="bad")
        gone = await post(input="bad")
        talk = await post(input="Hi", conversation="r9-talk")
        queued = await post(input="more", conversation="r9-talk", background=True)
        read = await get(queued["id"])
        cancelled = response_in((await http.post(f"{PATH}/{talk['id']}/cancel")).text)
        await http.post(f"{PATH}/{at_once['id']}/cancel")
        await http.post("/v1/sessions/r9-talk/close")

    assert (at_once["background"], at_once["temperature"], at_once["max_tool_calls"]) == (
        True,
        0.5,
        3,
    )
    assert (waits["background"], waits["temperature"], waits["max_tool_calls"]) == (False, 1, None)
    assert (waits["status"], waits["parallel_tool_calls"]) == ("in_progress", True)
    assert told[-1]["response"] == {**done, "background": False}
    assert done["completed_at"] >= done["created_at"]
    assert [one["type"] for one in failed][-1] == "response.failed"
    assert gone["error"]["message"].startswith("LLM_AUTH: ")
    assert [one["status"] for one in (talk, queued, read, cancelled)] == [
        "in_progress",
        "queued",
        "queued",
        "cancelled",
    ]
    assert {one["conversation"]["id"] for one in (talk, queued, read)} == {"@ai/r9-talk"}


@pytest.mark.accepts("H142")
async def test_what_is_not_supported_is_said_in_the_words_of_the_api(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """With an id in every answer, which is in the log if the server failed."""
    async with desk(runtime, Hi=ScriptedModel(says("Hello."))) as (client, http, ai):
        first = await ai.responses.with_raw_response.create(model="desk", input="Hi")
        unknown = {
            "files": await failing(ai.get("/files", cast_to=Response)),
            "another path": await failing(ai.get("/nothing/at/all", cast_to=Response)),
            "another method": await failing(ai.put("/models", cast_to=Response)),
        }
        async with AsyncOpenAI(base_url=f"{http.base_url}/openai", api_key="anna") as above:
            unknown["above"] = await failing(above.responses.create(model="desk", input="Hi"))
        compact = await http.post(f"{PATH}/compact", json={"model": "desk"})
        async with served(client, unable) as broken:
            error = await broken.get(f"{PATH}/x")

    assert {name: (one.status_code, one.code) for name, one in unknown.items()} == {
        "files": (404, "NOT_SUPPORTED"),
        "another path": (404, "NOT_SUPPORTED"),
        "another method": (405, "NOT_SUPPORTED"),
        "above": (404, "NOT_SUPPORTED"),
    }
    assert compact.status_code == 405
    assert "GET" in unknown["another method"].response.headers["allow"]
    assert "GET /openai/v1/nothing/at/all is not supported" in str(unknown["another path"])
    assert "file_data" in str(unknown["files"])
    assert "below /openai/v1" in str(unknown["above"])
    assert {one.type for one in unknown.values()} == {"invalid_request_error"}
    assert set(compact.json()["error"]) == {"message", "type", "param", "code"}
    ids = [first.request_id, *(one.request_id for one in unknown.values())]
    assert all(one is not None and one.startswith("req_") for one in ids)
    assert len(set(ids)) == len(ids)
    assert (error.status_code, error.json()["error"]["code"]) == (500, "INTERNAL")
    assert error.headers["x-request-id"] in caplog.text
    assert not any(one in caplog.text for one in ids if one)


def unable(_: Request) -> Caller | None:
    """An authentication that fails."""
    raise RuntimeError("no database")


@pytest.mark.slow
@pytest.mark.accepts("H26")
async def test_bad_requests_raise_the_right_class_and_start_nothing(runtime: Runtime) -> None:
    """With the parameter and the code; parameters that change nothing are accepted."""
    async with desk(runtime, Help=ScriptedModel(says("Yes."))) as (client, http, ai):
        found: dict[str, openai.BadRequestError] = {}
        for name, (given, _) in REFUSED.items():
            body = {"model": "desk", "input": "Help", **given}
            with pytest.raises(openai.BadRequestError) as refused:
                await ai.post(
                    "/responses", body=body, cast_to=Response, options={"headers": key("r6-bad")}
                )
            found[name] = refused.value
        others = {
            "an unknown response": await code_of(ai.responses.retrieve("r6-x")),
            "an unknown stream": await code_of(ai.responses.retrieve("r6-x", stream=True)),
            "an unknown cancel": await code_of(ai.responses.cancel("r6-x")),
            "an unknown response before": await code_of(
                ai.responses.create(model="desk", input="x", previous_response_id="r6-x")
            ),
            "a number without a stream": await code_of(
                ai.get("/responses/r6-x?starting_after=1", cast_to=Response)
            ),
        }
        raw = await http.post(
            "/openai/v1/responses", content=b"{", headers={"Content-Type": "application/json"}
        )
        harmless: Any = {
            "user": "u",
            "service_tier": "auto",
            "truncation": "auto",
            "top_p": 1,
            "tools": [],
            "store": True,
            "include": ["reasoning.encrypted_content"],
            "instructions": None,
            "text": {"format": {"type": "text"}},
        }
        good = await ai.responses.create(
            model="desk", input="Help", extra_headers=key("r6-good"), **harmless
        )
        started = [one.id async for one in client.turns(id_prefix="@ai/r6-bad")]
        talks = [one.id async for one in client.sessions(id_prefix="@ai/r6")]

    assert {name: one.param for name, one in found.items()} == {
        name: param for name, (_, param) in REFUSED.items()
    }
    assert {one.code for one in found.values()} == {"INVALID_REQUEST"}
    assert {one.type for one in found.values()} == {"invalid_request_error"}
    assert others == {
        "a number without a stream": (openai.BadRequestError, "INVALID_REQUEST"),
        **dict.fromkeys(
            (
                "an unknown response",
                "an unknown stream",
                "an unknown cancel",
                "an unknown response before",
            ),
            (openai.NotFoundError, "TURN_NOT_FOUND"),
        ),
    }
    assert (raw.status_code, raw.json()["error"]["code"]) == (400, "INVALID_JSON")
    assert good.output_text == "Yes."
    assert (started, talks) == ([], [])


@pytest.mark.accepts("H27")
async def test_tenants_permissions_and_limits_hold(runtime: Runtime) -> None:
    """Another tenant finds nothing, and a caller may do what it may do over REST."""
    async with desk(runtime, lost=asks()) as (client, http, ai):
        first = await ai.responses.create(model="desk", input="lost", extra_headers=key("r7-a"))
        request = first.output[-1].id
        decision: Any = [{**DECISION, "approval_request_id": request}]
        before = (await client.turn(first.id).status()).model_dump(exclude={"spent"})

        def reads(of: AsyncOpenAI) -> list[Awaitable[object]]:
            return [
                of.responses.retrieve(first.id),
                of.responses.retrieve(first.id, stream=True),
            ]

        def acts(of: AsyncOpenAI) -> list[Awaitable[object]]:
            return [
                of.responses.cancel(first.id),
                *(
                    of.responses.create(model="desk", input=given, previous_response_id=first.id)
                    for given in ("x", decision)
                ),
            ]

        async with (
            openai_of(http, "otto") as otto,
            openai_of(http, "rita") as rita,
            openai_of(http, "nora") as nora,
        ):
            others = [await code_of(one) for one in (*reads(otto), *acts(otto))]
            readers = [await code_of(one) for one in acts(rita)]
            readers.append(await code_of(rita.responses.create(model="desk", input="x")))
            readers += [
                await code_of(nora.responses.cancel(first.id)),
                await code_of(
                    nora.responses.create(
                        model="desk", input=decision, previous_response_id=first.id
                    )
                ),
                await code_of(nora.responses.create(model="desk", input="x", max_tool_calls=1)),
            ]
            seen = await rita.responses.retrieve(first.id)
        async with openai_of(http, "nobody") as nobody:
            unknown = [await code_of(one) for one in (*reads(nobody), *acts(nobody))]
        may_not = await http.post("/openai/v1/responses", json={}, headers=as_("rita"))
        after = (await client.turn(first.id).status()).model_dump(exclude={"spent"})
        async with (
            served(client, by_name, max_streams_of_caller=0) as full,
            openai_of(full) as late,
        ):
            once = late.with_options(max_retries=0)
            busy = [
                await code_of(once.responses.create(model="desk", input="lost")),
                await code_of(once.responses.retrieve(first.id, stream=True)),
            ]
        await ai.responses.cancel(first.id)

    assert set(others) == {(openai.NotFoundError, "TURN_NOT_FOUND")}
    assert set(readers) == {(openai.PermissionDeniedError, "FORBIDDEN")}
    assert set(unknown) == {(openai.AuthenticationError, "UNAUTHENTICATED")}
    assert set(busy) == {(openai.RateLimitError, "TOO_MANY_REQUESTS")}
    assert (seen.id, may_not.status_code) == (first.id, 400)
    assert after == before
    assert {one.refuse.__name__ for one in operations_of(operations)} == {"refusal"}


@pytest.mark.slow  # a request waits for a minute
@pytest.mark.accepts("H28")
async def test_request_ends_after_a_minute_and_the_turn_goes_on(runtime: Runtime) -> None:
    """With a response that is not over, which is no error, so that no client repeats it."""
    async with desk(runtime, Help=ScriptedModel(says("Yes.")), lost=asks()) as (client, _, ai):
        turn = await client.start("desk", "Help", id="@ai/r8-a", delay=limits.OUTAGE)
        await ai.responses.create(model="desk", input="lost", conversation="r8-talk")
        waited, busy = await asyncio.gather(
            ai.responses.create(model="desk", input="Help", extra_headers=key("r8-a")),
            code_of(
                ai.responses.create(model="desk", input="Help", conversation="r8-talk", stream=True)
            ),
        )
        status = await turn.status()
        await turn.cancel()
        await client.session("@ai/r8-talk").close()
        await ai.responses.cancel("r8-talk/1")

    assert (waited.id, waited.status) == ("@ai/r8-a", "queued")
    assert busy == (openai.ConflictError, "CONVERSATION_BUSY")
    assert status.state == "waiting"


@pytest.mark.slow
@pytest.mark.accepts("H22")
async def test_numbers_go_on_in_later_runs_of_a_turn(runtime: Runtime) -> None:
    """The events of a turn that has gone on in new runs are those of one response."""
    model = ScriptedModel(*filling(3, usage=USED), says("Done."))
    async with runtime(reader(), model=model) as client:
        turn = await begin(client, timeout=SHORT_TASK)
        await turn.result()
        runs = await runs_of(client, turn)
        async with served(client) as http, openai_of(http, "root") as ai:
            events = await resume(ai, turn.id, -1)
            later = await resume(ai, turn.id, events[len(events) // 2]["sequence_number"])
            read = await ai.responses.retrieve(turn.id)

    assert len(runs) > 1
    numbers = [one["sequence_number"] for one in events]
    assert numbers == sorted(set(numbers))
    assert later == events[len(events) // 2 + 1 :]
    assert kinds(events).count("created") == kinds(events).count("in_progress") == 1
    assert {one.status for one in read.output if one.type == "mcp_call"} == {"completed"}
    assert read.output_text == "Done."
    assert read.usage is not None
    assert read.usage.total_tokens == 45
