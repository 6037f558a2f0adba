"""What a session records of a turn."""

import pytest

from perdure.temporal.histories.turn_records import own_messages
from perdure.turn.facts import TurnStarted
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.turn.wire import Origin, TurnRequest
from perdure.values.messages import UserMessage
from perdure.values.tasks import Task


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
