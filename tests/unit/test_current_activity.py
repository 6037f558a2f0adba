"""The current activity of a turn as text, derived from its facts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from perdure import Budget
from perdure.clients.cli.drawing.hints import CommandHints, spent
from perdure.clients.reading.current_activity import doing, is_stopped
from perdure.clients.reading.events import Event
from perdure.clients.reading.tree import Node
from perdure.turn.child import Child
from perdure.turn.effect_values import Doubt
from perdure.turn.facts import CancelRequested, Fact, TurnEnded, TurnStarted, WaitBegan, WaitEnded
from perdure.turn.keys import AgentKey, ChildKey, HookKey, ModelKey, PolicyKey, ToolKey, VerifyKey
from perdure.turn.ledger import Ledger
from perdure.turn.open_step import OpenCall, OpenStep
from perdure.turn.state import Accounts, TurnState
from perdure.turn.waiting import Waiting
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import Spending
from perdure.values.messages import AssistantMessage, ToolCall
from perdure.values.moments import period_in_words
from perdure.values.reports import Outcome
from perdure.values.tasks import Task

ASKED = ModelAnswer(
    message=AssistantMessage(
        parts=(ToolCall(id="1", name="search"), ToolCall(id="2", name="fetch"))
    )
)
TWO_CALLS = OpenStep(answer=ASKED, calls=tuple(map(OpenCall, ASKED.message.calls)))
IN_DOUBT = TWO_CALLS.with_call(2, OpenCall(ASKED.message.calls[1], doubt=Doubt(reason="lost")))
CHILD = Child(
    ChildKey(1, 1, 1),
    "page/writer-1",
    TurnRequest(agent="writer", task=Task(content="Write.")),
    Spending(),
)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TurnState(), "waits for a worker"),
        (TurnState(in_flight=dict.fromkeys([AgentKey()], "")), "agent  looks the agent up"),
        (TurnState(in_flight={ModelKey(2): "openai:gpt"}), "step-2  asks openai:gpt"),
        (TurnState(in_flight=dict.fromkeys([ModelKey(2)], "")), "step-2  asks the model"),
        (
            TurnState(in_flight=dict.fromkeys([ToolKey(1, 2)], ""), open_step=TWO_CALLS),
            "step-1.call-2  runs fetch",
        ),
        (
            TurnState(
                in_flight=dict.fromkeys([ToolKey(1, 1), ToolKey(1, 2)], ""), open_step=TWO_CALLS
            ),
            "step-1.call-1  runs search, runs fetch",
        ),
        (
            TurnState(in_flight=dict.fromkeys([PolicyKey(1, 1)], ""), open_step=TWO_CALLS),
            "step-1.call-1.policy  asks the policy about search",
        ),
        (TurnState(in_flight=dict.fromkeys([HookKey("before", 1)], "")), "before-1  middleware"),
        (TurnState(in_flight=dict.fromkeys([HookKey("observe", 4)], "")), "observe-4  observers"),
        (
            TurnState(in_flight=dict.fromkeys([CHILD.key], ""), children=(CHILD,)),
            "1 delegate at work",
        ),
        (TurnState(children=(CHILD, CHILD, replace(CHILD, ended=True))), "2 delegates at work"),
        (TurnState(open_step=IN_DOUBT), "step-1.call-2  waits before fetch is looked up"),
        (
            TurnState(in_flight=dict.fromkeys([VerifyKey(1, 2)], ""), open_step=IN_DOUBT),
            "step-1.call-2.verify  looks up whether fetch has taken effect",
        ),
        (TurnState(waiting=Waiting("retry", "slow down")), "asks again in a moment"),
        (TurnState(waiting=Waiting("approval", "somebody has to")), "waits for approval"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_happens_now_is_said(state: TurnState, words: str) -> None:
    """If several things happen at once, all of them."""
    assert doing(state) == words


def test_time_stands_still_only_while_nothing_but_people_can_help() -> None:
    """A waiting delegate does not stop the time of one that works."""
    waits = replace(CHILD, waits_for="approval")
    works = replace(CHILD, key=ChildKey(1, 1, 2))

    assert is_stopped(TurnState(waiting=Waiting("budget", "spent")))
    assert not is_stopped(TurnState(waiting=Waiting("retry", "slow down")))
    assert is_stopped(TurnState(in_flight=dict.fromkeys([waits.key], ""), children=(waits,)))
    assert not is_stopped(
        TurnState(in_flight=dict.fromkeys([waits.key, works.key], ""), children=(waits, works))
    )


def test_what_is_spent_is_said_of_each_limit() -> None:
    """Only for limits that exist; time is never more than the limit."""
    budget = Budget(usd="0.5", time=timedelta(minutes=10), tokens=5_000, tool_calls=3)
    spending = Spending(usd=Decimal("0.02"), tokens=1_280, model_calls=2, tool_calls=1)

    assert spent(TurnState(), spending, timedelta(seconds=5)) == ""
    assert spent(TurnState(accounts=Accounts(Ledger(budget))), spending, timedelta(seconds=75)) == (
        "spent $0.02 of $0.50, 1280 of 5000 tokens, 1 of 3 tool calls, 1 min 15 s of 10 min"
    )
    assert (
        spent(
            TurnState(accounts=Accounts(Ledger(Budget(time=timedelta(seconds=2))))),
            spending,
            timedelta(seconds=5),
        )
        == "spent 2 s of 2 s"
    )


def test_commands_are_for_the_same_server_and_can_be_copied() -> None:
    """With quotes for a shell if an id needs them, and harmless in a terminal."""
    paused = TurnState(
        waiting=Waiting("budget", "spent"), accounts=Accounts(Ledger(Budget(usd="1", tool_calls=3)))
    )

    assert CommandHints().of("show", "ticket 1") == "perdure show 'ticket 1'"
    assert (
        CommandHints("temporal:7233").that_help("t", TurnState(waiting=Waiting("approval", "ask")))
        == "perdure approvals t --address temporal:7233"
    )
    assert (
        CommandHints().that_help("t", paused) == "perdure add-budget t --usd AMOUNT --tool-calls N"
    )
    assert CommandHints().of("show", "\x1b[2J") == "perdure show '\\u001b[2J'"


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (timedelta(seconds=-3), "0 s"),
        (timedelta(seconds=0.9), "0 s"),
        (timedelta(seconds=59), "59 s"),
        (timedelta(minutes=10), "10 min"),
        (timedelta(minutes=61, seconds=5), "1 h 1 min"),
        (timedelta(days=2, minutes=5), "2 d"),
    ],
)
def test_time_is_told_in_its_two_largest_units(time: timedelta, words: str) -> None:
    """Clock skew gives no negative times."""
    assert period_in_words(time) == words


def test_time_of_a_turn_leaves_out_waits_for_people() -> None:
    """It stops at the turn's end, like the budget's."""
    began = datetime(2030, 1, 1, tzinfo=UTC)
    node = Node("page")
    facts: dict[int, Fact] = {
        0: TurnStarted(TurnRequest(agent="writer", task=Task(content="Write."))),
        10: WaitBegan("approval", "somebody has to approve"),
        40: WaitEnded(),
        45: CancelRequested("enough"),
    }
    elapsed = {}
    for second, fact in facts.items():
        node.see(Event("", began + timedelta(seconds=second), fact))
        elapsed[second] = node.elapsed(began + timedelta(seconds=second + 4)).total_seconds()
    node.see(Event("", began + timedelta(seconds=50), TurnEnded(Outcome.CANCELLED)))

    assert elapsed == {0: 4, 10: 10, 40: 14, 45: 19}
    assert node.elapsed(began + timedelta(days=1)) == timedelta(seconds=20)
