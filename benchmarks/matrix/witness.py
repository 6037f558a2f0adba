"""The outside witness: `python -m benchmarks.matrix.witness FOLDER`.

It is a process of its own that no fault touches. It is the model (over OpenAI's chat completions,
with a bill by its own counter of bytes) and the service behind the tools. What it sees, and what
others report to it, is appended to `FOLDER/witness.jsonl`, a JSON object a line; each line is on
the disk (fsync) before the request is answered. So a line is there even if nobody lived to read the
answer.

The first line that it prints is `{"model": "http://…/v1", "service": "http://…"}`.

**Lines.** Each has `at` (seconds since 1970), `kind`, and `job`, the name of the job:

- `bill`, of each request to the model: `model`; `answers`, the number of assistant messages in the
  request; `shown`, the ids of the messages that it has, in order; `input_tokens`, `output_tokens`;
  `usd`, as text.
- `effect`, which a tool asks for before it does anything else: `what`, the name of the effect
  within its job; `tool`; `key`, its idempotency key, or empty; `arguments`, an object; `applied`,
  false if the service has had this key.
- `begun`, of a tool before that, and `ended`, after it, with the same fields. They show whether a
  fault has hit a tool at work; nothing else is judged by them.
- `accepted`: `id` of a message, from the program whose message to the job was accepted.
- `decision`, from a decider before it sends it: `what`, `arguments`, as it has seen them;
  `approves`; `by`.
- `decided`, from a decider that has its answer: `what`, `by`, and `answer`: `used`, `already`
  (somebody else had decided), or another word.
- `fault`, from the program that makes faults: `fault`, its name; `event`, the number of the event
  at which it was to come; `length`, the number of events that there were; `began`, when it was
  made, in seconds since 1970; `landed`, whether it was; `evidence`, a text.
- `claim`, from the program that waits for the job: `outcome`, `completed` or another word; `text`,
  the answer (see `script.claims_in`); `unread`, the ids of messages that it names as unread.

**The job of a request** is the name in `[job NAME]`, which the task of each agent of the job
contains. The id of a message is the name in `[message NAME]`, in its text.

**The service.** `POST /effects` with the fields of an `effect` line, without `at`, `kind` and
`applied`; the answer is `{"receipt": "receipt-N", "applied": true}`. An effect with a `key` that
the service has had in this job is not applied again, and has the receipt of the first. `POST
/notes` with a line of another kind, without `at`. Modes of a bad service override `Service.effect`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.matrix import script
from perdure.testing.stub_provider import StubProvider, StubReply, per_million, said_in
from perdure.testing.stub_replies import StubBill

PRICE = (3, 15)
"""US dollars for a million tokens of input and of output."""
DELAY_S = 0.1
"""How long a model call takes."""
FILE = "witness.jsonl"

Line = dict[str, Any]

_JOB = re.compile(r"\[job ([\w.-]+)\]")
_MESSAGE = re.compile(r"\[message ([\w.-]+)\]")


class Log:
    """The file of lines; several threads append to it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def add(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Append a line, and return once it is on the disk."""
        with self._lock:
            line = {"at": time.time(), "kind": kind, **fields}
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())


class Model(StubProvider):
    """The scripted model: its replies depend on the request and on nothing else, but for the amount
    of a transfer, which is another one each time that it is asked.
    """

    def __init__(self, log: Log) -> None:
        super().__init__([], delay_s=DELAY_S, price=per_million(*PRICE))
        self._witnessed = log

    def reply(self, body: Mapping[str, Any]) -> StubReply | None:
        """The next step of the job."""
        return script.reply(body, 1 + len(self.requests))

    def _record(self, body: dict[str, Any], headers: Mapping[str, str], bill: StubBill) -> None:
        super()._record(body, headers, bill)
        messages = said_in(body)
        fields = {
            "job": job_of(messages),
            "model": str(body.get("model", "")),
            "answers": sum(message["role"] == "assistant" for message in messages),
            "shown": [name for one in messages for name in _MESSAGE.findall(_text(one))],
            "input_tokens": bill.input_tokens,
            "output_tokens": bill.output_tokens,
            "usd": str(bill.usd),
        }
        self._witnessed.add("bill", fields)


def job_of(messages: list[dict[str, Any]]) -> str:
    """Return the job that a request belongs to; empty if it names none."""
    found = (_JOB.search(_text(message)) for message in messages)
    return next((match[1] for match in found if match), "")


def _text(message: Mapping[str, Any]) -> str:
    """Return the text of a message of a user; the others only repeat it."""
    return json.dumps(message.get("content", "")) if message.get("role") == "user" else ""


class Service:
    """What is behind the tools: it applies an effect, once for each key."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._receipts: dict[tuple[str, str], str] = {}
        self._count = 0
        self._lock = threading.Lock()

    def effect(self, fields: Line) -> tuple[int, Line]:
        """Apply an effect, and return the status and the body of the answer."""
        receipt, is_applied = self._receipt(fields)
        self._log.add("effect", {**fields, "applied": is_applied})
        return 200, {"receipt": receipt, "applied": is_applied}

    def _receipt(self, fields: Line) -> tuple[str, bool]:
        name = (fields["job"], fields.get("key", ""))
        with self._lock:
            if name[1] and name in self._receipts:
                return self._receipts[name], False
            self._count += 1
            self._receipts[name] = f"receipt-{self._count}"
            return self._receipts[name], True

    def note(self, fields: Line) -> tuple[int, Line]:
        """Write down what another program reports."""
        self._log.add(fields.pop("kind"), fields)
        return 200, {}


class _Server(ThreadingHTTPServer):
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that were killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            fields = json.loads(self.rfile.read(int(self.headers["content-length"])))
            does = service.effect if self.path == "/effects" else service.note
            status, answer = does(fields)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
            """Log nothing: the file has it."""

    return Handler


@contextlib.contextmanager
def serving(folder: Path, service: type[Service] = Service) -> Iterator[dict[str, str]]:
    """Serve in this process for the duration of the block; yields the addresses."""
    with (
        contextlib.closing(Log(folder / FILE)) as log,
        Model(log) as model,
        _Server(("127.0.0.1", 0), _handler(service(log))) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield {
                "model": model.base_url,
                "service": f"http://127.0.0.1:{server.server_port}",
            }
        finally:
            server.shutdown()
            thread.join()


def post(address: str, path: str, fields: Mapping[str, Any], timeout_s: float = 30) -> Line:
    """Post to the service from a program; tools may use it as well.

    Raises:
        OSError: The service cannot be reached, or does not answer in time.
        RuntimeError: It answers with another status than 200.
    """
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(fields))
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the service answers {answer.status}")
        line: Line = json.loads(content)
        return line


def read(folder: Path, job: str | None = None) -> list[Line]:
    """Return the lines of a job, or all lines, in the order in which they were written."""
    return [line for line in read_from(folder, 0)[0] if job is None or line["job"] == job]


def read_from(folder: Path, place: int) -> tuple[list[Line], int]:
    """Return the complete lines from a byte on, and the byte after them."""
    with (folder / FILE).open("rb") as file:
        file.seek(place)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], place + len(whole)


@contextlib.asynccontextmanager
async def running(folder: Path, module: str = __name__) -> AsyncIterator[dict[str, str]]:
    """Run the witness as a process for the duration of the block; yields the addresses."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield json.loads(await process.stdout.readline())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def main(folder: str) -> None:
    """Serve until the input ends."""
    with serving(Path(folder)) as addresses:
        print(json.dumps(addresses), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
