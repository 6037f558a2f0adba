"""A service on loopback that makes effects, such as payments, and fails in the ways of services.

`POST /payments` with a JSON object makes an effect, with a list of objects one for each. Any path
of one segment is a kind of effect. `GET /payments?invoice=7` lists what was made. It needs only the
standard library.

As a process: `python -m perdure.testing.stub_service --fault timeout_post --log effects.jsonl`. The
first line that it prints is its URL, and the log is read by `read_effects`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from perdure.testing.effects import Grade, MadeEffect, grade
from perdure.testing.faults import Fault, Terms
from perdure.testing.loopback import LoopbackServer, Quiet

KEY_HEADER = "idempotency-key"


@dataclass(frozen=True, slots=True)
class _Write:
    """A request that makes effects."""

    kind: str
    items: tuple[dict[str, Any], ...]
    is_batch: bool
    key: str

    @property
    def slot(self) -> tuple[str, str]:
        """What its key is unique for."""
        return self.kind, self.key


@dataclass(frozen=True, slots=True)
class _ServiceAnswer:
    """What is sent: nothing, or a reset of the connection, with these statuses."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


NO_ANSWER, RESET = 0, -1


def _refused(status: int, reason: str, **headers: str) -> _ServiceAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return _ServiceAnswer(status, {"error": {"message": reason}}, named)


class StubService(LoopbackServer):
    """Makes effects during its `with` block, and fails as `fault` says.

    A request that the service refuses anyway gets its refusal, and the fault waits for the next
    one. At the end of the block, late requests take effect at once.

    Args:
        fault: How it fails: a mode, or its name.
        nth: The write that fails: 1 for the first.
        terms: What it promises.
        log_path: A file that gets each effect as a line of JSON before its request is answered.
        port: The port; 0 for any free one.

    Attributes:
        url: Its URL, once started.
        effects: What it has done, in order.
        writes: The number of requests to make effects, with those that it refused.
        is_down: Set it to answer every request with 503, also those that read.
    """

    def __init__(
        self,
        fault: Fault | str = Fault.NONE,
        *,
        nth: int = 1,
        terms: Terms | None = None,
        log_path: Path | str | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(_ServiceHandler, port)
        self.url = ""
        self.effects: list[MadeEffect] = []
        self.writes = 0
        self.is_down = False
        self._fault, self._nth = Fault(fault), nth
        self._terms = terms or Terms()
        self._log_path = Path(log_path) if log_path is not None else None
        self._taken = 0  # writes that a fault could have hit, but for those that it still hits
        self._limited_until = math.inf
        self._asked: dict[tuple[str, str], tuple[dict[str, Any], ...]] = {}
        self._made: dict[tuple[str, str], list[MadeEffect]] = {}
        self._late: dict[threading.Timer, _Write] = {}
        self._lock = threading.RLock()

    def _started(self, address: str) -> None:
        self.url = address

    def _stopped(self) -> None:
        self.settle()

    def hold(self) -> None:
        """Hold a connection without an answer, for so long as the terms say."""
        self._closing.wait(self._terms.hold_s)

    def grade(self, kind: str, wanted: Sequence[Mapping[str, Any]]) -> Grade:
        """Judge what was done by what had to be done; see `grade` of `perdure.testing`."""
        with self._lock:
            return grade(self.effects, kind, wanted)

    def settle(self) -> None:
        """Let late requests take effect now."""
        with self._lock:
            for timer in list(self._late):
                timer.cancel()
                self._arrive(timer)

    def listed(self, kind: str, wanted: Mapping[str, str]) -> _ServiceAnswer:
        """Return the effects of a kind whose fields have these values, as text."""
        if self.is_down:
            return _refused(503, "the service is down")
        if math.isinf(self._terms.lag_s):
            return _refused(405, "this service lists nothing")
        until = time.time() - self._terms.lag_s
        with self._lock:
            items = [
                _shown(effect)
                for effect in self.effects
                if effect.kind == kind and effect.at <= until
            ]
        chosen = [
            item for item in items if all(str(item.get(name)) == wanted[name] for name in wanted)
        ]
        return _ServiceAnswer(200, {"items": chosen})

    def written(self, kind: str, body: Any, key: str) -> _ServiceAnswer:
        """Make the effects of a request, or fail, and return the answer."""
        with self._lock:
            self.writes += 1
            write = self._read(kind, body, key)
            if isinstance(write, _ServiceAnswer):
                return write
            fault = self._next_fault()
            is_replay = len(write.items) == len(self._made.get(write.slot, ()))
            made = self._done(write, fault)
            return self._answer(write, fault, made, is_replay=is_replay)

    def _read(self, kind: str, body: Any, key: str) -> _Write | _ServiceAnswer:
        """Return a request that the service takes, or its refusal."""
        if self.is_down:
            return _refused(503, "the service is down")
        items = body if isinstance(body, list) else [body]
        if not items or not all(isinstance(item, dict) for item in items):
            return _refused(400, "the body is a JSON object, or a list of objects")
        if self._due() is Fault.SCHEMA_DRIFT:
            old, new = self._terms.renamed
            if any(old in item for item in items):
                return _refused(400, f"unknown field {old!r}: it is named {new!r} now")
            items = [{old if name == new else name: item[name] for name in item} for item in items]
        write = _Write(kind, tuple(items), isinstance(body, list), key)
        return self._refusal(write) or write

    def _refusal(self, write: _Write) -> _ServiceAnswer | None:
        """Return the answer to a request whose effects cannot be made; None for others."""
        if self._is_keyed(write) and write.slot in self._asked:
            is_same = self._asked[write.slot] == write.items
            return None if is_same else _refused(409, "the key was used with other fields")
        taken = [same for item in write.items if (same := self._same(write.kind, item))]
        return _refused(409, f"it was made before, as {taken[0].id}") if taken else None

    def _is_keyed(self, write: _Write) -> bool:
        return self._terms.honours_keys and bool(write.key)

    def _same(self, kind: str, item: Mapping[str, Any]) -> MadeEffect | None:
        """Return the effect that may not be made again; None if there is none."""
        values = {name: item.get(name) for name in self._terms.unique}
        made = (effect for effect in self.effects if effect.kind == kind and effect.has(values))
        return next(made, None) if values else None

    def _due(self) -> Fault:
        """Return the fault of the next write."""
        return self._fault if self._taken + 1 == self._nth else Fault.NONE

    def _next_fault(self) -> Fault:
        """Return the fault of this write, and count it. One that lasts stays due."""
        fault = self._due()
        if fault is Fault.RATE_LIMIT:
            now = time.monotonic()
            self._limited_until = min(self._limited_until, now + self._terms.retry_after_s)
            fault = fault if now < self._limited_until else Fault.NONE
        if fault is Fault.SCHEMA_DRIFT:
            return Fault.NONE  # it has the new names
        if not fault.lasts:
            self._taken += 1
        return fault

    def _done(self, write: _Write, fault: Fault) -> list[MadeEffect]:
        """Let a request take effect as its fault says; return the effects made so far."""
        if fault.does == "never":
            return []
        if self._is_keyed(write):
            self._asked[write.slot] = write.items
        if fault.does == "later":
            self._send_later(write, self._terms.delay_s(fault))
            return []
        half = max(1, len(write.items) // 2)
        made = self._make(write, "request", half if fault.does == "half" else None)
        if fault.does == "twice":
            self._make(write, "redelivery")
        return made

    def _make(self, write: _Write, source: str, most: int | None = None) -> list[MadeEffect]:
        """Make the effects that its key has not made, and return all of them."""
        made = self._made.setdefault(write.slot, []) if self._is_keyed(write) else []
        for item in write.items[len(made) :][:most]:
            made.append(self._same(write.kind, item) or self._record(write, item, source))
        return made

    def _record(self, write: _Write, item: Mapping[str, Any], source: str) -> MadeEffect:
        name = f"{write.kind}-{len(self.effects) + 1}"
        effect = MadeEffect(name, write.kind, item, write.key, source, time.time())
        self.effects.append(effect)
        if self._log_path is not None:
            with self._log_path.open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(effect)) + "\n")
        return effect

    def _send_later(self, write: _Write, delay_s: float) -> None:
        timer = threading.Timer(delay_s, lambda: self._arrive(timer))
        timer.daemon = True
        self._late[timer] = write
        timer.start()

    def _arrive(self, timer: threading.Timer) -> None:
        """Let a late request take effect, once."""
        with self._lock:
            if write := self._late.pop(timer, None):
                self._make(write, "late")

    def _answer(
        self, write: _Write, fault: Fault, made: list[MadeEffect], *, is_replay: bool
    ) -> _ServiceAnswer:
        match fault.shows:
            case "nothing":
                return _ServiceAnswer(NO_ANSWER)
            case "a reset":
                return _ServiceAnswer(RESET)
            case "500":
                return _refused(500, "internal server error")
            case "503":
                return _refused(503, "the service is overloaded; retry later")
            case "429":
                left_s = math.ceil(self._limited_until - time.monotonic())
                return _refused(429, "too many requests", retry_after=str(max(1, left_s)))
        shown = [_shown(effect) for effect in made]
        body = {"items": shown} if write.is_batch else shown[0]
        return _ServiceAnswer(201, body, {"idempotency-replayed": "true"} if is_replay else {})


def _shown(effect: MadeEffect) -> dict[str, Any]:
    return {**effect.fields, "id": effect.id}


class _ServiceHandler(Quiet, BaseHTTPRequestHandler):
    """Answers the requests to a service."""

    service: StubService

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        key = self.headers.get(KEY_HEADER, "")
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        self._send(self.service.written(self._kind(), body, key))

    def do_GET(self) -> None:
        wanted = dict(parse_qsl(urlsplit(self.path).query))
        self._send(self.service.listed(self._kind(), wanted))

    def _kind(self) -> str:
        return urlsplit(self.path).path.strip("/")

    def _send(self, answer: _ServiceAnswer) -> None:
        if answer.status == RESET:
            self._reset()
        elif answer.status == NO_ANSWER:
            self.service.hold()
            self.close_connection = True
        else:
            self._answer(answer)

    def _answer(self, answer: _ServiceAnswer) -> None:
        content = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _reset(self) -> None:
        """Close the socket with a reset, which a lingering time of 0 sends."""
        at_once = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        os.close(self.connection.detach())
        self.close_connection = True


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m perdure.testing.stub_service",
        description="A service on loopback that makes effects, and fails.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 for any free one")
    parser.add_argument("--fault", choices=[*Fault], default=Fault.NONE, help="how it fails")
    parser.add_argument("--nth", type=int, default=1, help="the write that fails")
    parser.add_argument("--log", type=Path, default=None, help="a file for the effects")
    parser.add_argument("--ignore-keys", action="store_true", help="ignore idempotency keys")
    parser.add_argument("--lag", type=float, default=0.0, help="seconds until effects are listed")
    parser.add_argument("--late", type=float, default=90.0, help="seconds until late effects")
    options = parser.parse_args(arguments)
    terms = Terms(honours_keys=not options.ignore_keys, lag_s=options.lag, late_s=options.late)
    served = StubService(
        options.fault, nth=options.nth, terms=terms, log_path=options.log, port=options.port
    )
    with served as service, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(service.url + "\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
