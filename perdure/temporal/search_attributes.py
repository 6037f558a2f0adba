"""What lists of turns are filtered by: the names, types and values of Perdure's search attributes.

Whether a namespace has them: `indexing`.

Facts that shaped it, found out by running it, or in the schemas of the stores:

- No quoting of a value in a query works with every store. With SQLite a double quote, a backslash
  or a line break finds nothing, or is answered with a syntax error, however it is escaped. So
  values hold nothing that would have to be quoted: such characters are percent-encoded, in what is
  written and in what is asked.
- SQLite splits keyword lists at ♡, and PostgreSQL stores no NUL: the record of a turn that has one
  would be missing for ever.
- PostgreSQL and MySQL keep 255 characters of a keyword. Longer values end in a digest.
- The server takes 2,048 bytes of JSON for one attribute. More is refused at the start, and fails a
  workflow task again and again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any
from urllib.parse import quote, unquote

from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    SearchAttributeUpdate,
    TypedSearchAttributes,
)

from perdure.text import head, size
from perdure.values.reports import Outcome

_KEYWORD_BYTES = 255
_LABELS_BYTES = 2_000
_DIGEST_CHARACTERS = 16
_QUOTED = "%\"'`\\♡"

AGENT = SearchAttributeKey.for_keyword("PerdureAgent")
STATE = SearchAttributeKey.for_keyword("PerdureState")
OUTCOME = SearchAttributeKey.for_keyword("PerdureOutcome")
PARENT = SearchAttributeKey.for_keyword("PerdureParent")
LABELS = SearchAttributeKey.for_keyword_list("PerdureLabels")
SPENT = SearchAttributeKey.for_float("PerdureSpent")
STEPS = SearchAttributeKey.for_int("PerdureSteps")

_KEYS: tuple[SearchAttributeKey[Any], ...] = (AGENT, STATE, OUTCOME, PARENT, LABELS, SPENT, STEPS)
TYPES: Mapping[str, str] = {
    key.name: key.indexed_value_type.name.title().replace("_", "") for key in _KEYS
}
"""Type by name, as Temporal's command line writes them: `{"PerdureAgent": "Keyword", …}`."""

Updates = list[SearchAttributeUpdate[Any]]


class State(StrEnum):
    """Where a turn is. `waiting` and `paused` are turns that live.

    One waits for an approval, or until a provider is asked again. The other waits for budget or
    more iterations, or for a person who resumes it.
    """

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    ENDED = "ended"


def at_start(agent: str, labels: Mapping[str, str], parent: str = "") -> TypedSearchAttributes:
    """What a turn is started with. `parent` is the id of the turn that delegates to it."""
    pairs: list[SearchAttributePair[Any]] = [
        SearchAttributePair(AGENT, keyword(agent)),
        SearchAttributePair(STATE, State.RUNNING.value),
    ]
    if labels:
        pairs.append(SearchAttributePair(LABELS, list(searchable(labels))))
    if parent:
        pairs.append(SearchAttributePair(PARENT, keyword(parent)))
    return TypedSearchAttributes(pairs)


def made_up_for(present: TypedSearchAttributes, agent: str, labels: Mapping[str, str]) -> Updates:
    """What a turn gives itself that was started without, such as by Temporal's own command line.

    Nothing for the others.
    """
    if present.get(AGENT) is not None:
        return []
    return [pair.key.value_set(pair.value) for pair in at_start(agent, labels)]


def in_state(state: State) -> Updates:
    """A turn begins to wait, or goes on."""
    return [STATE.value_set(state.value)]


def state_of(waits_for: str) -> State:
    """The state of a turn that waits for something of this kind."""
    return State.PAUSED if waits_for in ("budget", "iterations", "resume") else State.WAITING


def at_end(outcome: Outcome, *, steps: int, spent: Decimal | None = None) -> Updates:
    """A turn is over. `spent` is in USD; None where nobody counted."""
    updates = [*in_state(State.ENDED), OUTCOME.value_set(outcome.value), STEPS.value_set(steps)]
    return updates if spent is None else [*updates, SPENT.value_set(float(spent))]


def keyword(value: str) -> str:
    """`value` as it is written and asked for.

    Nothing in it needs quoting, and it has at most 255 bytes.
    """
    return _shortened("".join(_plain(letter, _QUOTED) for letter in value))


def label(name: str, value: str) -> str:
    """A label as it is written and asked for: `name=value`."""
    return _shortened(
        "".join(_plain(letter, _QUOTED + "=") for letter in name)
        + "="
        + "".join(_plain(letter, _QUOTED) for letter in value)
    )


def searchable(labels: Mapping[str, str]) -> Iterator[str]:
    """The labels as they are written, in the order given, as many as fit."""
    used = len("[]")
    for name, value in labels.items():
        text = label(name, value)
        used += len(json.dumps(text)) + len(",")
        if used > _LABELS_BYTES:
            return
        yield text


def value_of(written: str) -> str:
    """A keyword again, as far as it was not shortened."""
    return unquote(written)


def labels_of(written: Iterable[str]) -> dict[str, str]:
    """The labels again, as far as they were not shortened."""
    split = (text.partition("=") for text in written)
    return {unquote(name): unquote(value) for name, _, value in split}


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
