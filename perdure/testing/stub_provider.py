"""A model provider on loopback that replies from a script, over real HTTP.

It supports OpenAI's chat completions and responses and Anthropic's messages, as whole replies or as
streams of events, and needs only the standard library.

It is made for crash tests. The reply depends only on the number of assistant messages in the
request: a repeated request gets the same reply from any caller, and a restarted stub continues
where
the turn is. Every request is logged with its charge before it is answered, so the log shows what
was paid for even if the caller did not live to read the answer.

With a price it counts and charges tokens (see `stub_replies`), and its answers report that usage.
An answer ends at the limit that its request sets.

As a process: `python -m perdure.testing.stub_provider --port 0 --script script.json --log
requests.jsonl`. The first line that it prints is its base URL; the script is a JSON list of replies
(`Reply`).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from typing import Any

from perdure.testing import stub_replies, stub_streams
from perdure.testing.loopback import LoopbackServer, Quiet
from perdure.testing.stub_replies import (
    Price,
    StubBill,
    StubCall,
    StubReply,
    completion,
    message,
    never_stops,
    per_million,
    response,
)

__all__ = [
    "LoggedRequest",
    "Price",
    "StubBill",
    "StubCall",
    "StubProvider",
    "StubReply",
    "completion",
    "message",
    "never_stops",
    "per_million",
    "read_log",
    "response",
]

PATHS = ("/chat/completions", "/responses", "/v1/messages")


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A logged request with its bill.

    `at` is in seconds since 1970; `sha256` is the digest of the messages as JSON with sorted keys;
    `limit` is the output limit in tokens.
    """

    at: float
    assistant_messages: int
    messages: int
    sha256: str
    limit: int | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal = Decimal(0)


def read_log(path: Path | str) -> list[LoggedRequest]:
    """Return the requests in a log, in order of arrival, without an unfinished last line."""
    file = Path(path)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return [_logged(json.loads(line)) for line in lines if line.endswith("\n")]


def _logged(entry: dict[str, Any]) -> LoggedRequest:
    return LoggedRequest(**{**entry, "usd": Decimal(entry.get("usd", 0))})


class StubProvider(LoopbackServer):
    """Serves `replies` during its `with` block, and `then` for requests beyond them.

    Without `then`, such requests are rejected.

    Attributes:
        base_url: The `base_url` for `OpenAIChat` and `OpenAIResponses`, once started.
        anthropic_url: The `base_url` for `Anthropic`.
        requests: The bodies received, in order of arrival.
        headers: Their headers, with names in lower case.
        bills: Their charges.
    """

    def __init__(
        self,
        replies: Sequence[StubReply],
        log_path: Path | str | None = None,
        delay_s: float = 0,
        port: int = 0,
        *,
        then: StubReply | None = None,
        price: Price | None = None,
    ) -> None:
        super().__init__(_StubHandler, port)
        self.base_url = self.anthropic_url = ""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.bills: list[StubBill] = []
        self._replies = replies
        self._then = then
        self._price = price
        self._log_path = Path(log_path) if log_path is not None else None
        self._delay_s = delay_s
        self._lock = threading.Lock()

    def _started(self, address: str) -> None:
        self.anthropic_url = address
        self.base_url = f"{address}/v1"

    @property
    def spent(self) -> Decimal:
        """The sum of all bills in US dollars."""
        with self._lock:
            return sum((bill.usd for bill in self.bills), Decimal(0))

    def served(
        self, body: dict[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], Iterable[bytes]]:
        """Return status, headers and body of a reply, in one piece or as the requested events."""
        reply = self.reply(body) or {}
        status, reply_headers, content = self.answer(body, headers)
        if not body.get("stream") or "raw" in reply or status >= 300:
            return status, {"content-length": str(len(content)), **reply_headers}, [content]
        asks_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        events = stub_streams.served(reply, json.loads(content), tells_usage=asks_usage)
        return (
            status,
            {**reply_headers, "content-type": "text/event-stream"},
            self._paced(events, reply.get("pace_s", 0)),
        )

    def _paced(self, events: Iterator[bytes], pace_s: float) -> Iterator[bytes]:
        for event in events:
            self._closing.wait(pace_s)
            yield event

    def answer(
        self, body: dict[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Log a request with its bill, wait, and return status, headers and body of its reply."""
        index = _answered(body)
        reply = self.reply(body)
        if reply is None:
            self._record(body, headers, StubBill())
            return _refused(
                400,
                f"the script has {len(self._replies)} replies, and this request holds {index}"
                " assistant messages",
            )
        bill = stub_replies.bill(body, reply, self._price)
        self._record(body, headers, bill)
        self._closing.wait(reply.get("delay_s", self._delay_s))
        raw = reply["raw"] if "raw" in reply else json.dumps(_shaped(reply, bill, body, headers))
        content = raw.encode() if isinstance(raw, str) else raw
        return (
            reply.get("status", 200),
            {"content-type": "application/json", **reply.get("headers", {})},
            content,
        )

    def reply(self, body: Mapping[str, Any]) -> StubReply | None:
        """Return the reply to a request; None to reject it.

        Subclasses may override this to choose by other criteria than the number of answers.
        """
        index = _answered(body)
        return self._replies[index] if index < len(self._replies) else self._then

    def _record(self, body: dict[str, Any], headers: Mapping[str, str], bill: StubBill) -> None:
        messages = said_in(body)
        digest = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest()
        limit = stub_replies.limit_of(body)
        entry = LoggedRequest(
            at=time.time(),
            assistant_messages=_answered(body),
            messages=len(messages),
            sha256=digest,
            limit=limit,
            **asdict(bill),
        )
        with self._lock:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            self.bills.append(bill)
            if self._log_path is not None:
                with self._log_path.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(asdict(entry), default=str) + "\n")


def _shaped(
    reply: StubReply, bill: StubBill, body: Mapping[str, Any], headers: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body of a 200 in the format of the request's API."""
    if "input" in body:
        shape = response
    elif any(name.lower() == "anthropic-version" for name in headers):
        shape = message
    else:
        shape = completion
    return shape(
        reply, _answered(body), str(body.get("model", "stub")), stub_replies.limit_of(body), bill
    )


def said_in(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a request, or the items of its input."""
    messages = body.get("input", body.get("messages", []))
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


def _answered(body: Mapping[str, Any]) -> int:
    """Return the number of answers in a request.

    In a responses input, consecutive items of the model (text and calls) are one answer.
    """
    whose = [
        item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
        for item in said_in(body)
    ]
    if "input" not in body:
        return sum(whose)
    return sum(is_models and not was_models for was_models, is_models in pairwise([False, *whose]))


def _refused(status: int, reason: str) -> tuple[int, dict[str, str], bytes]:
    return (
        status,
        {"content-type": "application/json"},
        json.dumps({"error": {"message": reason, "type": "stub_provider"}}).encode(),
    )


class _StubHandler(Quiet, BaseHTTPRequestHandler):
    service: StubProvider

    def do_POST(self) -> None:
        body = self._body()
        if not self.path.endswith(PATHS) or body is None:
            status, headers, content = _refused(
                404, f"nothing here takes this request: {self.path}"
            )
            self._send(status, {"content-length": str(len(content)), **headers}, [content])
        else:
            self._send(*self.service.served(body, dict(self.headers)))

    def _send(self, status: int, headers: Mapping[str, str], pieces: Iterable[bytes]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)

    def _body(self) -> dict[str, Any] | None:
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        except ValueError:
            return None
        return body if isinstance(body, dict) else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m perdure.testing.stub_provider",
        description="A scripted model provider on loopback.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 for any free one")
    parser.add_argument("--script", type=Path, default=None, help="a JSON list of replies")
    parser.add_argument(
        "--never-stops",
        metavar="TOOL",
        default=None,
        help="what is asked for when the script is over, again and again",
    )
    parser.add_argument(
        "--log", type=Path, default=None, help="where each request is noted, one JSON object a line"
    )
    parser.add_argument(
        "--delay", type=float, default=0, help="seconds before a reply that names no delay_s"
    )
    parser.add_argument(
        "--price",
        type=Decimal,
        nargs=2,
        metavar=("INPUT", "OUTPUT"),
        default=None,
        help="US dollars for a million tokens",
    )
    options = parser.parse_args(arguments)
    if options.script is None and options.never_stops is None:
        parser.error("give a --script, or a tool that it --never-stops to ask for")
    replies = json.loads(options.script.read_text(encoding="utf-8")) if options.script else []
    then = never_stops(options.never_stops) if options.never_stops else None
    price = per_million(*options.price) if options.price else None
    served = StubProvider(replies, options.log, options.delay, options.port, then=then, price=price)
    with served as stub, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(stub.base_url + "\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
