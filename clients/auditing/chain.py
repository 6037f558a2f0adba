"""An audit as lines of JSON, of which each has the hash of the line before.

The first line says what was asked, the last how many lines are between them. A later audit goes on
with the hash of the last line, so the lines of several may stand in one file. Without a key, a hash
is a SHA-256 of the line, and with one an HMAC, which nobody can compute who lacks the key.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure import errors
from perdure.clients.auditing.entries import AuditEntry
from perdure.temporal import secrets
from perdure.text import counted

KEY = "PERDURE_AUDIT_KEY"
"""The environment variable with the key."""
VERSION = 1
_LEAST_CHARACTERS = 16

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """What was asked.

    Attributes:
        namespace: Temporal's namespace.
        since: The earliest time.
        until: The time before which it was done; without one that was asked for, the time at which
            the audit was made.
        subject: The data subject; None for all.
        id_prefix: The beginning of the ids; None for all.
    """

    namespace: str
    since: datetime
    until: datetime
    subject: str | None = None
    id_prefix: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values, without what was not asked."""
        values = {
            "namespace": self.namespace,
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "subject": self.subject,
            "id_prefix": self.id_prefix,
        }
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def read(cls, header: Line) -> AuditQuery:
        """Return the query of the first line of an audit.

        Raises:
            InvalidRequestError: It has none.
        """
        try:
            values: dict[str, Any] = dict(header["query"])
            for name in ("since", "until"):
                values[name] = datetime.fromisoformat(values[name])
            return cls(**values)
        except (KeyError, TypeError, ValueError):
            raise errors.InvalidRequestError("the first line of the audit has no query") from None


@dataclass(frozen=True, slots=True)
class ChainFault:
    """What is wrong with a line.

    Attributes:
        line: The number of the line, from 1.
        text: What is wrong.
    """

    line: int
    text: str


def key_from_environment() -> str | None:
    """Return the key of the chain; None without one.

    Raises:
        ConfigurationError: It is too short, or has characters that a key does not have.
    """
    if KEY not in os.environ:
        return None
    key = secrets.read(KEY)
    if len(key) < _LEAST_CHARACTERS:
        raise errors.ConfigurationError(
            f"{KEY} has fewer than {_LEAST_CHARACTERS} characters; make a random one: openssl rand"
            " -hex 32"
        )
    return key


class Chain:
    """Makes the lines of an audit.

    Args:
        key: The key; None for hashes that everybody can compute.
        after: The last line of an earlier audit, to go on from; None for a new chain.
    """

    def __init__(self, key: str | None, after: Line | None = None) -> None:
        self._key = key
        self._number = 0 if after is None else int(after["n"]) + 1
        self._hash = "" if after is None else str(after["hash"])
        self._count = 0

    def begin(self, query: AuditQuery) -> str:
        """Return the first line."""
        about = {"audit": VERSION, "hashed_with": _method(self._key), "query": query.fields()}
        return self._line(about)

    def add(self, entry: AuditEntry) -> str:
        """Return the line of an entry."""
        self._count += 1
        return self._line(content_of(entry))

    def end(self) -> str:
        """Return the last line."""
        return self._line({"lines": self._count})

    def _line(self, content: Mapping[str, Any]) -> str:
        line = {"n": self._number, **content, "prev": self._hash}
        self._hash = _digest(line, self._key)
        self._number += 1
        return json.dumps({**line, "hash": self._hash}, separators=(",", ":"))


def content_of(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as the values of its line."""
    return entry.model_dump(mode="json", exclude_defaults=True)


def parsed(text: str) -> dict[str, Any] | None:
    """Return a line of an audit; None if it is none."""
    try:
        line = json.loads(text, object_pairs_hook=_once)
    except ValueError:
        return None
    is_line = isinstance(line, dict) and isinstance(line.get("n"), int)
    return line if is_line and all(isinstance(line.get(key), str) for key in _LINKS) else None


def verify(texts: Sequence[str], key: str | None) -> list[ChainFault]:
    """Return what is wrong with the lines of an audit, in their order; nothing if all is well.

    Args:
        texts: The lines of its file, or of several files of one chain, in order.
        key: The key of this process; None without one.
    """
    faults: list[ChainFault] = []
    lines: list[tuple[int, dict[str, Any]]] = []
    can_check = True
    for number, text in enumerate(texts, 1):
        line = parsed(text)
        if line is None:
            faults.append(ChainFault(number, "this is no line of an audit"))
            continue
        lines.append((number, line))
        if "audit" in line:
            problem = _of_method(line, key)
            can_check = problem is None
            faults += [] if problem is None else [ChainFault(number, problem)]
        if can_check and not hmac.compare_digest(_digest(line, key), line["hash"]):
            faults.append(ChainFault(number, "it was changed"))
    faults += _of_order(lines)
    faults += _of_parts(lines)
    return sorted(faults, key=lambda fault: fault.line) or _nothing(texts)


def _nothing(texts: Sequence[str]) -> list[ChainFault]:
    return [] if texts else [ChainFault(1, "the audit is empty")]


def _of_method(header: Line, key: str | None) -> str | None:
    """Return why the hashes of an audit cannot be checked; None if they can."""
    if header["audit"] != VERSION:
        return "a later release has written it"
    if header.get("hashed_with") == _method(key):
        return None
    if key is None:
        return f"the audit was made with a key; set {KEY} to it"
    return f"the audit was made without the key, and {KEY} is set"


def _of_order(lines: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[ChainFault]:
    """Yield where a line does not follow the line before."""
    places: dict[int, int] = {}
    for number, line in lines:
        places.setdefault(line["n"], number)
    for (_, before), (number, line) in itertools.pairwise(lines):
        expected, found = before["n"] + 1, line["n"]
        missing = found - expected - sum(expected <= each < found for each in places)
        if found == expected and line["prev"] != before["hash"]:
            yield ChainFault(number, "it does not follow the line before, or that was changed")
        elif places[found] < number:
            yield ChainFault(number, f"it repeats line {places[found]}")
        elif missing > 0:
            yield ChainFault(number, f"{counted(missing, 'line')} before it missing")
        elif found != expected:
            yield ChainFault(
                number, f"it is out of order: its number is {found}, after {before['n']}"
            )


def _of_parts(lines: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[ChainFault]:
    """Yield where an audit has no first or no last line, or not as many lines as it says."""
    count: int | None = None
    for number, line in lines:
        if "audit" in line:
            if count is not None:
                yield ChainFault(number, "the end of the audit before it is missing")
            count = 0
        elif count is None:
            yield ChainFault(number, "the first line of the audit is missing")
            count = 1
        elif "lines" not in line:
            count += 1
        if "lines" in line:
            if line["lines"] != count:
                yield ChainFault(number, f"it counts {line['lines']} lines, and there are {count}")
            count = None
    if count is not None:
        yield ChainFault(lines[-1][0], "the end of the audit is missing after it")


def _method(key: str | None) -> str:
    return "sha256" if key is None else "hmac-sha256"


def _digest(line: Mapping[str, Any], key: str | None) -> str:
    """Return the hash of a line.

    It is of its values but the hash as JSON in ASCII, with the names in order and without spaces.
    """
    content = {name: value for name, value in line.items() if name != "hash"}
    written = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    if key is None:
        return hashlib.sha256(written).hexdigest()
    return hmac.new(key.encode(), written, hashlib.sha256).hexdigest()


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, unless a name is in it twice, of which readers may take either.

    Raises:
        ValueError: It is.
    """
    listed = list(pairs)
    values = dict(listed)
    if len(values) < len(listed):
        raise ValueError("a name is there twice")
    return values


_LINKS = ("prev", "hash")
