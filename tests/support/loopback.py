"""Providers of every API over HTTP on loopback, also with badly behaved servers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from perdure.activities.provider import ModelRequest, Provider, listen
from perdure.activities.providers import Anthropic, OpenAIChat, OpenAIResponses
from perdure.agents.definitions import ToolDefinition
from perdure.errors import PerdureError
from perdure.testing.stub_provider import StubProvider, StubReply
from perdure.values.answers import ModelAnswer
from perdure.values.messages import UserMessage

KEY = "sk-planted-secret-0123456789"
HELLO = ModelRequest(model="m", messages=(UserMessage.of("hello"),))
ADD = ToolDefinition(
    name="add",
    description="Add.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
    activity="add",
    is_idempotent=True,
    timeout_s=60,
    schema_digest="0",
)


@dataclass(frozen=True, slots=True)
class Vendor:
    """An API: `make` takes the address of a server and the name of the environment variable with
    the key, if there is one.
    """

    name: str
    make: Callable[[str, str | None], Provider]
    path: str

    async def ask(
        self, address: str, request: ModelRequest = HELLO, *, key: str | None = None
    ) -> ModelAnswer:
        """One request."""
        provider = self.make(address, key)
        try:
            return await provider.complete(request)
        finally:
            await provider.close()

    async def hear(
        self, address: str, request: ModelRequest = HELLO, *, key: str | None = None
    ) -> tuple[ModelAnswer, list[str]]:
        """One streamed request: the answer, and the streamed text."""
        provider, heard = self.make(address, key), list[str]()
        try:
            return await listen(provider, request, heard.append), heard
        finally:
            await provider.close()

    async def hear_served(
        self, reply: StubReply, request: ModelRequest = HELLO
    ) -> tuple[ModelAnswer, list[str]]:
        """One streamed request to a server that gives this reply."""
        with StubProvider([reply]) as stub:
            return await self.hear(stub.anthropic_url, request)

    async def failing_stream(self, reply: StubReply) -> PerdureError:
        """The error of a streamed request to a server with this reply."""
        with pytest.raises(PerdureError) as caught:
            await self.hear_served(reply)
        return caught.value

    async def ask_served(self, reply: StubReply, request: ModelRequest = HELLO) -> ModelAnswer:
        """One request to a server that gives this reply."""
        with StubProvider([reply]) as stub:
            return await self.ask(stub.anthropic_url, request)

    async def failing(self, reply: StubReply) -> PerdureError:
        """The error of a request to a server with this reply."""
        with pytest.raises(PerdureError) as caught:
            await self.ask_served(reply)
        return caught.value


OPENAI = Vendor(
    "openai",
    lambda address, key: OpenAIChat(base_url=f"{address}/v1", api_key_env=key),
    "/v1/chat/completions",
)
ANTHROPIC = Vendor(
    "anthropic", lambda address, key: Anthropic(base_url=address, api_key_env=key), "/v1/messages"
)
RESPONSES = Vendor(
    "openai-responses",
    lambda address, key: OpenAIResponses(base_url=f"{address}/v1", api_key_env=key),
    "/v1/responses",
)
VENDORS = [pytest.param(vendor, id=vendor.name) for vendor in (OPENAI, RESPONSES, ANTHROPIC)]


def error_body(status: int, error: Any, **headers: str) -> StubReply:
    """An error body as most servers send it."""
    return {
        "status": status,
        "raw": json.dumps({"error": error}),
        "headers": {name.replace("_", "-"): text for name, text in headers.items()},
    }


@contextlib.contextmanager
def raw_server(payload: bytes, *, then: bytes = b"", every_s: float = 0) -> Iterator[str]:
    """The address of a server that answers connections sequentially.

    Args:
        payload: The data sent to each of them.
        then: The data sent repeatedly after that, until the caller disconnects.
        every_s: The pause before each `then`, in seconds.
    """
    closing = threading.Event()

    def serve() -> None:
        while not closing.is_set():
            with contextlib.suppress(OSError):  # also that nothing has connected yet
                connection, _ = listener.accept()
                with connection:
                    answer(connection)

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(payload)
        while then and not closing.wait(every_s):
            connection.sendall(then)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            closing.set()
            thread.join()
