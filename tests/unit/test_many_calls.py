"""Answers with many calls, without a workflow: the work per call does not grow with their
number.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.turn.decide import Act, moves_at_once
from perdure.turn.facts import AgentResolved, ModelAnswered, Scheduled, ToolReturned, TurnStarted
from perdure.turn.fold import apply, fold
from perdure.turn.history_limits import check_batch
from perdure.turn.keys import AgentKey, ModelKey
from perdure.turn.state import TurnState
from perdure.turn.wire import ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import Budget
from perdure.values.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    closed,
    with_plain_ids,
    with_unique_ids,
)
from perdure.values.reports import Usage
from perdure.values.tasks import Task
from perdure.workflows.turn.ui_details import card

FEW, MANY = 100, 800
NOW = datetime(2026, 11, 22, tzinfo=UTC)
LOOK = ToolDefinition(
    name="look",
    description="",
    parameters={},
    activity="look",
    is_idempotent=True,
    timeout_s=1,
    schema_digest="",
)
AGENT = AgentDefinition(name="x", instructions="", model="a:m", tools=(LOOK,), parallel_tools=True)


def steps_of(action: Callable[[], object]) -> int:
    """The number of function calls in an action, including each item of a generator."""
    count = 0

    def seen(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def asking(
    count: int, ids: Callable[[int], str] = "c{}".format, arguments: str = "{}"
) -> AssistantMessage:
    """An answer with this number of calls."""
    return AssistantMessage(
        parts=tuple(
            ToolCall(id=ids(number), name="look", arguments=arguments) for number in range(count)
        )
    )


def answered(count: int, arguments: str = "{}") -> TurnState:
    """The state of a turn whose model has made this number of calls in one answer."""
    request = TurnRequest(agent="x", task=Task(content="go"), budget=Budget(tool_calls=10**6))
    answer = ModelAnswer(
        message=asking(count, arguments=arguments), usage=Usage(input_tokens=1, output_tokens=1)
    )
    return fold(
        [
            TurnStarted(request),
            AgentResolved(AgentKey(), AGENT),
            Scheduled(ModelKey(1)),
            ModelAnswered(ModelKey(1), answer),
        ]
    )


def run_all(count: int, *, backwards: bool = False) -> None:
    """Schedule, display and complete every call of an answer."""
    state = answered(count)
    keys = [move.key for move in moves_at_once(state, AGENT) if isinstance(move, Act)]
    for key in keys:
        state = apply(state, Scheduled(key))
        card(state, "look", NOW, None)
    for key in reversed(keys) if backwards else keys:
        state = apply(state, ToolReturned(key, ToolOutput(content="seen")))
    assert len(state.steps[0].results) == count
    assert (
        dict(state.in_flight),
        dict(state.accounts.ledger.held),
        state.accounts.ledger.spent.tool_calls,
    ) == ({}, {}, count)


def close_all(count: int, *, backwards: bool = False) -> None:
    """Match every call of a history with its result."""
    asked = asking(count)
    results = [ToolResult(call_id=call.id, name="look", content=call.id) for call in asked.calls]
    _, given = closed(
        [asked, ToolMessage(results=tuple(reversed(results) if backwards else results))]
    )
    assert given == ToolMessage(results=tuple(results))


@pytest.mark.accepts("L23")
@pytest.mark.parametrize(
    "work",
    [
        run_all,
        lambda count: run_all(count, backwards=True),
        close_all,
        lambda count: close_all(count, backwards=True),
        lambda count: with_unique_ids(asking(count), frozenset(), "call_1"),
        lambda count: with_unique_ids(
            asking(count, lambda _: "same"), frozenset({"same"}), "call_1"
        ),
        lambda count: with_plain_ids(asking(count, "c {}".format)),
    ],
    ids=[
        "calls",
        "calls that return backwards",
        "history",
        "history backwards",
        "ids",
        "same ids",
        "plain ids",
    ],
)
def test_work_is_linear_in_the_number_of_calls(work: Callable[[int], object]) -> None:
    """Eight times as many calls are about eight times the work, instead of up to 64 times."""
    work(1)

    assert steps_of(lambda: work(MANY)) < 12 * steps_of(lambda: work(FEW))


@pytest.mark.accepts("L24")
def test_calls_at_once_that_may_bring_too_much_are_refused() -> None:
    """The upper bound of their arguments and results counts; a single call may always be made."""
    state = answered(limits.CALLS)
    moves = moves_at_once(state, AGENT)

    check_batch(state, moves, 20_000_000)
    check_batch(state, moves[:1], limits.HISTORY_BYTES)
    with pytest.raises(
        errors.TooLargeError, match=r"25000000 bytes, and 64 tool calls at once may bring \d+ more"
    ) as refused:
        check_batch(state, moves, 25_000_000)
    assert (refused.value.context["calls"], refused.value.context["limit"]) == (
        64,
        limits.SERVER_BYTES,
    )
    long = answered(2, arguments="\0" * 200_000)
    with pytest.raises(errors.TooLargeError):
        check_batch(long, moves_at_once(long, AGENT), limits.SERVER_BYTES - 3_000_000)


@pytest.mark.accepts("L24")
def test_calls_at_once_that_are_given_too_much_are_refused() -> None:
    """A person may edit the arguments of each call, and the server accepts no message of 4 MB."""
    check_batch(answered(2), moves_at_once(answered(2, "x" * 1_400_000), AGENT), 0)
    edited = answered(3, "x" * 1_400_000)
    with pytest.raises(
        errors.TooLargeError, match=r"3 tool calls at once are given \d+ bytes, more than 3000000"
    ):
        check_batch(edited, moves_at_once(edited, AGENT), 0)


@pytest.mark.accepts("L25")
@given(
    st.lists(
        st.text(max_size=70) | st.from_regex(r"[A-Za-z0-9_.:-]{1,64}", fullmatch=True), max_size=8
    )
)
def test_ids_of_calls_are_plain_and_unique_whatever_a_model_gives(ids: list[str]) -> None:
    """A plain and unique id is kept."""
    message = AssistantMessage(parts=tuple(ToolCall(id=one, name="look") for one in ids))

    made = [
        call.id
        for call in with_unique_ids(with_plain_ids(message), frozenset({"taken"}), "call_1").calls
    ]

    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", one) for one in made)
    kept = {one for one in ids if re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", one)} - {"taken"}
    assert kept <= set(made)
