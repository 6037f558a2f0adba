"""A call of a tool, with what people have answered to its server so far."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from mcp import Client, MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    CallToolResult,
    ElicitResult,
    InputRequiredResult,
    RequestParamsMeta,
)
from pydantic import JsonValue

from perdure.activities.mcp import inquiries, listing
from perdure.activities.mcp.declared import ASKS
from perdure.activities.mcp.tasks import CreatedTask
from perdure.values.inquiries import GivenAnswers

Answer = CallToolResult | InputRequiredResult | CreatedTask
"""What a server answers: a result, questions to people, or a task."""

_ROUNDS = 10
_PAUSE_S = 0.25


async def call(
    client: Client,
    tool: str,
    arguments: Mapping[str, JsonValue],
    progress: ProgressFnT,
    answers: GivenAnswers | None,
) -> Answer:
    """Call a tool.

    A server that wants the call repeated without an answer of anybody gets it, after a pause. With
    None for `answers`, the server learns that it cannot ask.

    Raises:
        MCPError: The server returned an error, or wants the call again and again.
    """
    told = answers or GivenAnswers()
    for _ in range(_ROUNDS):
        send = functools.partial(
            _sent, client, tool, arguments, progress, told, may_ask=answers is not None
        )
        result = await _listed_and_sent(client, send)
        if not isinstance(result, InputRequiredResult) or result.input_requests:
            return result
        told = GivenAnswers(state=result.request_state or "")
        await asyncio.sleep(_PAUSE_S)
    raise MCPError(INTERNAL_ERROR, f"it wanted the same call {_ROUNDS} times")


async def _listed_and_sent(client: Client, send: Callable[[], Awaitable[Answer]]) -> Answer:
    """Send a call; once more, if the headers that its tool requires were not known."""
    try:
        return await send()
    except MCPError as error:
        if error.code != HEADER_MISMATCH:
            raise
        await listing.all_pages(client)
        return await send()


async def _sent(
    client: Client,
    tool: str,
    arguments: Mapping[str, JsonValue],
    progress: ProgressFnT,
    told: GivenAnswers,
    *,
    may_ask: bool,
) -> Answer:
    responses = {
        key: ElicitResult.model_validate(response)
        for key, response in inquiries.responses(told).items()
    }
    result = await client.session.call_tool(
        tool,
        dict(arguments),
        progress_callback=progress,
        input_responses={**responses} or None,
        request_state=told.state or None,
        meta=cast("RequestParamsMeta", {ASKS: True}) if may_ask else None,
        allow_input_required=True,
        allow_claimed=True,
    )
    return cast("Answer", result)
