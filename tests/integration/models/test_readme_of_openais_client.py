"""The calls in the README of OpenAI's client, in its parts on responses and chat completions.

The README calls the client that blocks and the one that does not; so do these.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from perdure import Agent
from perdure.activities.provider import ModelRequest
from perdure.testing import FunctionModel, says
from perdure.testing.scripted import Reply
from perdure.values.messages import Media, UserMessage

from ...conftest import Runtime
from ...support.gateway.responses import by_name, failing, openai_of
from ...support.gateway.served import served

PIRATE = "Talk like a pirate."
QUESTION = "How do I check if a Python object is an instance of a class?"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
AGENT = Agent(name="gpt", model="main", takes_instructions=True)


def answers(request: ModelRequest) -> Reply:
    """Say what the model was told, and how many images it has seen."""
    asked = [one for one in request.messages if isinstance(one, UserMessage)][-1]
    images = sum(isinstance(part, Media) for part in asked.parts)
    return says(f"{request.system}|{asked.text}|{images}")


def seen_in(url: str) -> list[Any]:
    """An image beside the question of the README."""
    content = [
        {"type": "input_text", "text": "What is in this image?"},
        {"type": "input_image", "image_url": url},
    ]
    return [{"role": "user", "content": content}]


def calls_that_block(base_url: str) -> dict[str, Any]:
    """What each call of the README on the client that blocks has returned."""
    asked: Any = {"model": "gpt", "messages": [{"role": "user", "content": "Say this is a test"}]}
    developer: Any = [
        {"role": "developer", "content": PIRATE},
        {"role": "user", "content": QUESTION},
    ]
    with OpenAI(base_url=base_url, api_key="anna") as client:
        response = client.responses.create(model="gpt", instructions=PIRATE, input=QUESTION)
        completion = client.chat.completions.create(model="gpt", messages=developer)
        pictures = [
            client.responses.create(model="gpt", input=seen_in(url)).output_text
            for url in ("https://example.com/a.jpg", f"data:image/png;base64,{PIXEL}")
        ]
        stream = client.responses.create(model="gpt", input="A unicorn.", stream=True)
        events = [event.type for event in stream]
        retried = client.with_options(max_retries=5).chat.completions.create(**asked)
        timed = client.with_options(timeout=60.0).chat.completions.create(**asked)
        raw = client.chat.completions.with_raw_response.create(**asked)
        with client.chat.completions.with_streaming_response.create(**asked) as streaming:
            lines = list(streaming.iter_lines())
        own: Any = client.post(
            "/responses", cast_to=httpx.Response, body={"model": "gpt", "input": "Hi"}
        )
        extra = client.responses.create(
            model="gpt", input="Hi", extra_body={}, extra_headers={"X-Own": "1"}
        )
    return {
        "response": response.output_text,
        "completion": completion.choices[0].message.content,
        "pictures": pictures,
        "events": (events[0], events[-1]),
        "chat": [one.choices[0].message.content for one in (retried, timed, raw.parse())],
        "raw": raw.headers.get("X-My-Header"),
        "lines": "".join(lines),
        "own": own.json()["status"],
        "extra": (extra.model_extra, "instructions" in extra.model_fields_set),
        "ids": [response._request_id, completion._request_id, raw.request_id],
        "json": response.to_json() == response.model_copy().to_json(),
    }


@pytest.mark.accepts("H246")
async def test_calls_of_the_client_that_blocks(runtime: Runtime) -> None:
    """Responses, completions, images, streams, options, raw answers and own requests."""
    async with (
        runtime(AGENT, model=FunctionModel(answers)) as client,
        served(client, by_name) as http,
    ):
        said = await asyncio.to_thread(calls_that_block, f"{http.base_url}/openai/v1")

    told = f"{PIRATE}|{QUESTION}|0"
    assert said["response"].endswith(told)
    assert said["completion"].endswith(told)
    assert [text.rsplit("|", 1)[1] for text in said["pictures"]] == ["1", "1"]
    assert said["events"] == ("response.created", "response.completed")
    assert all(text.endswith("|Say this is a test|0") for text in said["chat"])
    assert said["raw"] is None
    assert "Say this is a test" in said["lines"]
    assert said["own"] == "completed"
    assert said["extra"][1]
    assert all(said["ids"])
    assert said["json"]


@pytest.mark.accepts("H246")
async def test_calls_of_the_client_that_does_not_block(runtime: Runtime) -> None:
    """An answer, a stream, the id of a request that failed, and a format without a schema, which is
    refused.
    """
    async with (
        runtime(AGENT, model=FunctionModel(answers)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        response = await ai.responses.create(model="gpt", input="Say 'this is a test'.")
        stream = await ai.responses.create(model="gpt", input="A unicorn.", stream=True)
        events = [event.type async for event in stream]
        refused = await failing(
            ai.responses.create(
                model="gpt",
                input=[{"role": "user", "content": "How much ?"}],
                text={"format": {"type": "json_object"}},
            )
        )
        async with AsyncOpenAI(base_url=ai.base_url, api_key="anna", timeout=0.001) as hasty:
            with pytest.raises(openai.APITimeoutError):
                await hasty.with_options(max_retries=0).responses.create(model="gpt", input="Hi")

    assert response.output_text.endswith("|Say 'this is a test'.|0")
    assert response._request_id
    assert (events[0], events[-1]) == ("response.created", "response.completed")
    assert "response.output_text.delta" in events
    assert (type(refused), refused.param) == (openai.BadRequestError, "text.format.type")
    assert refused.request_id
