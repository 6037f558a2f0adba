"""`RunningTools`: the tools that are polled for progress."""

from datetime import UTC, datetime

import pytest

from perdure.clients.reading.events import Event
from perdure.clients.reading.tool_progress import RunningTools
from perdure.turn.facts import ApprovalNeeded, Fact, Scheduled, ToolLost, ToolReturned
from perdure.turn.keys import ToolKey
from perdure.turn.wire import ToolOutput
from perdure.values.losses import Loss
from perdure.values.messages import ToolCall

KEY = ToolKey(1, 1)
CALL = ToolCall(id="call_1", name="pay", arguments="{}")


def event(fact: Fact) -> Event:
    return Event("", datetime.now(UTC), fact, calls=(CALL,))


@pytest.mark.parametrize(
    "end",
    [
        ToolReturned(KEY, ToolOutput(content="ok")),
        ToolLost(KEY, Loss.WORKER_LOST, "gone"),
        ApprovalNeeded(KEY, "it has changed"),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_call_is_watched_until_its_attempt_is_over(end: Fact) -> None:
    """Even if it did not run: an approval may take a day, and the server is not polled in the
    meantime.
    """
    running = RunningTools()
    running.see(event(Scheduled(KEY)))
    began = running.is_on
    running.see(event(end))

    assert (began, running.is_on) == (True, False)
