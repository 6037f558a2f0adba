"""What the events of a turn hold: one class for each kind of fact, and the values in them.

`async for event in turn.events()` yields `perdure.clients.Event`; `event.fact` is one of these.
docs/backends.md describes their JSON.
"""

from perdure.turn.facts import (
    AgentResolved,
    ApprovalNeeded,
    BudgetAdded,
    CallFailed,
    CancelRequested,
    ChildEnded,
    ChildRead,
    ChildScheduled,
    ChildTold,
    Decided,
    Fact,
    HookEnded,
    Key,
    Loss,
    ModelAnswered,
    PolicyAnswered,
    Resumed,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    WaitBegan,
    WaitEnded,
)
from perdure.values.approvals import Decision, PendingApproval

__all__ = [
    "AgentResolved",
    "ApprovalNeeded",
    "BudgetAdded",
    "CallFailed",
    "CancelRequested",
    "ChildEnded",
    "ChildRead",
    "ChildScheduled",
    "ChildTold",
    "Decided",
    "Decision",
    "Fact",
    "HookEnded",
    "Key",
    "Loss",
    "ModelAnswered",
    "PendingApproval",
    "PolicyAnswered",
    "Resumed",
    "Scheduled",
    "ToolLost",
    "ToolReturned",
    "TurnEnded",
    "TurnStarted",
    "WaitBegan",
    "WaitEnded",
]
