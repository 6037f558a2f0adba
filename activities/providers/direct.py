"""A model without Temporal: nothing outlives the process.

Like every provider, it makes a single attempt: retries, budgets and fallback models are features of
a turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from perdure import errors
from perdure.activities.pricing import Prices
from perdure.activities.provider import Heard, ModelRequest, Provider, listen
from perdure.activities.providers import http_errors
from perdure.agents.definitions import define_tool
from perdure.agents.tools import Tool
from perdure.values.answers import ModelAnswer
from perdure.values.messages import Message, UserMessage
from perdure.values.options import NO_OPTIONS, RequestOptions


class Model:
    """A model that can be called directly.

    Its connections are closed by `close`, or at the end of an `async with` block. `target` is its
    full name, `name` the provider's own. An answer has `cost` if genai-prices knows the model and
    the provider reported the tokens.
    """

    def __init__(self, target: str, provider: Provider, name: str, *, timeout: timedelta) -> None:
        self._target = target
        self._provider = provider
        self._name = name
        self._timeout_s = timeout.total_seconds()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def complete(
        self,
        messages: str | Sequence[Message],
        *,
        system: str = "",
        tools: Sequence[Tool] = (),
        options: RequestOptions = NO_OPTIONS,
    ) -> ModelAnswer:
        """Send a request and wait for the whole answer.

        Args:
            messages: The text of a user message, or a conversation.
            system: The system prompt.
            tools: The tools that the model may call. The calls are in the answer's message; running
                them is up to the caller.
            options: Temperature, output limit and so on.

        Raises:
            LLMError: The provider's error, or `LLMTimeoutError` when the timeout has passed.
            ConfigurationError: The key or the address is unusable, or a tool has no valid schema.
        """
        return await self._answer(
            self._provider.complete(self._request(messages, system, tools, options)), options
        )

    def stream(
        self,
        messages: str | Sequence[Message],
        *,
        system: str = "",
        tools: Sequence[Tool] = (),
        options: RequestOptions = NO_OPTIONS,
    ) -> TextStream:
        """Send a request like `complete`, and stream the text of the answer.

        Raises:
            ConfigurationError: A tool has no valid schema.
        """
        request = self._request(messages, system, tools, options)
        return TextStream(
            lambda heard: self._answer(listen(self._provider, request, heard), options)
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._provider.close()

    def _request(
        self,
        messages: str | Sequence[Message],
        system: str,
        tools: Sequence[Tool],
        options: RequestOptions,
    ) -> ModelRequest:
        return ModelRequest(
            model=self._name,
            messages=(UserMessage.of(messages),) if isinstance(messages, str) else tuple(messages),
            system=system,
            tools=tuple(define_tool(tool, tool.name) for tool in tools),
            options=options,
        )

    async def _answer(
        self, answering: Awaitable[ModelAnswer], options: RequestOptions
    ) -> ModelAnswer:
        """Await the provider's answer within the timeout, and add its cost."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await answering
        except TimeoutError:
            late = f"{self._name} did not answer within {self._timeout_s:g} s"
            raise errors.LLMTimeoutError(
                late, context={"model": self._name, **http_errors.CHARGED}
            ) from None
        fields: dict[str, Any] = {"duration_ms": int((time.monotonic() - began) * 1000)}
        if answer.cost is None and answer.usage.input_tokens and answer.usage.output_tokens:
            fields["cost"] = await asyncio.to_thread(
                Prices({}).cost, self._target, answer.model, answer.usage, options.extra
            )
        return answer.model_copy(update=fields)


class TextStream:
    """A streamed answer, for use in an `async with` block.

    Iterate with `async for` over the pieces of its text, then await `answer()`. Leaving the block
    early abandons the request; it may be billed anyway.
    """

    def __init__(self, ask: Callable[[Heard], Awaitable[ModelAnswer]]) -> None:
        self._ask = ask
        self._heard: list[str] = []
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._asking: asyncio.Task[ModelAnswer] | None = None

    async def __aenter__(self) -> Self:
        self._asking = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Return the next piece of text.

        Raises:
            LLMError: As for `Model.complete`.
        """
        piece = await self._pieces.get()
        if piece is None:
            self._pieces.put_nowait(None)
            await self.answer()
            raise StopAsyncIteration
        return piece

    async def answer(self) -> ModelAnswer:
        """Return the whole answer once it is complete, whether or not its text was iterated over.

        Raises:
            LLMError: As for `Model.complete`.
            InvalidRequestError: The `async with` block was not entered, or was left before the end.
        """
        if self._asking is None or self._asking.cancelled():
            raise errors.InvalidRequestError(
                "a stream has an answer only inside its block: async with model.stream(…) as stream"
            )
        return await asyncio.shield(self._asking)

    async def _listen(self) -> ModelAnswer:
        try:
            answer = await self._ask(self._hear)
            heard = "".join(self._heard)
            if answer.message.text.startswith(heard):
                self._hear(answer.message.text[len(heard) :])
            return answer
        finally:
            self._pieces.put_nowait(None)

    def _hear(self, text: str) -> None:
        if text:
            self._heard.append(text)
            self._pieces.put_nowait(text)
