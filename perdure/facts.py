"""Facts: what history has recorded about a turn. The workflow makes them as they happen, every reader makes the same ones from history.

A fact that belongs to an activity carries its key, which is also the activity's id in Temporal: `step-3` asks the model for the third time,
`step-3.call-2` runs the second tool call of that answer, `step-3.call-2.try-2` runs it again because the first attempt was lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from perdure.agents import AgentDefinition
from perdure.errors import ErrorInfo
from perdure.reports import Outcome
from perdure.wire import ModelAnswer, Summary, ToolOutput, TurnRequest

_KEY = re.compile(r"(?:agent|step-(?P<step>\d+)(?:\.call-(?P<call>\d+))?)(?:\.try-(?P<attempt>\d+))?")


@dataclass(frozen=True, slots=True)
class Key:
    """Which activity: step 0 resolves the agent; call 0 is the model call of a step; calls and attempts count from 1."""

    step: int
    call: int = 0
    attempt: int = 1

    def __str__(self) -> str:
        base = f"step-{self.step}" if self.step else "agent"
        base += f".call-{self.call}" if self.call else ""
        return base if self.attempt == 1 else f"{base}.try-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> Key | None:
        """The key that reads `text`; None for an activity that is not ours."""
        match = _KEY.fullmatch(text)
        if match is None:
            return None
        return cls(step=int(match["step"] or 0), call=int(match["call"] or 0), attempt=int(match["attempt"] or 1))


class Loss(StrEnum):
    """Why a tool call has no result of its own."""

    WORKER_LOST = "worker_lost"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The input of the turn."""

    request: TurnRequest


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An activity was handed to the workers."""

    key: Key


@dataclass(frozen=True, slots=True)
class AgentResolved:
    """The definition that the turn is pinned to."""

    key: Key
    agent: AgentDefinition


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model answered."""

    key: Key
    answer: ModelAnswer


@dataclass(frozen=True, slots=True)
class CallFailed:
    """Resolving the agent or calling the model failed. `lost` is set where the worker went away and nobody knows what it did."""

    key: Key
    error: ErrorInfo
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool returned a result, or an error that the model may read."""

    key: Key
    output: ToolOutput


@dataclass(frozen=True, slots=True)
class ToolLost:
    """A tool call ended without a result of its own."""

    key: Key
    loss: Loss
    message: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody asked for the turn to stop."""

    reason: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is over. There is a summary if its code ran to the end, and none after a kill or a cancel."""

    outcome: Outcome
    summary: Summary | None = None
    reason: str = ""


Fact = TurnStarted | Scheduled | AgentResolved | ModelAnswered | CallFailed | ToolReturned | ToolLost | CancelRequested | TurnEnded
