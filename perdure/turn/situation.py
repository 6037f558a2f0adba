"""A turn at a moment: what its next move depends on. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from perdure.agents.definitions import AgentDefinition
from perdure.turn.outages import NO_OUTAGE, Outage
from perdure.turn.state import TurnState


@dataclass(frozen=True)
class Situation:
    """A turn whose agent is resolved, at a moment.

    Attributes:
        state: The state of the turn.
        agent: Its agent.
        time_left: The rest of its time; None without a limit.
        benched: The models that this turn does not ask for now, because they failed.
        outage: The failed model calls of the open step.
    """

    state: TurnState
    agent: AgentDefinition
    time_left: timedelta | None = None
    benched: Collection[str] = ()
    outage: Outage = NO_OUTAGE
