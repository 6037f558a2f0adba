"""Search attribute values: nothing that the store would refuse, and the same encoding in
queries.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from perdure import Outcome
from perdure.temporal import search_attributes
from perdure.temporal.namespace_check import Findings
from perdure.values.states import State

TEXTS = st.text(st.characters(), max_size=80)
SHORT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TROUBLE = set("\"'\\`♡\0\n\r\t")


@given(TEXTS)
def test_keyword_holds_nothing_that_a_query_would_quote_and_fits(text: str) -> None:
    """For any input: lone surrogates, NUL, quotes, and more than a column can store."""
    written = search_attributes.keyword(text * 10)

    assert not TROUBLE & set(written)
    assert written.isprintable()
    assert len(written.encode()) <= 255


@given(SHORT)
def test_keyword_can_be_read_again(text: str) -> None:
    """Decoding returns the original value."""
    assert search_attributes.value_of(search_attributes.keyword(text)) == text


def test_keywords_that_differ_after_255_bytes_stay_apart() -> None:
    """A longer value ends with a digest, and keeps its readable beginning."""
    one, other = search_attributes.keyword("x" * 300), search_attributes.keyword("x" * 299 + "y")

    assert one != other
    assert one.startswith("x" * 200)


@given(st.dictionaries(SHORT, SHORT, max_size=8))
def test_labels_can_be_read_again(labels: dict[str, str]) -> None:
    """An equals sign in a name does not end it."""
    assert search_attributes.labels_of(search_attributes.searchable(labels)) == labels


@given(st.dictionaries(TEXTS, TEXTS, max_size=60))
def test_labels_never_outgrow_what_the_server_takes(labels: dict[str, str]) -> None:
    """The server refuses more than 2,048 bytes of JSON for one attribute."""
    written = list(search_attributes.searchable(labels))

    assert len(json.dumps(written, separators=(",", ":"))) <= 2_048
    assert written == [
        search_attributes.label(name, value) for name, value in list(labels.items())[: len(written)]
    ]


def test_start_writes_agent_state_labels_and_parent() -> None:
    """Missing values are not written."""
    least: list[SearchAttributePair[Any]] = [
        SearchAttributePair(search_attributes.AGENT, "adder"),
        SearchAttributePair(search_attributes.STATE, "running"),
    ]
    more: list[SearchAttributePair[Any]] = [
        SearchAttributePair(search_attributes.LABELS, ["region=eu"]),
        SearchAttributePair(search_attributes.PARENT, "sum/1"),
    ]

    assert search_attributes.at_start("adder", {}) == TypedSearchAttributes(least)
    assert search_attributes.at_start("adder", {"region": "eu"}, "sum/1") == TypedSearchAttributes(
        [*least, *more]
    )


def test_turn_that_was_started_with_marks_writes_none_when_it_begins() -> None:
    """Only a start without them needs it, so a usual turn has one event for everything."""
    started = search_attributes.at_start("adder", {"region": "eu"})
    made_up = search_attributes.made_up_for(TypedSearchAttributes.empty, "adder", {"region": "eu"})

    assert search_attributes.made_up_for(started, "adder", {"region": "eu"}) == []
    assert made_up == [
        search_attributes.AGENT.value_set("adder"),
        search_attributes.LABELS.value_set(["region=eu"]),
        search_attributes.STATE.value_set("running"),
    ]


def test_end_writes_state_outcome_steps_and_what_was_spent() -> None:
    """An unknown cost is not zero."""
    ended = [
        search_attributes.STATE.value_set("ended"),
        search_attributes.OUTCOME.value_set("truncated"),
        search_attributes.STEPS.value_set(3),
    ]

    assert search_attributes.in_state(State.WAITING) == [
        search_attributes.STATE.value_set("waiting")
    ]
    assert search_attributes.at_end(Outcome.TRUNCATED, steps=3) == ended
    assert search_attributes.at_end(Outcome.TRUNCATED, steps=3, spent=Decimal("0.25")) == [
        *ended,
        search_attributes.SPENT.value_set(0.25),
    ]


def test_types_are_named_as_the_server_names_them() -> None:
    """Users' dashboards depend on the names."""
    assert search_attributes.TYPES == {
        "PerdureAgent": "Keyword",
        "PerdureState": "Keyword",
        "PerdureOutcome": "Keyword",
        "PerdureParent": "Keyword",
        "PerdureLabels": "KeywordList",
        "PerdureSpent": "Double",
        "PerdureSteps": "Int",
    }


def test_findings_say_what_is_wrong() -> None:
    """As text for a message."""
    assert (
        str(Findings(missing=tuple(search_attributes.TYPES))) == "none of Perdure's is registered"
    )
    assert (
        str(Findings(("PerdureSpent",), {"PerdureSteps": "Text"}))
        == "PerdureSpent is missing; PerdureSteps is of type Text instead of Int"
    )
