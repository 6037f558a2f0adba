"""Models whose replies come from a script or a function."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from perdure import errors, validation
from perdure.activities.provider import Heard, ModelRequest
from perdure.errors import PerdureError
from perdure.text import one_line
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text, Thinking, ToolCall, UserMessage
from perdure.values.reports import StopReason, Usage


@dataclass(frozen=True)
class Reply:
    """A reply of a script: an answer or an error, after a delay.

    If it is streamed, it is sent in `pieces`, each followed by a `pause`.
    """

    answer: ModelAnswer | None = None
    error: PerdureError | None = None
    delay: timedelta = timedelta()
    pieces: Sequence[str] = ()
    pause: timedelta = timedelta()

    def __post_init__(self) -> None:
        validation.check("the reply", vars(self), {"delay": timedelta, "pause": timedelta})


def call(name: str, /, *, call_id: str = "", **arguments: object) -> ToolCall:
    """Return a tool call with JSON arguments.

    Without a `call_id`, the turn generates an id, as for models that provide none.
    """
    return ToolCall(id=call_id, name=name, arguments=json.dumps(arguments))


def says(
    text: str,
    *,
    thinking: str = "",
    stop: StopReason = StopReason.END,
    usage: Usage | None = None,
    delay: timedelta = timedelta(),
) -> Reply:
    """Return a reply with text."""
    parts = (Thinking(text=thinking),) if thinking else ()
    return _reply((*parts, Text(text=text)), stop, usage, delay)


def calls(
    *asked: ToolCall,
    text: str = "",
    stop: StopReason = StopReason.TOOL_CALLS,
    usage: Usage | None = None,
    delay: timedelta = timedelta(),
) -> Reply:
    """Return a reply with tool calls."""
    parts = (Text(text=text),) if text else ()
    return _reply((*parts, *asked), stop, usage, delay)


def fails(error: PerdureError, *, delay: timedelta = timedelta()) -> Reply:
    """Return a reply that raises `error`."""
    return Reply(error=error, delay=delay)


def slowly(reply: Reply | str, *, pause: timedelta, pieces: Sequence[str] | None = None) -> Reply:
    """Return a reply that is streamed in pieces (`live=True`), each followed by a pause.

    By default the pieces are the words of its text. `slowly(fails(…), pieces=["I th", "ink"], …)`
    breaks off in the middle.
    """
    reply = _as_reply(reply)
    word_pieces = (
        re.findall(r"\s*\S+\s*$|\s*\S+", reply.answer.message.text) if reply.answer else []
    )
    return replace(reply, pieces=word_pieces if pieces is None else pieces, pause=pause)


class ScriptedModel:
    """A provider that replies in order and records the requests.

    Attributes:
        requests: All requests, in order.
        streamed: The requests that were streamed.
    """

    def __init__(self, *replies: Reply | str) -> None:
        self._replies = [_as_reply(reply) for reply in replies]
        self.requests: list[ModelRequest] = []
        self.streamed: list[ModelRequest] = []

    @property
    def call_count(self) -> int:
        """The number of requests."""
        return len(self.requests)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the next reply.

        Raises:
            ConfigurationError: The script has no more replies.
            PerdureError: The error of the reply.
        """
        return await _streamed(self._next(request))

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Return the next reply and pass its text to `heard`, whole or in the script's pieces.

        Raises:
            ConfigurationError: The script has no more replies.
            PerdureError: The error of the reply.
        """
        self.streamed.append(request)
        return await _streamed(self._next(request), heard)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _next(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        if len(self.requests) > len(self._replies):
            raise errors.ConfigurationError(
                f"the script has {len(self._replies)} replies, and the model was asked once more"
            )
        return self._replies[len(self.requests) - 1]

    def assert_finished(self) -> None:
        """Fail if there are unused replies."""
        unused = len(self._replies) - len(self.requests)
        assert unused <= 0, f"{unused} of {len(self._replies)} scripted replies were not used"


class ByTask:
    """A model for several concurrent turns, each with a script that is selected by its task.

    Attributes:
        scripts: The models, by the text of the task.
    """

    def __init__(self, scripts: Mapping[str, ScriptedModel]) -> None:
        self.scripts = dict(scripts)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the next reply of the task's script.

        Raises:
            ConfigurationError: There is no script for this task, or it has no more replies.
            PerdureError: The error of the reply.
        """
        return await self._script(request).complete(request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Like `complete`, but pass the text to `heard`."""
        return await self._script(request).stream(request, heard)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _script(self, request: ModelRequest) -> ScriptedModel:
        tasks = [message.text for message in request.messages if isinstance(message, UserMessage)]
        script = next((self.scripts[text] for text in tasks if text in self.scripts), None)
        if script is None:
            raise errors.ConfigurationError(
                f"there is no script for the task {one_line(tasks[0], 80)!r}; there are some for"
                f" {sorted(self.scripts)}"
            )
        return script


class FunctionModel:
    """A model implemented by a function.

    Its replies depend only on the request, so it can serve any number of turns, in any worker.
    """

    def __init__(self, function: Callable[[ModelRequest], Reply | str]) -> None:
        self._function = function

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the function's reply.

        Raises:
            PerdureError: The error of the reply.
        """
        return await _streamed(_as_reply(self._function(request)))

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Like `complete`, but pass the text to `heard`."""
        return await _streamed(_as_reply(self._function(request)), heard)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _as_reply(reply: Reply | str) -> Reply:
    return says(reply) if isinstance(reply, str) else reply


async def _streamed(reply: Reply, heard: Heard | None = None) -> ModelAnswer:
    """Stream a reply in its pieces or at once, then return its answer or raise its error."""
    await asyncio.sleep(reply.delay.total_seconds())
    for piece in reply.pieces:
        if heard is not None:
            heard(piece)
        await asyncio.sleep(reply.pause.total_seconds())
    if (
        heard is not None
        and reply.answer is not None
        and reply.answer.message.text
        and not reply.pieces
    ):
        heard(reply.answer.message.text)
    return _end_of(reply)


def _end_of(reply: Reply) -> ModelAnswer:
    if reply.error is not None:
        raise reply.error
    assert reply.answer is not None
    return reply.answer


def _reply(
    parts: tuple[Text | Thinking | ToolCall, ...],
    stop: StopReason,
    usage: Usage | None,
    delay: timedelta,
) -> Reply:
    answer = ModelAnswer(
        message=AssistantMessage(parts=parts), stop=stop, usage=usage or Usage(), model="scripted"
    )
    return Reply(answer=answer, delay=delay)
