"""Cards and rows of Temporal's web UI."""

from collections.abc import Iterable
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

SHOWN = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
}
"""Each of them is a row of the timeline."""


async def card_of(client: Client, turn_id: str) -> str:
    """The current details."""
    found: Any = await client.get_workflow_handle(turn_id).query("__temporal_workflow_metadata")
    return str(found.current_details).replace("\u00a0", "")


async def rows_of(client: Client, events: Iterable[HistoryEvent]) -> list[str]:
    """The summaries of the timeline's rows, in order."""
    shown = [event for event in events if event.event_type in SHOWN]
    return [
        (await client.data_converter.decode([event.user_metadata.summary]))[0] for event in shown
    ]


def waiting_rows(card: str) -> list[str]:
    """The waiting calls on the card."""
    return [line for line in card.splitlines() if line.startswith(("**Waits", "- "))]
