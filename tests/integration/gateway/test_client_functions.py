"""Functions that a client of OpenAI's API runs itself, with its own client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perdure import Agent, tool
from perdure.activities.provider import ModelRequest
from perdure.testing import FunctionModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.values.messages import ToolMessage, UserMessage

from ...conftest import Runtime
from ...support.gateway.responses import by_name, events_of, failing, openai_of, resume
from ...support.gateway.served import served

LOCATE: Any = {
    "type": "function",
    "name": "locate",
    "description": "Where the user is.",
    "parameters": {
        "type": "object",
        "properties": {"precise": {"type": "boolean"}},
        "required": ["precise"],
        "additionalProperties": False,
    },
    "strict": True,
}
CONFIRM: Any = {"type": "function", "name": "confirm"}
CHAT: Any = [
    {"type": "function", "function": {k: v for k, v in one.items() if k != "type"}}
    for one in (LOCATE, CONFIRM)
]


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


GUIDE = Agent(name="guide", model="main", tools=[look], takes_tools=True)
CLOSED = Agent(name="closed", model="main", tools=[look])
CHOICES: list[str | None] = []


def guides(request: ModelRequest) -> Reply:
    """A model that looks, asks the client for two things, and says what it got."""
    CHOICES.append(request.options.tool_choice)
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        if "plain" in last.text:
            return says(f"plain after {len(request.messages)}")
        return calls(
            call("look", at="map"),
            call("locate", precise=True),
            call("confirm"),
            text="I look.",
        )
    assert isinstance(last, ToolMessage)
    got = [result.content for result in last.results]
    if got[0] == "saw map":
        return calls(call("confirm"), text=f"Got {got[1]}.")
    return says(f"done: {got[0]}")


def functions(response: Any) -> list[Any]:
    """The calls for the client in a response."""
    return [item for item in response.output if item.type == "function_call"]


def output(item: Any, text: str) -> Any:
    """The output of a call."""
    return {"type": "function_call_output", "call_id": item.call_id, "output": text}


@pytest.mark.accepts("H181", "H182")
async def test_client_runs_functions_until_the_answer(runtime: Runtime) -> None:
    """Each response has what is new, its own tokens, and the id of the one before."""
    async with (
        runtime([GUIDE, CLOSED], model=FunctionModel(guides)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        create: Any = ai.responses.create
        first = await create(model="guide", input="go", tools=[LOCATE, CONFIRM])
        located, confirmed = functions(first)
        missing = await failing(
            create(model="guide", previous_response_id=first.id, input=[output(located, "Bern")])
        )
        spoken = await failing(create(model="guide", previous_response_id=first.id, input="plain"))
        unknown = await failing(
            create(
                model="guide",
                previous_response_id=first.id,
                input=[{"type": "function_call_output", "call_id": "call_x", "output": ""}],
            )
        )
        both: Any = [output(located, "Bern"), output(confirmed, "yes")]
        second = await create(model="guide", previous_response_id=first.id, input=both)
        again = await create(model="guide", previous_response_id=first.id, input=both)
        other = await failing(
            create(
                model="guide",
                previous_response_id=first.id,
                input=[output(located, "Basel"), output(confirmed, "yes")],
            )
        )
        [last] = functions(second)
        third = await create(
            model="guide",
            input=[
                {"role": "user", "content": "go"},
                *[item.model_dump(exclude_none=True) for item in second.output],
                {
                    "type": "function_call_output",
                    "call_id": last.call_id,
                    "output": [{"type": "input_text", "text": "sure"}],
                },
            ],
        )
        late = await create(model="guide", previous_response_id=first.id, input=both)
        read = [await ai.responses.retrieve(one.id) for one in (first, second, third)]
        gone = await failing(ai.responses.retrieve(f"{first.id}/continued/7"))
        items = [item async for item in ai.responses.input_items.list(second.id)]
        after = await create(model="guide", previous_response_id=third.id, input="plain")

    assert [item.type for item in first.output] == [
        "message",
        "mcp_call",
        "function_call",
        "function_call",
    ]
    assert first.status == "completed"
    assert (located.name, json.loads(located.arguments)) == ("locate", {"precise": True})
    assert {item.status for item in (located, confirmed)} == {"completed"}
    assert [one.name for one in first.tools] == ["locate", "confirm"]
    for error in (missing, spoken):
        assert error.status_code == 400
        assert "No tool output found for function call" in error.message
        assert confirmed.call_id in error.message
    assert located.call_id not in missing.message
    assert "No tool call found" in unknown.message
    assert (second.id, second.previous_response_id) == (f"{first.id}/continued/2", first.id)
    assert [item.type for item in second.output] == ["message", "function_call"]
    assert (again.id, again.output) == (second.id, second.output)
    assert (late.id, late.output) == (second.id, second.output)
    assert (other.status_code, other.code) == (409, "CALL_FINISHED")
    assert (third.status, third.output_text) == ("completed", "done: sure")
    assert third.id == f"{first.id}/continued/3"
    assert [one.output for one in read] == [first.output, second.output, third.output]
    assert read[0].usage == first.usage
    assert gone.status_code == 404
    assert [(item.type, item.output) for item in items[::-1]] == [  # type: ignore[union-attr]
        ("function_call_output", "Bern"),
        ("function_call_output", "yes"),
    ]
    assert after.output_text.startswith("plain after ")
    assert after.tools == []


@pytest.mark.accepts("H183")
async def test_stream_ends_with_calls_and_goes_on_with_their_outputs(runtime: Runtime) -> None:
    """Each response has numbers of its own, from any of which it can be taken up."""
    async with (
        runtime(GUIDE, model=FunctionModel(guides)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        stream = await ai.responses.create(
            model="guide", input="go", tools=[LOCATE, CONFIRM], stream=True
        )
        first = await events_of(stream)
        response = first[-1]["response"]
        both: Any = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "x"}
            for item in response["output"]
            if item["type"] == "function_call"
        ]
        stream = await ai.responses.create(
            model="guide", input=both, previous_response_id=response["id"], stream=True
        )
        second = await events_of(stream)
        middle = first[len(first) // 2]["sequence_number"]
        rest = await resume(ai, response["id"], middle)
        rest_of_second = await resume(ai, second[-1]["response"]["id"], -1)
        await client.turn(response["id"]).cancel()

    kinds = [one["type"] for one in first]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.function_call_arguments.done") == 2
    assert [one["type"] for one in second][:2] == ["response.created", "response.in_progress"]
    assert second[0]["sequence_number"] == 0
    assert second[-1]["type"] == "response.completed"
    assert [
        (one["type"], one["sequence_number"]) for one in first if one["sequence_number"] > middle
    ] == [(one["type"], one["sequence_number"]) for one in rest]
    assert [one["type"] for one in rest_of_second] == [one["type"] for one in second]


@pytest.mark.accepts("H184")
async def test_choices_and_tools_that_cannot_be_kept_are_refused(runtime: Runtime) -> None:
    """A demand for a tool holds for the first answer; other tools than functions are refused."""
    CHOICES.clear()
    async with (
        runtime([GUIDE, CLOSED], model=FunctionModel(guides)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        create: Any = ai.responses.create
        first = await create(
            model="guide",
            input="go",
            tools=[LOCATE, CONFIRM],
            tool_choice={"type": "function", "name": "locate"},
        )
        await create(
            model="guide",
            previous_response_id=first.id,
            input=[output(item, "x") for item in functions(first)],
        )
        free = {**LOCATE, "parameters": {"type": "object", "properties": {"x": {}}}}
        refused = [
            await failing(create(model="guide", input="go", **given))
            for given in (
                {"tools": [{"type": "web_search"}]},
                {"tools": [free]},
                {"tools": [{**CONFIRM, "name": "a b"}]},
                {"tools": [LOCATE, LOCATE]},
                {"tool_choice": "required"},
                {"tools": [LOCATE], "tool_choice": {"type": "function", "name": "other"}},
                {"tools": [LOCATE], "parallel_tool_calls": False},
                {"tools": [LOCATE], "tool_choice": "required", "conversation": "h184"},
            )
        ]
        closed = await create(model="closed", input="go", tools=[LOCATE])
        same = await create(model="guide", input="go", tools=[{**CONFIRM, "name": "look"}])
        await client.turn(first.id).cancel()

    assert CHOICES[:2] == ["locate", None]
    assert [(error.status_code, error.param) for error in refused] == [
        (400, "tools[0].type"),
        (400, "tools[0].parameters"),
        (400, "tools[0]"),
        (400, None),
        (400, "tool_choice"),
        (400, "tool_choice"),
        (400, "parallel_tool_calls"),
        (400, "tool_choice"),
    ]
    assert (closed.status, closed.error.code) == ("failed", "invalid_prompt")
    assert "takes_tools=True" in closed.error.message
    assert "has a tool named look" in same.error.message


@pytest.mark.accepts("H185")
async def test_chat_completion_calls_functions(runtime: Runtime) -> None:
    """The messages of tools go on with the turn of their calls; later they are history."""
    async with (
        runtime(GUIDE, model=FunctionModel(guides)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        messages: list[Any] = [{"role": "user", "content": "go"}]
        create: Any = ai.chat.completions.create
        first = await create(model="guide", messages=messages, tools=CHAT)
        [choice] = first.choices
        messages.append(choice.message.model_dump(exclude_none=True))
        asked = choice.message.tool_calls
        missing = await failing(
            create(
                model="guide",
                messages=[
                    *messages,
                    {"role": "tool", "tool_call_id": asked[0].id, "content": "Bern"},
                ],
            )
        )
        messages += [
            {"role": "tool", "tool_call_id": one.id, "content": one.function.name} for one in asked
        ]
        stream = await create(model="guide", messages=messages, tools=CHAT, stream=True)
        chunks = [chunk async for chunk in stream]
        last = [one.choices[0].delta.tool_calls for one in chunks if one.choices]
        [streamed] = [calls_[0] for calls_ in last if calls_]
        text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
        messages += [
            {
                "role": "assistant",
                "content": text,
                "tool_calls": [
                    {
                        "id": streamed.id,
                        "type": "function",
                        "function": {"name": "confirm", "arguments": streamed.function.arguments},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": streamed.id, "content": "sure"},
        ]
        third = await create(model="guide", messages=messages, tools=CHAT)
        messages += [
            third.choices[0].message.model_dump(exclude_none=True),
            {"role": "user", "content": "plain"},
        ]
        fourth = await create(model="guide", messages=messages, tools=CHAT)
        open_history = await failing(
            create(model="guide", messages=[*messages[:2], {"role": "user", "content": "plain"}])
        )

    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    assert [one.function.name for one in asked] == ["locate", "confirm"]
    assert "No tool output found" in missing.message
    assert asked[1].id in missing.message
    assert text == "Got locate."
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert third.choices[0].message.content == "done: sure"
    assert third.choices[0].finish_reason == "stop"
    assert fourth.choices[0].message.content == "plain after 7"
    assert fourth.id != third.id
    assert "No tool output found" in open_history.message


@pytest.mark.accepts("H186")
async def test_outputs_are_for_the_tenant_and_need_a_permission(runtime: Runtime) -> None:
    """Another tenant learns nothing, and a reader may not answer; in the background, one polls."""
    async with (
        runtime(GUIDE, model=FunctionModel(guides)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
        openai_of(http, "otto") as other,
        openai_of(http, "rita") as reader,
    ):
        create: Any = ai.responses.create
        first = await create(model="guide", input="go", tools=[LOCATE, CONFIRM], background=True)
        async with asyncio.timeout(60):
            while first.status in ("queued", "in_progress"):
                first = await ai.responses.retrieve(first.id)
        both = [output(item, "x") for item in functions(first)]
        refused = [
            await failing(one.responses.create(model="guide", input=both))
            for one in (other, reader)
        ]
        large = await failing(
            create(model="guide", input=[both[0], {**both[1], "output": "x" * 70_000}])
        )
        second = await create(
            model="guide", input=[*both], previous_response_id=first.id, background=True
        )
        talk = await create(model="guide", input="go", tools=[LOCATE], conversation="h186")
        wrong = await failing(
            create(
                model="guide",
                conversation="other",
                input=[output(item, "x") for item in functions(talk)],
            )
        )
        went_on = await create(
            model="guide",
            conversation="h186",
            input=[output(item, "x") for item in functions(talk)],
        )
        cancelled = await ai.responses.cancel(second.id)
        await client.session("@ai/h186").cancel()

    assert [error.status_code for error in refused] == [400, 403]
    assert "No tool call found" in refused[0].message
    assert large.status_code == 400
    assert second.id == f"{first.id}/continued/2"
    assert "not of this conversation" in wrong.message
    assert went_on.conversation.id.endswith("h186")
    assert cancelled.status in ("cancelled", "completed")
