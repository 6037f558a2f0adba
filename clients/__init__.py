"""The API for callers: start turns, follow them and read their reports.

It needs neither the code of an agent nor Temporal's own classes.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.clients.agent_client import AgentClient
    from perdure.clients.batches.batch import Batch
    from perdure.clients.batches.items import BatchOf
    from perdure.clients.batches.values import BatchResult, BatchState, BatchStatus, TaskState
    from perdure.clients.entries import TurnEntry
    from perdure.clients.events import CaughtUp, Event
    from perdure.clients.forks import Effect
    from perdure.clients.listing import Listing, Page
    from perdure.clients.live_text import TextBegins, TextVoid
    from perdure.clients.schedules.schedule import Schedule
    from perdure.clients.schedules.status import ScheduledTurn, ScheduleEntry, ScheduleStatus
    from perdure.clients.session_listing import SessionEntry
    from perdure.clients.sessions import (
        Conversation,
        MessageStatus,
        Sent,
        Session,
        SessionEvent,
        SessionStatus,
    )
    from perdure.clients.status import ChildStatus, Spent, TurnStatus, Wait
    from perdure.clients.tool_progress import ToolProgress
    from perdure.clients.turn import Turn
else:
    from perdure import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "perdure.clients.agent_client": ["AgentClient"],
            "perdure.clients.batches.batch": ["Batch"],
            "perdure.clients.batches.items": ["BatchOf"],
            "perdure.clients.batches.values": [
                "BatchResult",
                "BatchState",
                "BatchStatus",
                "TaskState",
            ],
            "perdure.clients.entries": ["TurnEntry"],
            "perdure.clients.events": ["CaughtUp", "Event"],
            "perdure.clients.forks": ["Effect"],
            "perdure.clients.listing": ["Listing", "Page"],
            "perdure.clients.live_text": ["TextBegins", "TextVoid"],
            "perdure.clients.session_listing": ["SessionEntry"],
            "perdure.clients.sessions": [
                "Conversation",
                "MessageStatus",
                "Sent",
                "Session",
                "SessionEvent",
                "SessionStatus",
            ],
            "perdure.clients.schedules.schedule": ["Schedule"],
            "perdure.clients.schedules.status": [
                "ScheduleEntry",
                "ScheduleStatus",
                "ScheduledTurn",
            ],
            "perdure.clients.status": ["ChildStatus", "Spent", "TurnStatus", "Wait"],
            "perdure.clients.tool_progress": ["ToolProgress"],
            "perdure.clients.turn": ["Turn"],
        },
    )

__all__ = [
    "AgentClient",
    "Batch",
    "BatchOf",
    "BatchResult",
    "BatchState",
    "BatchStatus",
    "CaughtUp",
    "ChildStatus",
    "Conversation",
    "Effect",
    "Event",
    "Listing",
    "MessageStatus",
    "Page",
    "Schedule",
    "ScheduleEntry",
    "ScheduleStatus",
    "ScheduledTurn",
    "Sent",
    "Session",
    "SessionEntry",
    "SessionEvent",
    "SessionStatus",
    "Spent",
    "TaskState",
    "TextBegins",
    "TextVoid",
    "ToolProgress",
    "Turn",
    "TurnEntry",
    "TurnStatus",
    "Wait",
]
