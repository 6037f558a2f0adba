"""A receiver of webhooks on loopback, which verifies them with the library for receivers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLD_SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()


@dataclass
class Hook:
    """A request: its path, its headers in lower case, and its body."""

    path: str
    headers: dict[str, str]
    body: bytes

    def verified(self, secret: str = SECRET) -> dict[str, Any]:
        """The message, after the signature was verified."""
        message: dict[str, Any] = Webhook(secret).verify(self.body, self.headers)
        return message


@dataclass
class Answer:
    """The answer to a request. `hold` is waited for before it; `body` is repeated without end."""

    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None
    body: bytes = b""


@dataclass
class Receiver:
    """A receiver. `answers` has the answers by path, one for each request; then it is 204.

    Attributes:
        port: Its port.
        hooks: The requests so far.
        sent: The bytes of endless bodies that were sent before the connection was closed.
    """

    port: int
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    hooks: list[Hook] = field(default_factory=list)
    sent: int = 0

    def url(self, path: str, *answers: Answer) -> str:
        """The URL of a path, with its answers."""
        self.answers[path] = list(answers)
        return f"http://127.0.0.1:{self.port}{path}"

    def of(self, path: str) -> list[Hook]:
        """The requests with this path."""
        return [one for one in self.hooks if one.path == path]

    async def until(self, path: str, count: int = 1, within_s: float = 30) -> list[Hook]:
        """The requests with this path, once there are this many."""
        async with asyncio.timeout(within_s):
            while len(found := self.of(path)) < count:  # noqa: ASYNC110 - it is in another thread
                await asyncio.sleep(0.02)
        return found


@contextlib.contextmanager
def receiving(certificate: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver that runs during the block, over https with a certificate."""
    receiver = Receiver(0)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.hooks.append(Hook(self.path, headers, body))
            given = receiver.answers.get(self.path)
            answer = given.pop(0) if given else Answer()
            if answer.hold is not None:
                answer.hold.wait(60)
            with contextlib.suppress(OSError):
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                while answer.body:
                    receiver.sent += self.wfile.write(answer.body)

        def do_GET(self) -> None:
            receiver.hooks.append(Hook(self.path, {}, b""))

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        server.socket = certificate.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
