"""A model that says what the script says."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta

from perdure import errors
from perdure.activities.models import ModelRequest
from perdure.errors import PerdureError
from perdure.messages import AssistantMessage, Text, Thinking, ToolCall
from perdure.reports import StopReason, Usage
from perdure.wire import ModelAnswer


@dataclass(frozen=True)
class Reply:
    """One reply of a script: an answer or an error, after a delay."""

    answer: ModelAnswer | None = None
    error: PerdureError | None = None
    delay: timedelta = timedelta()


def call(name: str, /, *, call_id: str = "", **arguments: object) -> ToolCall:
    """A tool call with JSON arguments. Without a `call_id` the turn makes one, as it does for models that give none."""
    return ToolCall(id=call_id, name=name, arguments=json.dumps(arguments))


def says(text: str, *, thinking: str = "", stop: StopReason = StopReason.END, usage: Usage | None = None, delay: timedelta = timedelta()) -> Reply:
    """Answer with text."""
    parts = (Thinking(text=thinking),) if thinking else ()
    return _reply((*parts, Text(text=text)), stop, usage, delay)


def calls(
    *asked: ToolCall, text: str = "", stop: StopReason = StopReason.TOOL_CALLS, usage: Usage | None = None, delay: timedelta = timedelta()
) -> Reply:
    """Ask for tools."""
    parts = (Text(text=text),) if text else ()
    return _reply((*parts, *asked), stop, usage, delay)


def fails(error: PerdureError, *, delay: timedelta = timedelta()) -> Reply:
    """Fail with `error`."""
    return Reply(error=error, delay=delay)


class ScriptedModel:
    """Replies in order, and keeps the requests. A provider like any other, so a turn cannot tell.

    Attributes:
        requests: Every request, in order.
    """

    def __init__(self, *replies: Reply | str) -> None:
        self._replies = [says(reply) if isinstance(reply, str) else reply for reply in replies]
        self.requests: list[ModelRequest] = []

    @property
    def call_count(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The next reply.

        Raises:
            ConfigurationError: The script is over.
            PerdureError: The error that the script holds here.
        """
        self.requests.append(request)
        if len(self.requests) > len(self._replies):
            raise errors.ConfigurationError(f"the script has {len(self._replies)} replies, and the model was asked once more")
        reply = self._replies[len(self.requests) - 1]
        await asyncio.sleep(reply.delay.total_seconds())
        if reply.error is not None:
            raise reply.error
        assert reply.answer is not None
        return reply.answer

    async def close(self) -> None:
        """Nothing to close."""

    def assert_finished(self) -> None:
        """Fail where replies are left over."""
        left = len(self._replies) - len(self.requests)
        assert left <= 0, f"{left} of {len(self._replies)} scripted replies were not used"


def _reply(parts: tuple[Text | Thinking | ToolCall, ...], stop: StopReason, usage: Usage | None, delay: timedelta) -> Reply:
    answer = ModelAnswer(message=AssistantMessage(parts=parts), stop=stop, usage=usage or Usage(), model="scripted")
    return Reply(answer=answer, delay=delay)
