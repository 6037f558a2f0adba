"""The output and the events of a response, for simulated turns and stored histories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic_core import to_json
from temporalio.converter import DataConverter

from perdure import errors
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.responses.composing import DELTA, Composer
from perdure.clients.gateway.responses.refusals import refusal
from perdure.clients.reading.event_context import EventContext
from perdure.clients.reading.events import Event, is_event
from perdure.clients.reading.live_output import Heard
from perdure.clients.reading.live_text import Speech
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.turn.facts import ModelAnswered, Recorded, Scheduled
from perdure.turn.keys import ModelKey
from perdure.values.reports import Outcome

from ..support.folding import every_turn
from ..support.histories import OUTCOMES, STORED, stored
from ..support.open_responses import event_in, response_in
from ..support.simulated import Played, any_turn
from ..support.thorough import examples

START = datetime(2026, 11, 23, 12, tzinfo=UTC)
STATUS = {"truncated": "incomplete", "finished": "incomplete", "cancelled": "cancelled"}
"""The statuses of stored turns that neither completed nor failed."""


def events_of(facts: Iterable[Recorded]) -> Iterator[Event]:
    """The events of a turn, as a client reads them."""
    context, hidden = EventContext(), list[Recorded]()
    for number, fact in enumerate(facts):
        told = context.of(fact)
        if not is_event(fact):
            hidden.append(fact)
            continue
        at = START + timedelta(seconds=number)
        yield Event(str(number), at, fact, "t", before=tuple(hidden), **told)
        hidden.clear()


def composed(facts: Iterable[Recorded]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The response and its events, which are valid and agree with each other."""
    composer, found = Composer("t", "r"), list[dict[str, Any]]()
    for event in events_of(facts):
        for number, told in composer.see(event):
            assert number == told["sequence_number"]
            assert not found or number > found[-1]["sequence_number"]
            found.append(event_in(json.dumps(told)))
    response = response_in(to_json(composer.response))
    check(response, found)
    return response, found


def check(response: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """The items that the events add and complete are the output, in its order."""
    output: list[dict[str, Any]] = []
    done: set[int] = set()
    for one in events:
        if one["type"] == "response.output_item.added":
            assert one["output_index"] == len(output)
            output.append(one["item"])
        elif one["type"] == "response.output_item.done":
            assert one["output_index"] not in done
            done.add(one["output_index"])
            assert output[one["output_index"]]["id"] == one["item"]["id"]
            output[one["output_index"]] = one["item"]
        elif "item_id" in one:
            assert output[one["output_index"]]["id"] == one["item_id"]
    ids = [one["id"] for one in output]
    assert len(set(ids)) == len(ids)
    assert [one["type"] for one in events[:1]] == ["response.created"][: len(events)]
    if response["status"] in ("queued", "in_progress"):
        return
    assert events[-1]["response"] == response
    assert response["output"] == output
    assert done == set(range(len(output)))
    assert all(one.get("status") != "in_progress" for one in output)


def followed(facts: Sequence[Recorded]) -> list[dict[str, Any]]:
    """The events of a response whose text comes in pieces while it is generated."""
    composer, speech, found = Composer("t", "r"), Speech(), list[dict[str, Any]]()
    answered = [fact for fact in facts if isinstance(fact, ModelAnswered)]
    answers = {fact.key: fact.answer.message.text for fact in answered}

    def take(made: Iterable[tuple[int, dict[str, Any]]]) -> None:
        found.extend(event_in(json.dumps(told)) for _, told in made)

    for event in events_of(facts):
        for piece in speech.see(event.fact):
            take(composer.hear(piece))
        take(composer.see(event))
        if composer.is_broken:
            break
        if isinstance(event.fact, Scheduled) and isinstance(event.fact.key, ModelKey):
            text = answers.get(event.fact.key, "It is void.")
            for size in (1, len(text) // 2):
                for piece in speech.hear(Heard(event.fact.key, 0, text[:size])):
                    take(composer.hear(piece))
    return found


def told(events: Iterable[dict[str, Any]], after: int = -1) -> dict[int, object]:
    """The events after a number, by their numbers; a text by each of its characters."""
    numbered: dict[int, object] = {}
    for one in events:
        number = one["sequence_number"]
        if one["type"] == DELTA:
            first = number - len(one["delta"]) + 1
            numbered |= {first + at: letter for at, letter in enumerate(one["delta"])}
        else:
            numbered[number] = one
    return {number: event for number, event in numbered.items() if number > after}


@pytest.mark.accepts("H172", "H173")
@settings(every_turn, max_examples=examples(60))
@given(any_turn)
def test_text_in_pieces_is_that_of_history_or_is_void(played: Played) -> None:
    """With the same numbers; and after an error, every number that was given leads to the rest."""
    _, whole = composed(played.facts)
    live = followed(played.facts)
    if not live or live[-1]["type"] != "error":
        void = told(live).keys() - told(whole).keys()
        assert told(whole).items() <= told(live).items()
        assert not void or live[-1]["type"] in ("response.incomplete", "response.failed")
        return
    before = live[-1]["sequence_number"]
    assert {n: event for n, event in told(live[:-1]).items() if n <= before} == {
        n: event for n, event in told(whole).items() if n <= before
    }
    for one in live[:-1]:
        if one["sequence_number"] > before:
            assert told(whole, one["sequence_number"]) == told(whole, before)


@pytest.mark.accepts("H26")
@pytest.mark.parametrize(
    ("error", "status", "again"),
    [
        (errors.ServerUnreachableError("gone"), 503, "false"),
        (errors.TurnConflictError("another"), 409, "false"),
        (TimeoutError(), 504, "false"),
        (ValueError("a bug"), 500, "false"),
        (RefusedError(429, "TOO_MANY_REQUESTS", "later"), 429, "true"),
    ],
    ids=str,
)
def test_clients_repeat_only_what_has_had_no_effect(
    error: Exception, status: int, again: str
) -> None:
    """OpenAI's client obeys the header."""
    response = refusal(error)

    assert (response.status_code, response.headers["x-should-retry"]) == (status, again)
    assert "a bug" not in bytes(response.body).decode()


@pytest.mark.accepts("H22", "H140")
@settings(every_turn, max_examples=examples(60))
@given(any_turn)
def test_events_of_every_turn_are_valid_and_make_its_output(played: Played) -> None:
    """Whatever calls, waits, errors and ends it has; a part of the facts makes the beginning of
    the same events.
    """
    _, events = composed(played.facts)
    middle = len(played.facts) // 2
    _, begun = composed(played.facts[:middle])

    assert events[: len(begun)] == begun


@pytest.mark.accepts("H22", "H25", "H140")
@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
async def test_events_of_stored_histories_are_valid(path: Any) -> None:
    """Also of turns that earlier releases have run."""
    reader, facts = HistoryReader(DataConverter.default), list[Recorded]()
    for event in stored(path).events:
        facts += await reader.facts(event)
    response, events = composed(facts)
    outcome = OUTCOMES[path.stem]
    otherwise = "completed" if outcome is Outcome.COMPLETED else "failed"

    expected = STATUS.get(path.stem, otherwise) if outcome is not None else "in_progress"
    assert response["status"] == expected
    assert json.loads(json.dumps(events)) == events
