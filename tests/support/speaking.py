"""A model whose answer comes in parts that a test lets through, and turns that ask it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from perdure import Agent, AssistantMessage, Text, tool
from perdure.activities.provider import Heard, ModelRequest
from perdure.clients import Turn
from perdure.values.answers import ModelAnswer

from ..conftest import RecordingClient, Runtime


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADDER = Agent(name="adder", model="vendor:m", tools=[add])


class Speaker:
    """A model that streams its answer in parts; each part except the first waits for `go_on`.

    Its recorded answer is `answer`; without one, the parts.
    """

    def __init__(self, *parts: str, answer: str | None = None) -> None:
        self.gates = [asyncio.Event() for _ in parts[1:]]
        self.is_done = False
        self._parts = parts
        self._answer = "".join(parts) if answer is None else answer

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return await self.stream(request, lambda _: None)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        for part, gate in zip(self._parts, [None, *self.gates], strict=True):
            if gate is not None:
                await gate.wait()
            heard(part)
        self.is_done = True
        return ModelAnswer(
            message=AssistantMessage(parts=(Text(text=self._answer),)), model="speaker"
        )

    async def close(self) -> None: ...

    def go_on(self) -> None:
        """Release the rest."""
        for gate in self.gates:
            gate.set()


@contextlib.asynccontextmanager
async def speaking(
    runtime: Runtime, *parts: str, live: bool = True
) -> AsyncIterator[tuple[Speaker, RecordingClient, Turn]]:
    """A turn with such a model; the rest is released at the end."""
    speaker = Speaker(*parts)
    async with runtime(ADDER, model=speaker) as client:
        turn = await client.start(ADDER, "go", live=live)
        try:
            yield speaker, client, turn
        finally:
            speaker.go_on()
