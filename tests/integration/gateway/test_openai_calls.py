"""The calls of OpenAI's client beside creating a response, and what a request brings with it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from perdure import Agent, tool
from perdure.activities.provider import ModelRequest
from perdure.testing import FunctionModel, call, calls, says
from perdure.testing.runtime import Runtime as LocalRuntime
from perdure.testing.scripted import Reply
from perdure.values.messages import UserMessage

from ...conftest import Runtime
from ...support.gateway.responses import by_name, failing, key, openai_of
from ...support.gateway.served import served
from ...support.open_responses import event_in, response_in

MORE = "Answer in French."


@tool
def look_up(order: int) -> str:
    """Find an order."""
    return f"order {order} was sent"


@tool(requires_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


CLERK = Agent(name="clerk", model="main", tools=[pay])
OPEN = Agent(name="open", model="main", instructions="Be kind.", takes_instructions=True)
DESK = Agent(name="desk", model="main", tools=[look_up])
OURS = "desk-of-one-tenant"
"""The name of an agent that no other test has: all of them share the tenants."""


class Parcel(BaseModel):
    """What became of a parcel."""

    order: int
    is_lost: bool


def answers(request: ModelRequest) -> Reply:
    """A model that says what it was asked for: its instructions, a type, or an order."""
    asked = [one for one in request.messages if isinstance(one, UserMessage)][-1].text
    if request.response_schema is not None:
        return says('{"order": 7, "is_lost": true}')
    if asked.startswith("order") and request.messages[-1].role == "user":
        return calls(call("look_up", order=7), text="I look.")
    if asked == "top":
        return says(str(request.options.extra.get("top_p")))
    return says(request.system or f"You said {asked}.")


@pytest.mark.accepts("H165", "H166", "H167")
async def test_request_brings_instructions_a_type_and_options(runtime: Runtime) -> None:
    """Instructions and messages of the system are for an agent that takes them; what has no effect
    is named.
    """
    roles: Any = [
        {"role": "system", "content": MORE},
        {"role": "user", "content": "Hi"},
        {"role": "developer", "content": [{"type": "input_text", "text": "Be long."}]},
        {"role": "user", "content": "Hi"},
    ]
    async with (
        runtime([OPEN, DESK], model=FunctionModel(answers)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        told = await ai.responses.create(model="open", input="Hi", instructions=MORE)
        by_role = await ai.responses.create(model="open", input=roles, instructions="Be loud.")
        refused = await ai.responses.create(model="desk", input="Hi", instructions=MORE)
        after = await ai.responses.create(
            model="open", input="Hi", previous_response_id=told.id, instructions="Be new."
        )
        talk = [
            await ai.responses.create(
                model="open", input="Hi", conversation="h165-talk", instructions=MORE
            )
            for _ in range(2)
        ]
        other = await failing(
            ai.responses.create(
                model="open", input="Hi", conversation="h165-talk", instructions="Be rude."
            )
        )
        parsed = await ai.responses.parse(model="desk", input="Hi", text_format=Parcel)
        async with ai.responses.stream(model="desk", input="Hi", text_format=Parcel) as stream:
            async for _ in stream:
                pass
            streamed = await stream.get_final_response()
        top = await ai.responses.create(
            model="desk",
            input="top",
            top_p=0.5,
            reasoning={"effort": "low"},
            store=False,
            text={"verbosity": "low"},
            metadata={"a": "b"},
        )
        read = await ai.responses.retrieve(top.id)
        await client.session("@ai/h165-talk").close()

    assert told.output_text.startswith("Be kind.\n\n")
    assert told.output_text.endswith(f"\n{MORE}")
    assert told.instructions == MORE
    assert by_role.output_text.endswith(f"\nBe loud.\n\n{MORE}\n\nBe long.")
    assert refused.error is not None
    assert (refused.status, refused.error.code) == ("failed", "invalid_prompt")
    assert "takes_instructions=True" in refused.error.message
    assert after.output_text.endswith("\nBe new.")
    assert [one.output_text for one in talk] == [told.output_text] * 2
    assert (type(other), other.param) == (openai.BadRequestError, "instructions")
    assert parsed.output_parsed == streamed.output_parsed == Parcel(order=7, is_lost=True)
    assert parsed.text is not None
    assert parsed.text.format is not None
    assert parsed.text.format.type == "json_schema"
    assert (top.output_text, top.top_p) == ("0.5", 0.5)
    assert top.metadata == {
        "a": "b",
        "perdure.without_effect": "reasoning, store, text.verbosity",
    }
    assert read.metadata == {"a": "b"}


@pytest.mark.accepts("H168", "H169")
async def test_conversation_is_created_listed_and_deleted(runtime: Runtime) -> None:
    """Its items are those of its turns, page by page; another tenant finds nothing of it."""
    async with (
        runtime(DESK, model=FunctionModel(answers)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
        openai_of(http, "otto") as otto,
        openai_of(http, "rita") as rita,
    ):
        talk = await ai.conversations.create()
        unbegun = await ai.conversations.retrieve(talk.id)
        empty = await ai.conversations.items.list(talk.id)
        first = await ai.responses.create(
            model="desk", input="order 7", conversation=talk.id, metadata={"a": "b"}
        )
        await ai.responses.create(model="desk", input="Thanks", conversation=talk.id)
        begun = await ai.conversations.retrieve(talk.id)
        items = [one async for one in ai.conversations.items.list(talk.id, limit=2, order="asc")]
        last = await ai.conversations.items.list(talk.id, limit=1)
        one = await ai.conversations.items.retrieve(str(items[2].id), conversation_id=talk.id)
        same = await ai.conversations.update(talk.id, metadata={"a": "b"})
        asked = await ai.responses.input_items.list(first.id)
        refused = {
            "another tenant's": await failing(otto.conversations.retrieve(talk.id)),
            "by its last part": await failing(otto.conversations.retrieve(talk.id[4:])),
            "another tenant's items": await failing(first_of(otto, talk.id)),
            "another tenant's input": await failing(inputs_of(otto, first.id)),
            "to delete another tenant's": await failing(otto.conversations.delete(talk.id)),
            "unknown": await failing(ai.conversations.retrieve("conv_0")),
            "unknown item": await failing(
                ai.conversations.items.retrieve("x", conversation_id=talk.id)
            ),
            "no page": await failing(first_of(ai, talk.id, after="x")),
            "other metadata": await failing(ai.conversations.update(talk.id, metadata={})),
            "begun with items": await failing(
                ai.conversations.create(items=[{"role": "user", "content": "x"}])
            ),
            "more items": await failing(
                ai.conversations.items.create(talk.id, items=[{"role": "user", "content": "x"}])
            ),
            "fewer items": await failing(
                ai.conversations.items.delete(str(items[0].id), conversation_id=talk.id)
            ),
            "created by a reader": await failing(rita.conversations.create()),
            "deleted by a reader": await failing(rita.conversations.delete(talk.id)),
        }
        deleted = await ai.conversations.delete(talk.id)
        again = await ai.conversations.delete(talk.id)
        closed = await failing(ai.responses.create(model="desk", input="x", conversation=talk.id))

    assert talk.id.startswith("@ai/conv_")
    assert (unbegun, empty.data) == (talk, [])
    assert (begun.id, begun.metadata, same) == (talk.id, {"a": "b"}, begun)
    assert [(one.type, getattr(one, "role", "")) for one in items] == [
        *(("message", "user"), ("message", "assistant"), ("mcp_call", "")),
        *(("message", "assistant"), ("message", "user"), ("message", "assistant")),
    ]
    assert one == items[2]
    assert one.type == "mcp_call"
    assert one.output == "order 7 was sent"
    assert (last.data, last.has_more) == ([items[-1]], True)
    [question] = asked.data
    assert json.loads(question.to_json())["content"] == [{"type": "input_text", "text": "order 7"}]
    assert {name: (error.status_code, error.code) for name, error in refused.items()} == {
        "another tenant's": (404, "SESSION_NOT_FOUND"),
        "by its last part": (404, "SESSION_NOT_FOUND"),
        "another tenant's items": (404, "SESSION_NOT_FOUND"),
        "another tenant's input": (404, "TURN_NOT_FOUND"),
        "to delete another tenant's": (404, "SESSION_NOT_FOUND"),
        "unknown": (404, "SESSION_NOT_FOUND"),
        "unknown item": (404, "ITEM_NOT_FOUND"),
        "no page": (400, "INVALID_REQUEST"),
        "other metadata": (400, "INVALID_REQUEST"),
        "begun with items": (400, "INVALID_REQUEST"),
        "more items": (405, "NOT_SUPPORTED"),
        "fewer items": (405, "NOT_SUPPORTED"),
        "created by a reader": (403, "FORBIDDEN"),
        "deleted by a reader": (403, "FORBIDDEN"),
    }
    assert deleted.deleted
    assert again.deleted
    assert closed.code == "SESSION_CLOSED"


async def first_of(ai: AsyncOpenAI, talk: str, **query: Any) -> object:
    """The first page of the items of a conversation."""
    return await ai.conversations.items.list(talk, **query)


async def inputs_of(ai: AsyncOpenAI, response: str) -> object:
    """The first page of the input of a response."""
    return await ai.responses.input_items.list(response)


@pytest.mark.accepts("H170", "H171")
async def test_agents_are_models_and_tokens_are_estimated(runtime: Runtime) -> None:
    """Those that the gateway was told of, and those of the tenant's own turns."""
    async with (
        runtime(replace(DESK, name=OURS), model=FunctionModel(answers)) as client,
        served(client, by_name, agents=["open"]) as http,
        openai_of(http) as ai,
        openai_of(http, "otto") as otto,
    ):
        await ai.responses.create(model=OURS, input="Hi", extra_headers=key("h170-a"))
        models = {one.id: one for one in (await ai.models.list()).data}
        theirs = [one.id async for one in otto.models.list()]
        desk = await ai.models.retrieve(OURS)
        unknown = await failing(ai.models.retrieve("nobody"))
        counted = await ai.responses.input_tokens.count(
            input="x" * 300, instructions="y" * 300, model=OURS
        )
        refused = [
            await failing(ai.get("/files", cast_to=Response)),
            await failing(ai.responses.compact(model=OURS, input="x")),
            await failing(ai.embeddings.create(model=OURS, input="x")),
            await failing(ai.models.delete(OURS)),
        ]

    assert models.keys() >= {"open", OURS}
    assert models[OURS] == desk
    assert desk.created > 0
    assert "open" in theirs
    assert OURS not in theirs
    assert (type(unknown), unknown.code) == (openai.NotFoundError, "MODEL_NOT_FOUND")
    assert 150 < counted.input_tokens < 300
    assert {one.code for one in refused} == {"NOT_SUPPORTED"}
    assert "file_data" in str(refused[0])


IMAGE = "data:image/png;base64,iVBORw0KGgo="
PUBLIC: dict[str, list[dict[str, Any]]] = {
    "text": [{"type": "message", "role": "user", "content": "Greet me."}],
    "a message of the system": [
        {"type": "message", "role": "system", "content": "Rhyme."},
        {"type": "message", "role": "user", "content": "Greet me."},
    ],
    "an image": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": IMAGE},
            ],
        }
    ],
    "several messages": [
        {"type": "message", "role": "user", "content": "I am Ada."},
        {"type": "message", "role": "assistant", "content": "Good morning, Ada."},
        {"type": "message", "role": "user", "content": "Who am I?"},
    ],
}
"""Inputs like those of the public compliance test of Open Responses."""


@pytest.mark.accepts("H180")
async def test_requests_of_the_public_test_have_valid_answers(runtime: Runtime) -> None:
    """As they are on the wire, for clients with strict types; also as streams."""
    async with (
        runtime(OPEN, model=FunctionModel(answers)) as client,
        served(client, by_name) as http,
    ):
        for items in PUBLIC.values():
            body = {"model": "open", "input": items}
            plain = await http.post("/openai/v1/responses", json=body)
            stream = await http.post("/openai/v1/responses", json={**body, "stream": True})
            events = [
                event_in(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")
            ]
            response = response_in(plain.text)

            assert (response["status"], len(response["output"])) == ("completed", 1)
            assert events[-1]["type"] == "response.completed"
            assert events[-1]["response"]["status"] == "completed"


def pays(request: ModelRequest) -> Reply:
    """Pay if that is asked for, and answer."""
    last = request.messages[-1]
    is_asked = isinstance(last, UserMessage) and last.text == "Pay."
    return calls(call("pay", euros=4)) if is_asked else says("Done.")


@pytest.mark.slow
@pytest.mark.accepts("H248")
async def test_response_that_is_over_is_deleted(perdure_runtime: LocalRuntime) -> None:
    """What was continued from it goes on. The fixture `runtime` would look for its history."""
    async with (
        perdure_runtime(DESK, model=FunctionModel(pays)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        first = await ai.responses.create(model="desk", input="Hi")
        second = await ai.responses.create(
            model="desk", input="And?", previous_response_id=first.id
        )
        deleted = await ai.responses.with_raw_response.delete(first.id)
        gone = [
            await failing(ai.responses.retrieve(first.id)),
            await failing(ai.responses.delete(first.id)),
        ]
        kept = await ai.responses.retrieve(second.id)
        third = await ai.responses.create(
            model="desk", input="Now?", previous_response_id=second.id
        )

    assert json.loads(deleted.text) == {"id": first.id, "object": "response", "deleted": True}
    assert [one.status_code for one in gone] == [404, 404]
    assert kept.output_text == second.output_text
    assert third.status == "completed"


@pytest.mark.accepts("H248")
async def test_response_that_is_needed_is_not_deleted(runtime: Runtime) -> None:
    """One that waits, one of a conversation or a batch, and one that is not the caller's."""
    async with (
        runtime([DESK, CLERK], model=FunctionModel(pays)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
        openai_of(http, "otto") as other,
        openai_of(http, "nora") as may_not,
    ):
        talk = await ai.conversations.create()
        said = await ai.responses.create(model="desk", input="Hi", conversation=talk.id)
        waits = await ai.responses.create(model="clerk", input="Pay.", background=True)
        batch = await client.start_batch("@ai/delete-batch", "desk", ["Hi"])
        [row] = [one async for one in batch.results()]
        stay = [
            await failing(ai.responses.delete(waits.id)),
            await failing(ai.responses.delete(said.id)),
            await failing(ai.responses.delete(row.turn_id)),
            await failing(other.responses.delete(said.id)),
            await failing(may_not.responses.delete(said.id)),
        ]
        kept = await ai.responses.retrieve(said.id)
        await ai.responses.cancel(waits.id)

    assert [one.status_code for one in stay] == [409, 409, 409, 404, 403]
    assert {one.code for one in stay[:3]} == {"RESPONSE_STAYS"}
    assert "cancel it first" in str(stay[0])
    assert "a conversation" in str(stay[1])
    assert "a batch" in str(stay[2])
    assert kept.output_text == "Done."
