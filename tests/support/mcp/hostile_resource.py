"""An MCP server of which only the refusal and the metadata are there, as a test has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from perdure.testing.loopback import LoopbackServer, Quiet

METADATA = "/.well-known/oauth-protected-resource"


class HostileResource(LoopbackServer):
    """Answers by path during its `with` block.

    Attributes:
        url: Its address.
        replies: Status, headers and body of answers, by path.
        silent: Paths whose requests are not answered.
        requests: The methods and paths that were asked for.
    """

    def __init__(self) -> None:
        super().__init__(_Handler, 0)
        self.url = ""
        self.replies: dict[str, tuple[int, Mapping[str, str], bytes]] = {}
        self.silent: set[str] = set()
        self.requests: list[str] = []

    def _started(self, address: str) -> None:
        self.url = f"{address}/mcp"

    def wait(self, path: str) -> None:
        """Wait until the end of the block if this path is silent."""
        if path in self.silent:
            self._closing.wait()

    def describe(self, issuer: str, challenge: str = "Bearer", **changes: Any) -> None:
        """Refuse with a challenge, and have metadata with some changes."""
        document = {"resource": self.url, "authorization_servers": [issuer], **changes}
        self.replies["/mcp"] = (401, {"www-authenticate": challenge}, b"")
        self.replies[f"{METADATA}/mcp"] = (200, {}, json.dumps(document).encode())


class _Handler(Quiet, BaseHTTPRequestHandler):
    service: HostileResource

    def do_GET(self) -> None:
        self.service.requests.append(f"{self.command} {self.path}")
        self.service.wait(self.path)
        status, headers, body = self.service.replies.get(self.path, (404, {}, b"not here"))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  # the base class names it so
