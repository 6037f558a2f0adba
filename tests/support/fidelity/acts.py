"""What people do to turns and sessions, in the simulator and on a real server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure

from perdure.session.state import SessionState
from perdure.session.wire import Disposition
from perdure.temporal.names import INTERRUPT, SAY
from perdure.testing.simulation.server.sdk import CONVERTER
from perdure.turn.state import TurnState

CANCEL, TERMINATE, FILL, RESET = "cancel", "terminate", "fill", "reset"
"""What people do besides sending updates. To fill a run is to send signals with so much in them
that it has to go on in a new run; nobody reads that.
"""
REASON = "enough"
OPERATOR = "by an operator"
"""The reason for which the simulator terminates a run."""
FILLING = CONVERTER.payload_converter.to_payload("x" * 1_700_000)
FILLS = 5
"""With so many of these signals a run is full, and with one fewer it is far from that."""
OVER = "it is over"
"""The answer to what is sent to a workflow that is over, or ends before it has answered."""


class Empty(BaseModel):
    """The input of an update that needs none."""


@dataclass(frozen=True)
class Act:
    """Something that people do.

    Attributes:
        to: The id of the workflow that it is done to.
        name: The name of an update, or one of the names above.
        id: The id of the update.
        content: The input of the update.
        point: What the workflow task does to which a run is reset.
    """

    to: str
    name: str
    id: str = ""
    content: BaseModel = field(default_factory=Empty)
    point: str = ""


@dataclass(frozen=True)
class Scene:
    """What people see when nothing happens any more, unless they do something.

    Attributes:
        waiting: The turns that wait for a person, by their ids.
        session: The state of the session; None if there is none.
        points: The points to which the open runs can be reset, by the ids of their workflows.
    """

    waiting: Mapping[str, TurnState]
    session: SessionState | None
    points: Mapping[str, Sequence[str]]


def stops(act: Act, answer: str, answered: Iterable[tuple[str, str]]) -> bool:
    """Whether the turn that runs is cancelled, as was answered.

    `answered` has the updates before: if this one is among them, it has no effect, and the answer
    is the first one.
    """
    if act.id and any(act.id == other for other, _ in answered):
        return False
    match act.name:
        case "cancel":
            return True
        case name if name == INTERRUPT:
            return '"done":true' in answer
        case name if name == SAY:
            return f'"{Disposition.INTERRUPTING}"' in answer
        case _:
            return False


def answer_of(payloads: Iterable[Payload]) -> str:
    """The result of an update."""
    return "".join(payload.data.decode() for payload in payloads)


def refusal_of(failure: Failure) -> str:
    """The failure of an update, or the reason for which it was refused."""
    return f"{failure.application_failure_info.type}: {failure.message}"
