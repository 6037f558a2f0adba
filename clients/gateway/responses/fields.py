"""Fields of a response, made from those of its turn. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from perdure import errors
from perdure.clients.gateway.responses.functions import FunctionItem, ToolObject
from perdure.clients.gateway.responses.values import (
    ErrorCode,
    FunctionChoice,
    InputDetails,
    OutputMessage,
    ResponseError,
    ResponseUsage,
    SchemaFormat,
    Status,
)
from perdure.clients.reading import events as turn_events
from perdure.errors import PerdureError
from perdure.schemas import output_type
from perdure.turn.facts import TurnContinued
from perdure.values.client_tools import ClientCall, ClientTool
from perdure.values.reports import Outcome, Usage


@dataclass(slots=True)
class OpenText:
    """A text that is being told.

    Attributes:
        item: Its item.
        index: The place of the item in the output.
        before: The sequence number before its first event.
        text: What was told of it.
    """

    item: OutputMessage
    index: int
    before: int
    text: str = ""

    @property
    def part(self) -> dict[str, Any]:
        """The fields of an event that say which text it is about."""
        return {"item_id": self.item.id, "output_index": self.index, "content_index": 0}


def schema_format(schema: dict[str, JsonValue]) -> SchemaFormat:
    """Return the format of an answer by its schema."""
    return SchemaFormat(name=output_type.name_of(schema), json_schema=schema)


def begun_at(first: turn_events.Event) -> datetime:
    """Return the time when a turn began, from its first known event."""
    for fact in first.before:
        if isinstance(fact, TurnContinued):
            return fact.continuation.began
    return first.at


def status_of(outcome: Outcome, error: PerdureError | None) -> Status:
    """Return the status of a response whose turn has ended."""
    if outcome is Outcome.COMPLETED:
        return "completed"
    if error is None:
        return "incomplete"
    return "cancelled" if outcome is Outcome.CANCELLED else "failed"


def error_of(error: PerdureError) -> ResponseError:
    """Return an error with one of the codes of OpenAI; the message has Perdure's own."""
    code: ErrorCode = "server_error"
    if isinstance(error, errors.LLMRateLimitError):
        code = "rate_limit_exceeded"
    elif isinstance(error, errors.InvalidRequestError | errors.LLMInvalidRequestError):
        code = "invalid_prompt"
    return ResponseError(code=code, message=f"{error.code}: {error.message}")


def usage_of(usage: Usage, before: Usage) -> ResponseUsage:
    """Return the tokens since a part of them was counted."""
    read, written = (
        usage.input_tokens - before.input_tokens,
        usage.output_tokens - before.output_tokens,
    )
    return ResponseUsage(
        input_tokens=read,
        input_tokens_details=InputDetails(
            cached_tokens=usage.cache_read_tokens - before.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens - before.cache_write_tokens,
        ),
        output_tokens=written,
        total_tokens=read + written,
    )


def choice_of(choice: str | None) -> str | FunctionChoice:
    """Return the choice of a tool, as a response has it."""
    if choice in (None, "auto", "none", "required"):
        return choice or "auto"
    return FunctionChoice(name=choice)


def tool_of(tool: ClientTool) -> ToolObject:
    """Return a tool of the client, as a response has it."""
    return ToolObject(name=tool.name, description=tool.description, parameters=tool.parameters)


def function_of(key: str, call: ClientCall) -> FunctionItem:
    """Return a call that the client runs; `key` is that of the turn."""
    return FunctionItem(
        id=f"fc_{key}_{call.call_id}",
        call_id=call.token,
        name=call.tool,
        arguments=call.arguments,
    )
