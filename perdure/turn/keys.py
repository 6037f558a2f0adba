"""Keys: the identifiers of activities and of turns of delegates, to which facts belong.

The text of a key is the activity's id in Temporal. `step-3` asks the model for the third time,
`step-3.call-2` runs the second tool call of that answer, `step-3.call-2.try-2` runs it again
because the first attempt was lost or needed an approval first, and `step-4.last` asks for a last
answer because the budget is spent. `step-3.call-2.policy` asks the agent's policy about that call,
and `step-3.call-2.verify` finds out whether it has taken effect. `step-3.call-2.poll` asks for the
result of the job that it has started, and `step-3.call-2.cancel` cancels that job.
`before-1`, `message-2`, `after-1` and `observe-4` are hooks: middleware and observers.
`step-3.call-1.child-2` is the turn of a delegate: its lease is reserved under this key; its own id
is readable. `step-3.call-1.child-2.read` reads the history of that turn, if it ended without a
summary.
`step-3.call-1.agent` resolves the agent to which that call hands the turn over.
`carry-1` carries over the first part of another run's state.

Steps, calls, children and attempts count from 1. A key without a step or a call has 0 there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

Moment = Literal["before", "message", "after", "observe"]

_KEY = re.compile(
    r"(?:agent"
    r"|step-(?P<step>\d+)(?:\.(?P<last>last)|\.call-(?P<call>\d+)(?:\.(?P<about>policy|verify|poll|cancel|agent)|\.child-(?P<child>\d+)(?P<read>\.read)?)?)?"
    r"|(?P<hook>before|message|after|observe)-(?P<place>\d+)"
    r"|carry-(?P<part>\d+)"
    r")(?:\.try-(?P<attempt>\d+))?"
)


@dataclass(frozen=True, slots=True)
class AgentKey:
    """The key of the activity that resolves the agent: `agent`."""

    step: ClassVar[int] = 0
    call: ClassVar[int] = 0
    attempt: int = 1

    def __str__(self) -> str:
        return _text("agent", self.attempt)


@dataclass(frozen=True, slots=True)
class CarryKey:
    """The key of the activity that carries over a part of another run's state: `carry-1`."""

    step: ClassVar[int] = 0
    call: ClassVar[int] = 0
    part: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"carry-{self.part}", self.attempt)


@dataclass(frozen=True, slots=True)
class ModelKey:
    """The key of a model call: `step-3`, or `step-3.last` for the last answer of the turn."""

    call: ClassVar[int] = 0
    step: int
    attempt: int = 1
    is_last: bool = False

    def __str__(self) -> str:
        return _text(
            f"step-{self.step}.last" if self.is_last else f"step-{self.step}", self.attempt
        )


@dataclass(frozen=True, slots=True)
class ToolKey:
    """The key of a tool call: `step-3.call-2`."""

    step: int
    call: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"step-{self.step}.call-{self.call}", self.attempt)


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """The key of a question to the agent's policy about a call: `step-3.call-2.policy`."""

    step: int
    call: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"step-{self.step}.call-{self.call}.policy", self.attempt)


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """The key of a read-back, which finds out what became of a call: `step-3.call-2.verify`."""

    step: int
    call: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"step-{self.step}.call-{self.call}.verify", self.attempt)


@dataclass(frozen=True, slots=True)
class PollKey:
    """The key of the polls for the result of a job: `step-3.call-2.poll`."""

    step: int
    call: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"step-{self.step}.call-{self.call}.poll", self.attempt)


@dataclass(frozen=True, slots=True)
class StopKey:
    """The key of the request to cancel a job: `step-3.call-2.cancel`."""

    step: int
    call: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"step-{self.step}.call-{self.call}.cancel", self.attempt)


@dataclass(frozen=True, slots=True)
class HandoffKey:
    """The key of the activity that resolves the agent of a handoff: `step-3.call-1.agent`."""

    step: int
    call: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"step-{self.step}.call-{self.call}.agent", self.attempt)


@dataclass(frozen=True, slots=True)
class HookKey:
    """The key of a hook, which is code of the agent outside its steps: `before-1`."""

    step: ClassVar[int] = 0
    moment: Moment
    place: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"{self.moment}-{self.place}", self.attempt)


@dataclass(frozen=True, slots=True)
class ChildKey:
    """The key of a delegate's turn that a call started: `step-3.call-1.child-2`."""

    step: int
    call: int
    child: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"step-{self.step}.call-{self.call}.child-{self.child}", self.attempt)

    @property
    def read(self) -> ReadKey:
        """The key of the activity that reads its history."""
        return ReadKey(self.step, self.call, self.child, self.attempt)


@dataclass(frozen=True, slots=True)
class ReadKey:
    """The key of a read of the history of a delegate's turn: `step-3.call-1.child-2.read`."""

    step: int
    call: int
    child: int
    attempt: int = 1

    def __str__(self) -> str:
        return _text(f"step-{self.step}.call-{self.call}.child-{self.child}.read", self.attempt)

    @property
    def of(self) -> ChildKey:
        """The key of the turn."""
        return ChildKey(self.step, self.call, self.child, self.attempt)


ActivityKey = (
    AgentKey
    | CarryKey
    | ModelKey
    | ToolKey
    | PolicyKey
    | VerifyKey
    | PollKey
    | StopKey
    | HandoffKey
    | HookKey
    | ReadKey
)
CallKey = ToolKey | PolicyKey | VerifyKey | PollKey | StopKey | HandoffKey | ChildKey | ReadKey
"""The keys that belong to a tool call."""
Key = ActivityKey | ChildKey


_ABOUT_CALLS: dict[
    str, type[PolicyKey] | type[VerifyKey] | type[PollKey] | type[StopKey] | type[HandoffKey]
] = {
    "policy": PolicyKey,
    "verify": VerifyKey,
    "poll": PollKey,
    "cancel": StopKey,
    "agent": HandoffKey,
}
"""The keys of activities that are about a call, by the end of their text."""


def parse_key(text: str) -> Key | None:
    """Return the key with this text; None for an activity that is not Perdure's."""
    match = _KEY.fullmatch(text)
    if match is None:
        return None
    attempt = int(match["attempt"] or 1)
    if match["hook"]:
        return HookKey(cast("Moment", match["hook"]), int(match["place"]), attempt)
    if match["part"]:
        return CarryKey(int(match["part"]), attempt)
    if not match["step"]:
        return AgentKey(attempt)
    step, call = int(match["step"]), int(match["call"] or 0)
    if match["child"]:
        child = ChildKey(step, call, int(match["child"]), attempt)
        return child.read if match["read"] else child
    if match["about"]:
        return _ABOUT_CALLS[match["about"]](step, call, attempt)
    return (
        ToolKey(step, call, attempt)
        if match["call"]
        else ModelKey(step, attempt, is_last=bool(match["last"]))
    )


def _text(base: str, attempt: int) -> str:
    return base if attempt == 1 else f"{base}.try-{attempt}"
