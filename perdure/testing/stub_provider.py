"""A model provider on loopback that answers from a script: the APIs of OpenAI (chat completions) and Anthropic (messages) over real HTTP.

It speaks the API that it is asked by, and needs the standard library alone.

It is made for crash tests. Which reply is served depends on the request alone, on the number of assistant messages in it: a repeated
request gets the same reply, whoever sends it, and a restarted stub goes on where the turn is. Every request is in the log before it is
answered, so the log tells what was paid for even if nobody lived to read the answer.

As a process: `python -m perdure.testing.stub_provider --port 0 --script script.json --log requests.jsonl`. The first line it prints is its
base URL; the script is a JSON list of replies (`Reply`).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict

INPUT_TOKENS = 10
OUTPUT_TOKENS = 5
POLL_S = 0.02


class Call(TypedDict):
    """A tool call that a reply asks for."""

    name: str
    arguments: Mapping[str, Any]


class Reply(TypedDict, total=False):
    """One reply: `text` or `calls` (or both), or a `raw` body; after `delay_s`, with `status` and more `headers`."""

    text: str
    calls: Sequence[Call]
    raw: str | bytes
    status: int
    headers: Mapping[str, str]
    delay_s: float


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A request as the log has it. `at` is in seconds since 1970; `sha256` is over the messages as JSON with sorted keys."""

    at: float
    assistant_messages: int
    messages: int
    sha256: str


def read_log(path: Path | str) -> list[LoggedRequest]:
    """The requests in a log, in order of arrival. A last line that is still being written is left out."""
    file = Path(path)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return [LoggedRequest(**json.loads(line)) for line in lines if line.endswith("\n")]


class StubProvider:
    """Serves `replies` while its `with` block runs.

    Attributes:
        base_url: What `OpenAIChat` is given as `base_url`, once started.
        anthropic_url: What `Anthropic` is given.
        requests: The bodies received, in order of arrival.
        headers: Their headers, names in lower case.
    """

    def __init__(self, replies: Sequence[Reply], log_path: Path | str | None = None, delay_s: float = 0, port: int = 0) -> None:
        self.base_url = self.anthropic_url = ""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._replies = replies
        self._log_path = Path(log_path) if log_path is not None else None
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._port = port
        self._closing = threading.Event()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        server = self._stack.enter_context(_Server(("127.0.0.1", self._port), _handler(self)))
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="perdure-stub-provider", daemon=True)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(server.shutdown)
        self._stack.callback(self._closing.set)
        self.anthropic_url = f"http://127.0.0.1:{server.server_port}"
        self.base_url = f"{self.anthropic_url}/v1"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def answer(self, body: dict[str, Any], headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        """Log a request, wait as the script says, and give status, headers and body of its reply."""
        self._record(body, headers)
        index = _answered(body)
        if index >= len(self._replies):
            return _refused(400, f"the script has {len(self._replies)} replies, and this request holds {index} assistant messages")
        reply = self._replies[index]
        self._closing.wait(reply.get("delay_s", self._delay_s))
        shape = message if any(name.lower() == "anthropic-version" for name in headers) else completion
        raw = reply["raw"] if "raw" in reply else json.dumps(shape(reply, index, str(body.get("model", "stub"))))
        content = raw.encode() if isinstance(raw, str) else raw
        return reply.get("status", 200), {"content-type": "application/json", **reply.get("headers", {})}, content

    def _record(self, body: dict[str, Any], headers: Mapping[str, str]) -> None:
        messages = body.get("messages", [])
        digest = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest()
        entry = LoggedRequest(at=time.time(), assistant_messages=_answered(body), messages=len(messages), sha256=digest)
        with self._lock:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            if self._log_path is not None:
                with self._log_path.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(asdict(entry)) + "\n")


def completion(reply: Reply, index: int, model: str) -> dict[str, Any]:
    """The body of a 200 by OpenAI. Call ids are made from the place in the script, so they are the same in a repeated reply."""
    calls = [
        {"id": f"call_{index}_{n}", "type": "function", "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
        for n, call in enumerate(reply.get("calls", ()))
    ]
    message = {"role": "assistant", "content": reply.get("text"), **({"tool_calls": calls} if calls else {})}
    return {
        "id": f"stub-{index}",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS},
    }


def message(reply: Reply, index: int, model: str) -> dict[str, Any]:
    """The body of a 200 by Anthropic, with the same ids."""
    calls = [
        {"type": "tool_use", "id": f"call_{index}_{n}", "name": call["name"], "input": call["arguments"]}
        for n, call in enumerate(reply.get("calls", ()))
    ]
    words = [{"type": "text", "text": reply["text"]}] if reply.get("text") else []
    return {
        "id": f"stub-{index}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [*words, *calls],
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
    }


def _answered(body: Mapping[str, Any]) -> int:
    return sum(message.get("role") == "assistant" for message in body.get("messages", []))


def _refused(status: int, reason: str) -> tuple[int, dict[str, str], bytes]:
    return status, {"content-type": "application/json"}, json.dumps({"error": {"message": reason, "type": "stub_provider"}}).encode()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed while it waited is what this server is for, and no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(stub: StubProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self._body()
            if not self.path.endswith(("/chat/completions", "/v1/messages")) or body is None:
                status, headers, content = _refused(404, f"nothing here takes this request: {self.path}")
            else:
                status, headers, content = stub.answer(body, dict(self.headers))
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def _body(self) -> dict[str, Any] | None:
            try:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
            except ValueError:
                return None
            return body if isinstance(body, dict) else None

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
            """Say nothing on stderr: the log file has the requests."""

    return Handler


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m perdure.testing.stub_provider", description="A scripted model provider on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 for any free one")
    parser.add_argument("--script", type=Path, required=True, help="a JSON list of replies")
    parser.add_argument("--log", type=Path, default=None, help="where each request is noted, one JSON object a line")
    parser.add_argument("--delay", type=float, default=0, help="seconds before a reply that names no delay_s")
    options = parser.parse_args(arguments)
    replies = json.loads(options.script.read_text(encoding="utf-8"))
    with StubProvider(replies, options.log, options.delay, options.port) as stub, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(stub.base_url + "\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
