"""The API for callers: start turns, follow them and read their reports.

It needs neither the code of an agent nor Temporal's own classes.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.clients.auditing.entries import AuditEntry
    from perdure.clients.batches.handle import Batch
    from perdure.clients.batches.items import BatchOf
    from perdure.clients.batches.listing import BatchEntry
    from perdure.clients.batches.status import BatchResult, BatchStatus, TaskState
    from perdure.clients.client import AgentClient
    from perdure.clients.erasing.receipts import ErasureReceipt
    from perdure.clients.handles import Entry, Handle, Status
    from perdure.clients.reading.events import CaughtUp, Event
    from perdure.clients.reading.lists import Listing, Page
    from perdure.clients.reading.live_text import TextBegins, TextVoid
    from perdure.clients.reading.tool_progress import ToolProgress
    from perdure.clients.reading.tree_text import TurnText
    from perdure.clients.schedules.handle import Schedule
    from perdure.clients.schedules.status import (
        ScheduledTurn,
        ScheduleEntry,
        ScheduleResult,
        ScheduleStatus,
    )
    from perdure.clients.sessions.handle import Session
    from perdure.clients.sessions.listing import SessionEntry
    from perdure.clients.sessions.readable import (
        Conversation,
        MessageStatus,
        SessionEvent,
        SessionStatus,
    )
    from perdure.clients.sessions.sent import Sent
    from perdure.clients.turns.by_version import VersionSummary
    from perdure.clients.turns.changes import Change
    from perdure.clients.turns.decisions import DecidedCall
    from perdure.clients.turns.deliveries import WebhookDelivery
    from perdure.clients.turns.entries import TurnEntry
    from perdure.clients.turns.forks import Effect
    from perdure.clients.turns.handle import Turn
    from perdure.clients.turns.status import ChildStatus, Spent, TurnStatus, Wait
    from perdure.temporal.encryption.rewrapping import RewrapReceipt, UnreadableKey
    from perdure.values.client_tools import ClientCall
    from perdure.values.states import State
else:
    from perdure import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "perdure.clients.client": ["AgentClient"],
            "perdure.clients.auditing.entries": ["AuditEntry"],
            "perdure.clients.handles": ["Entry", "Handle", "Status"],
            "perdure.clients.batches.handle": ["Batch"],
            "perdure.clients.batches.items": ["BatchOf"],
            "perdure.clients.batches.listing": ["BatchEntry"],
            "perdure.clients.batches.status": [
                "BatchResult",
                "BatchStatus",
                "TaskState",
            ],
            "perdure.clients.erasing.receipts": ["ErasureReceipt"],
            "perdure.clients.turns.changes": ["Change"],
            "perdure.clients.turns.decisions": ["DecidedCall"],
            "perdure.clients.turns.deliveries": ["WebhookDelivery"],
            "perdure.clients.turns.by_version": ["VersionSummary"],
            "perdure.clients.turns.entries": ["TurnEntry"],
            "perdure.clients.reading.tree_text": ["TurnText"],
            "perdure.clients.reading.events": ["CaughtUp", "Event"],
            "perdure.clients.turns.forks": ["Effect"],
            "perdure.clients.reading.lists": ["Listing", "Page"],
            "perdure.clients.reading.live_text": ["TextBegins", "TextVoid"],
            "perdure.clients.sessions.listing": ["SessionEntry"],
            "perdure.clients.sessions.handle": ["Session"],
            "perdure.clients.sessions.sent": ["Sent"],
            "perdure.clients.sessions.readable": [
                "Conversation",
                "MessageStatus",
                "SessionEvent",
                "SessionStatus",
            ],
            "perdure.clients.schedules.handle": ["Schedule"],
            "perdure.clients.schedules.status": [
                "ScheduleEntry",
                "ScheduleResult",
                "ScheduleStatus",
                "ScheduledTurn",
            ],
            "perdure.clients.turns.status": ["ChildStatus", "Spent", "TurnStatus", "Wait"],
            "perdure.clients.reading.tool_progress": ["ToolProgress"],
            "perdure.clients.turns.handle": ["Turn"],
            "perdure.temporal.encryption.rewrapping": ["RewrapReceipt", "UnreadableKey"],
            "perdure.values.client_tools": ["ClientCall"],
            "perdure.values.states": ["State"],
        },
    )

__all__ = [
    "AgentClient",
    "AuditEntry",
    "Batch",
    "BatchEntry",
    "BatchOf",
    "BatchResult",
    "BatchStatus",
    "CaughtUp",
    "Change",
    "ChildStatus",
    "ClientCall",
    "Conversation",
    "DecidedCall",
    "Effect",
    "Entry",
    "ErasureReceipt",
    "Event",
    "Handle",
    "Listing",
    "MessageStatus",
    "Page",
    "RewrapReceipt",
    "Schedule",
    "ScheduleEntry",
    "ScheduleResult",
    "ScheduleStatus",
    "ScheduledTurn",
    "Sent",
    "Session",
    "SessionEntry",
    "SessionEvent",
    "SessionStatus",
    "Spent",
    "State",
    "Status",
    "TaskState",
    "TextBegins",
    "TextVoid",
    "ToolProgress",
    "Turn",
    "TurnEntry",
    "TurnStatus",
    "TurnText",
    "UnreadableKey",
    "VersionSummary",
    "Wait",
    "WebhookDelivery",
]
