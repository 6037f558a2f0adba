"""A proxy on loopback between a provider and a server, which records each request and its reply."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx


@dataclass(frozen=True)
class Exchange:
    """A request's body, and the status and body of its reply."""

    sent: dict[str, Any]
    status: int
    reply: dict[str, Any]

    @cached_property
    def text(self) -> str:
        """The model's text."""
        return str(self.reply["choices"][0]["message"]["content"])

    @property
    def schema(self) -> dict[str, Any]:
        """The schema for the reply."""
        given: dict[str, Any] = self.sent["response_format"]["json_schema"]["schema"]
        return given


@dataclass
class Wire:
    """The address to use instead of the server's, and the exchanges so far."""

    base_url: str
    exchanges: list[Exchange] = field(default_factory=list)


@contextlib.contextmanager
def tapped(address: str) -> Iterator[Wire]:
    """A wire to the server at `address`, such as `http://127.0.0.1:8080`."""
    wire = Wire("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            reply = httpx.post(
                f"{address}{self.path}",
                content=body,
                headers={"content-type": "application/json"},
                timeout=None,
            )
            wire.exchanges.append(Exchange(json.loads(body), reply.status_code, reply.json()))
            self.send_response(reply.status_code)
            self.send_header("content-type", reply.headers["content-type"])
            self.send_header("content-length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)

        def log_message(self, *_: Any) -> None:
            """No log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(
            target=server.serve_forever, args=(0.02,), name="perdure-test-wire"
        )
        thread.start()
        wire.base_url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            yield wire
        finally:
            server.shutdown()
            thread.join()
