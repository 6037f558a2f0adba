"""What `perdure audit` does: it shows or writes acts, and checks what was written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from perdure import errors
from perdure.clients.auditing.chain import (
    AuditQuery,
    Chain,
    content_of,
    key_from_environment,
    parsed,
    verify,
)
from perdure.clients.auditing.entries import AuditEntry
from perdure.clients.cli.drawing import json_lines
from perdure.clients.cli.drawing.audit import entry_table
from perdure.clients.cli.drawing.screen import note, put
from perdure.clients.client import AgentClient
from perdure.text import harmless, word

_DEFAULT = timedelta(hours=24)
_LINKS = ("n", "prev", "hash")
_OVERLAP = timedelta(minutes=10)
"""How much of the time of the audit before is read again: Temporal's list lags behind."""


_Place = tuple[Any, ...]


class Ended(NamedTuple):
    """An audit that was written, and that another one goes on from.

    Attributes:
        query: What was asked last.
        last: Its last line.
        contents: What its lines say, as JSON.
        places: On what, and when, its acts were.
    """

    query: AuditQuery
    last: Mapping[str, Any]
    contents: frozenset[str]
    places: frozenset[_Place]

    def has(self, entry: AuditEntry) -> bool:
        """Return whether it has an act, also one that cannot be read any more."""
        line = content_of(entry)
        was_readable = bool(entry.problem) and _place(line) in self.places
        return was_readable or _content(line) in self.contents


def ended(path: Path) -> Ended:
    """Return the audit in a file, to go on from.

    Raises:
        InvalidRequestError: It is not as it was written.
    """
    texts = _texts(path)
    faults = verify(texts, key_from_environment())
    if faults:
        raise errors.InvalidRequestError(
            f"{path} is not as it was written, so nothing goes on from it: line {faults[0].line}:"
            f" {faults[0].text}"
        )
    lines = [line for line in map(parsed, texts) if line is not None]
    last_query = [AuditQuery.read(line) for line in lines if "audit" in line][-1]
    contents, places = frozenset(map(_content, lines)), frozenset(map(_place, lines))
    return Ended(last_query, lines[-1], contents, places)


async def show(client: AgentClient, filters: Mapping[str, Any]) -> None:
    """Print a table of what was done."""
    entries = client.audit(**{"since": datetime.now(UTC) - _DEFAULT, **filters})
    await entry_table(entries).show(None, as_json=False, none="nothing was done")


async def write(client: AgentClient, filters: Mapping[str, Any], before: Ended | None) -> None:
    """Print what was done as lines of a chain, without what the audit before has.

    Raises:
        ConfigurationError: It is of another namespace.
    """
    chain = Chain(key_from_environment(), None if before is None else before.last)
    namespace, now = client.temporal.namespace, datetime.now(UTC)
    asked = {"since": now - _DEFAULT, **filters}
    if before is not None:
        if before.query.namespace != namespace:
            raise errors.ConfigurationError(
                f"the audit is of namespace {before.query.namespace!r}, and not {namespace!r}"
            )
        query = before.query
        asked = {**filters, "since": query.until - _OVERLAP}
        asked |= {"subject": query.subject, "id_prefix": query.id_prefix}
    put(chain.begin(AuditQuery(namespace, **{"until": now, **asked})))
    async for entry in client.audit(**asked):
        if before is None or not before.has(entry):
            put(chain.add(entry))
    put(chain.end())


def verified(paths: Sequence[Path], *, as_json: bool) -> bool:
    """Print what is wrong with the files of a chain, and return whether nothing is."""
    places = [(path, number) for path in paths for number, _ in enumerate(_texts(path), 1)]
    texts = [text for path in paths for text in _texts(path)]
    faults = verify(texts, key_from_environment())
    for fault in faults:
        path, number = places[fault.line - 1] if places else (paths[0], 1)
        if as_json:
            json_lines.tell({"file": str(path), "line": number, "fault": fault.text})
        else:
            put(f"{harmless(str(path))}, line {number}: {fault.text}")
    if not (faults or as_json):
        what = ", ".join(word(str(path)) for path in paths)
        note(f"{what}: {len(texts)} lines, as they were written")
    return not faults


def _content(line: Mapping[str, Any]) -> str:
    """Return what a line says, whatever its place in the chain."""
    said = {name: value for name, value in line.items() if name not in _LINKS}
    return json.dumps(said, sort_keys=True)


def _place(line: Mapping[str, Any]) -> _Place:
    return line.get("time"), line.get("kind"), line.get("id")


def _texts(path: Path) -> list[str]:
    """Return the lines of a file.

    Raises:
        InvalidRequestError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidRequestError(f"{path} cannot be read: {error}") from None
