"""What a session records of a turn."""

import pytest

from perdure.agents.definitions import Stage
from perdure.base import replace
from perdure.errors import ErrorInfo, GuardrailError
from perdure.temporal.histories.turn_records import own_messages
from perdure.turn.facts import HookEnded, TurnStarted
from perdure.turn.fold import apply
from perdure.turn.keys import HookKey
from perdure.turn.state import TurnState
from perdure.turn.wire import Origin, TurnRequest
from perdure.turn.withheld import task_has_passed
from perdure.values.messages import UserMessage
from perdure.values.tasks import Task

from ..support.folding import AGENT


@pytest.mark.accepts("E115")
def test_turn_that_ends_while_it_takes_over_messages_has_its_task() -> None:
    """The message that the turn was begun with is not lost."""
    origin = Origin(turn_id="chat", run_id="run", steps=2, digest="", is_session=True)
    request = TurnRequest(
        agent="clerk",
        task=Task(content="second"),
        said=(UserMessage.of("third", id="3"),),
        session="chat",
        origin=origin,
    )
    state = apply(TurnState(), TurnStarted(request))

    assert own_messages(state) == (UserMessage.of("second"),)
    assert [message.id for message in state.unread] == ["3"]


def refusal(noun: str) -> ErrorInfo:
    """How a check refuses the task or a message."""
    return GuardrailError("it is bad", context={"refused": noun}).info()


def check(place: int, error: ErrorInfo | None = None) -> HookEnded:
    """The end of a check of what a turn begins with."""
    return HookEnded(HookKey("before", place), error)


@pytest.mark.accepts("S126")
@pytest.mark.parametrize(
    ("checks", "has_passed"),
    [
        ([], False),
        ([check(1)], False),
        ([check(1), check(3)], True),
        ([check(1), check(3, refusal("the task"))], False),
        ([check(1), check(3, refusal("a message"))], True),
        ([check(1, refusal("a message"))], False),
        ([check(1), HookEnded(HookKey("after", 3), None)], False),
    ],
)
def test_task_has_passed_when_each_check_has_let_it_pass(
    checks: list[HookEnded], has_passed: bool
) -> None:
    """A check that refuses another message has let the task pass; those after it have not."""
    stages = (Stage(name="a", has_before=True), Stage(name="b"), Stage(name="c", has_before=True))
    state = replace(TurnState(), agent=AGENT.model_copy(update={"middleware": stages}))

    assert task_has_passed(state, checks) is has_passed


@pytest.mark.accepts("S126")
def test_task_has_passed_when_a_model_was_asked() -> None:
    """The histories of the first runs, which have the checks, may be deleted."""
    agent = AGENT.model_copy(update={"middleware": (Stage(name="a", has_before=True),)})
    state = replace(TurnState(), agent=agent)
    state = replace(state, accounts=replace(state.accounts, model_calls=1))

    assert task_has_passed(state, [])
