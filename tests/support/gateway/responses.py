"""OpenAI's client on a gateway, and its responses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter
from starlette.requests import Request

from perdure.clients.gateway import Caller

CALLERS = {
    "anna": Caller("anna@example.com", "ai"),
    "rita": Caller("rita@example.com", "ai", frozenset({"read"})),
    "nora": Caller("nora@example.com", "ai", frozenset({"read", "start"})),
    "otto": Caller("otto@example.com", "other"),
}
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def by_name(request: Request) -> Caller | None:
    """The caller whose token is its name."""
    return CALLERS.get(request.headers.get("authorization", "").removeprefix("Bearer "))


def openai_of(http: httpx.AsyncClient, name: str = "anna") -> AsyncOpenAI:
    """OpenAI's client of a caller."""
    return AsyncOpenAI(base_url=f"{http.base_url}/openai/v1", api_key=name)


async def events_of(stream: AsyncIterator[Any]) -> list[dict[str, Any]]:
    """The events of a stream, which are valid by OpenAI's types."""
    found = [json.loads(one.to_json()) async for one in stream]
    for one in found:
        EVENTS.validate_python(one)
    return found


async def resume(ai: AsyncOpenAI, response: str, after: int) -> list[dict[str, Any]]:
    """The events of a response after a sequence number."""
    return await events_of(await ai.responses.retrieve(response, stream=True, starting_after=after))


def key(name: str) -> dict[str, str]:
    """The header with an idempotency key."""
    return {"Idempotency-Key": name}


async def failing(asked: Awaitable[object]) -> openai.APIStatusError:
    """The error of a request of OpenAI's client."""
    with pytest.raises(openai.APIStatusError) as raised:
        await asked
    return raised.value
