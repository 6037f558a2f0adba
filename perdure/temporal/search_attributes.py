"""The names, types and values of Perdure's search attributes, by which lists of turns are filtered.

`namespace_check` checks whether a namespace has them.

Facts behind the design, found by running it, or in the schemas of the stores:

- No quoting of values in queries works with every store. With SQLite, a double quote, a backslash
  or a line break finds nothing or is a syntax error, however it is escaped. Values therefore
  contain no characters that need quoting: these are percent-encoded, both in records and in
  queries.
- SQLite splits keyword lists at ♡, and PostgreSQL stores no NUL: the record of a turn with NUL
  would be missing for ever.
- PostgreSQL and MySQL keep 255 characters of a keyword. Longer values end in a digest.
- The server accepts 2,048 bytes of JSON for one attribute. More is rejected at the start, and
  repeatedly fails a workflow task.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    SearchAttributeUpdate,
    TypedSearchAttributes,
)

from perdure import limits
from perdure.temporal.encryption.hiding import labels_are_plain
from perdure.text import head, size
from perdure.values.reports import Outcome
from perdure.values.states import OfTurn, State

_KEYWORD_BYTES = 255
_LABELS_BYTES = 2_000
_DIGEST_CHARACTERS = 16
_QUOTED = "%\"'`\\♡"
_VERSION = "version:"
_SUBJECT = "subject:"
_VERSION_BYTES = len(_VERSION) + limits.NAME_CHARACTERS + len('"",')

AGENT = SearchAttributeKey.for_keyword("PerdureAgent")
STATE = SearchAttributeKey.for_keyword("PerdureState")
OUTCOME = SearchAttributeKey.for_keyword("PerdureOutcome")
PARENT = SearchAttributeKey.for_keyword("PerdureParent")
LABELS = SearchAttributeKey.for_keyword_list("PerdureLabels")
SPENT = SearchAttributeKey.for_float("PerdureSpent")
STEPS = SearchAttributeKey.for_int("PerdureSteps")

SCHEDULE = SearchAttributeKey.for_keyword("TemporalScheduledById")
SCHEDULED_FOR = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
"""Set by the server on the turns of a schedule, in every namespace: its id, and their time."""

_KEYS: tuple[SearchAttributeKey[Any], ...] = (AGENT, STATE, OUTCOME, PARENT, LABELS, SPENT, STEPS)
TYPES: Mapping[str, str] = {
    key.name: key.indexed_value_type.name.title().replace("_", "") for key in _KEYS
}
"""Types by name, as in Temporal's command line: `{"PerdureAgent": "Keyword", …}`."""

Updates = list[SearchAttributeUpdate[Any]]


def at_start(
    agent: str,
    labels: Mapping[str, str],
    parent: str = "",
    schedule: str = "",
    subject: str | None = None,
) -> TypedSearchAttributes:
    """Return the attributes of a new turn.

    `parent` is the id of the turn that delegates to it, or of its batch. `schedule` is the id of
    the schedule that has started its batch; the server sets the attribute of all other turns.
    `subject` is its data subject.
    """
    pairs: list[SearchAttributePair[Any]] = [
        SearchAttributePair(AGENT, keyword(agent)),
        SearchAttributePair(STATE, State.RUNNING.value),
    ]
    if written := [*_of_subject(subject), *searchable(shown_labels(labels), _size_of(subject))]:
        pairs.append(SearchAttributePair(LABELS, written))
    if parent:
        pairs.append(SearchAttributePair(PARENT, keyword(parent)))
    if schedule:
        pairs.append(SearchAttributePair(SCHEDULE, keyword(schedule)))
    return TypedSearchAttributes(pairs)


def shown_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels for search attributes, logs and spans: all or none."""
    return labels if labels and labels_are_plain() else {}


def made_up_for(
    present: TypedSearchAttributes,
    agent: str,
    labels: Mapping[str, str],
    subject: str | None = None,
) -> Updates:
    """Return the attributes for a turn that was started without them; empty for other turns.

    An example is a turn started by Temporal's own command line.
    """
    if present.get(AGENT) is not None:
        return []
    return [pair.key.value_set(pair.value) for pair in at_start(agent, labels, subject=subject)]


def in_state(state: OfTurn) -> Updates:
    """Return the update for a turn that begins or ends a wait."""
    return [STATE.value_set(state.value)]


def state_of(waits_for: str) -> OfTurn:
    """Return the state of a turn that waits for something of this kind."""
    return State.PAUSED if waits_for in ("budget", "iterations", "resume") else State.WAITING


def at_end(outcome: Outcome, *, steps: int, spent: Decimal | None = None) -> Updates:
    """Return the updates at the end of a turn. `spent` is in USD; None if it is unknown."""
    updates = [*in_state(State.ENDED), OUTCOME.value_set(outcome.value), STEPS.value_set(steps)]
    return updates if spent is None else [*updates, SPENT.value_set(float(spent))]


def keyword(value: str) -> str:
    """Return `value` as it is stored and queried: at most 255 bytes that need no quoting."""
    return _shortened("".join(_plain(letter, _QUOTED) for letter in value))


def label(name: str, value: str) -> str:
    """Return a label as it is stored and queried: `name=value`."""
    return _shortened(
        "".join(_plain(letter, _QUOTED + "=") for letter in name)
        + "="
        + "".join(_plain(letter, _QUOTED) for letter in value)
    )


def version(name: str) -> str:
    """Return the version of a turn's agent as it is stored and queried, among its labels.

    No label of a user is equal to it: without an equals sign, a label would have been shortened,
    and would be longer than this.
    """
    return f"{_VERSION}{name}"


def version_in(written: Iterable[str]) -> str:
    """Return the version of a turn's agent; empty for an agent without versions."""
    return next((text.removeprefix(_VERSION) for text in written if _is_version(text)), "")


def of_version(name: str, labels: Mapping[str, str], subject: str | None = None) -> Updates:
    """Return the update for a turn of an agent with versions, once its version is known."""
    shown = searchable(shown_labels(labels), used=_VERSION_BYTES + _size_of(subject))
    return [LABELS.value_set([version(name), *_of_subject(subject), *shown])]


def data_subject(name: str) -> str:
    """Return the data subject of a turn as it is stored and queried, among its labels.

    No label of a user is equal to it: without an equals sign, a label would have been shortened,
    and the digests differ.
    """
    return _shortened(_SUBJECT + "".join(_plain(letter, _QUOTED + "=") for letter in name))


def data_subject_in(written: Iterable[str]) -> str:
    """Return the data subject of a turn, unless it was shortened; empty without one."""
    text = next(filter(_is_subject, written), _SUBJECT)
    return unquote(text.removeprefix(_SUBJECT))


def searchable(labels: Mapping[str, str], used: int = 0) -> Iterator[str]:
    """Yield the labels as they are stored, in order, as many as fit beside `used` bytes."""
    used += len("[]")
    for name, value in labels.items():
        text = label(name, value)
        used += len(json.dumps(text)) + len(",")
        if used > _LABELS_BYTES:
            return
        yield text


def value_of(written: str) -> str:
    """Return the original value of a keyword, unless it was shortened."""
    return unquote(written)


def labels_of(written: Iterable[str]) -> dict[str, str]:
    """Return the original labels, unless they were shortened."""
    labels = (text for text in written if not _is_version(text) and not _is_subject(text))
    split = (text.partition("=") for text in labels)
    return {unquote(name): unquote(value) for name, _, value in split}


def _is_version(text: str) -> bool:
    return text.startswith(_VERSION) and "=" not in text and size(text) <= _VERSION_BYTES


def _is_subject(text: str) -> bool:
    return text.startswith(_SUBJECT) and "=" not in text


def _of_subject(name: str | None) -> list[str]:
    """Return the entry of a data subject: none without one, or where labels are not shown."""
    return [data_subject(name)] if name is not None and labels_are_plain() else []


def _size_of(subject: str | None) -> int:
    return sum(len(json.dumps(text)) + len(",") for text in _of_subject(subject))


def _plain(letter: str, quoted: str) -> str:
    return (
        letter
        if letter.isprintable() and letter not in quoted
        else quote(letter, safe="", errors="replace")
    )


def _shortened(text: str) -> str:
    if size(text) <= _KEYWORD_BYTES:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return head(text, _KEYWORD_BYTES - _DIGEST_CHARACTERS - 1) + "~" + digest
