"""The page of mistakes agrees with the current messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta

import pytest

from perdure import Budget, MCPServer, ModelRetryPolicy, RequireApproval, Tool, errors, limits
from perdure.activities.providers import connect
from perdure.clients.batches.items import _item
from perdure.clients.sessions.handle import session_request
from perdure.temporal.start_request import turn_request
from perdure.testing import says, slowly

from ..support.bad_input.mistakes import PAGE, page, rows


@pytest.mark.accepts("P31")
def test_every_mistake_is_answered_in_words_of_ours_and_the_page_has_them() -> None:
    """Every mistake is found, with our own message instead of a traceback or another library's
    error; `make mistakes` updates the page.
    """
    unanswered = [
        mistake for mistake, words in rows() if words == "nothing" or words.startswith("exit code")
    ]

    assert unanswered == []
    assert len(rows()) > 100
    if sys.version_info[:2] == (3, 11):  # other versions have different messages for a few mistakes
        assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.accepts("P50")
@pytest.mark.parametrize("idle", [30, 0.5, timedelta(0)])
def test_idle_time_of_a_session_is_a_timedelta(idle: object) -> None:
    """A number has no unit."""
    with pytest.raises(errors.InvalidRequestError, match="idle must be a timedelta"):
        session_request("desk", idle=idle)


@pytest.mark.accepts("U15")
def test_labels_of_a_session_are_limited_as_those_of_a_turn() -> None:
    """They go with every tool call of its turns."""
    with pytest.raises(errors.TooLargeError, match="they go with every tool call"):
        session_request("desk", labels={"k": "x" * limits.LABELS_BYTES})


@pytest.mark.accepts("D57")
@pytest.mark.parametrize(
    "build",
    [
        lambda: Budget(time=30),  # type: ignore[arg-type]
        lambda: Budget(time=0.5),  # type: ignore[arg-type]
        lambda: ModelRetryPolicy(maximum_elapsed=30),  # type: ignore[arg-type]
        lambda: RequireApproval(expires=30),  # type: ignore[arg-type]
        lambda: turn_request("desk", "go", delay=30),  # type: ignore[arg-type]
        lambda: turn_request("desk", "go", deadline=30),  # type: ignore[arg-type]
        lambda: MCPServer.stdio("time", ["time"], timeout=30),  # type: ignore[arg-type]
        lambda: Tool(len, name="count", timeout=30),  # type: ignore[arg-type]
        lambda: connect("openai:gpt-5", timeout=30),  # type: ignore[arg-type]
        lambda: says("Hello.", delay=30),  # type: ignore[arg-type]
        lambda: slowly("Hello.", pause=30),  # type: ignore[arg-type]
    ],
)
def test_number_is_no_duration(build: Callable[[], object]) -> None:
    """It does not say whether it counts seconds or minutes."""
    with pytest.raises(errors.PerdureError, match="must be a timedelta"):
        build()


@pytest.mark.accepts("P52")
@pytest.mark.parametrize(
    ("start", "words"),
    [
        (
            lambda: _item({"taks": "a"}, "task 1", "1"),
            "task 1: task is missing; there is no field 'taks'; there are task, id, labels",
        ),
        (
            lambda: turn_request("desk", "go", budget="0.50"),  # type: ignore[arg-type]
            "the turn cannot be started: budget must be a Budget, not '0.50'",
        ),
        (
            lambda: turn_request("desk", "go", history=[{"role": "user"}]),  # type: ignore[list-item]
            "the turn cannot be started: history[0] is no message of Perdure: give UserMessage",
        ),
        (
            lambda: session_request("desk", labels=5),
            "the session cannot be started: labels must be a mapping, such as a dict, not 5",
        ),
    ],
)
def test_start_with_a_wrong_value_is_refused_in_words_of_ours(
    start: Callable[[], object], words: str
) -> None:
    """In a task of a batch, a turn and a session."""
    with pytest.raises(errors.InvalidRequestError) as raised:
        start()

    assert raised.value.message.startswith(words)
