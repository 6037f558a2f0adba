"""What Perdure promises about schedules that send messages, as a check of a simulated run."""

from __future__ import annotations

from temporalio.common import RawValue

from perdure import errors
from perdure.session.scheduled import MessageDelivery
from perdure.session.wire import IfBusy
from perdure.temporal.names import SCHEDULED_MESSAGE
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.features.schedule_people import CHAT, SchedulePeople
from perdure.testing.simulation.observations import Simulated, messages_of_session, sessions
from perdure.testing.simulation.server.history import attributes
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.slot import IfRunning

PROMISE = "slots start once"

_WISHES: dict[IfRunning, IfBusy] = {"skip": "reject", "queue": "queue", "cancel": "interrupt"}
_REFUSALS = (errors.SessionClosedError.code, errors.TurnBudgetExceededError.code)


def slots_are_messages_once(simulated: Simulated) -> None:
    """A time of a schedule of messages is one message of its session, as `if_running` says.

    It says when it was due. One that the session has not taken says why: a turn ran, or the session
    is closed or has spent its budget.
    """
    people = simulated.people
    if not isinstance(people, SchedulePeople) or not people.sends_messages:
        return
    runs = sessions(simulated.server).get(CHAT, [])
    accepted, wishes = messages_of_session(runs)
    if unknown := sorted(set(accepted) - set(people.schedule.begun)):
        raise BrokenError(PROMISE, f"{unknown} are messages of no time of the schedule")
    for run in simulated.server.runs:
        if run.begun.type == SCHEDULED_MESSAGE:
            _check(run, is_accepted=run.id in accepted)
    for message_id in accepted:
        if wishes[message_id] != _WISHES[people.if_running]:
            message = f"{message_id} is sent as {wishes[message_id]}, not {people.if_running}"
            raise BrokenError(PROMISE, message, runs[-1])


def _check(run: SimulatedRun, *, is_accepted: bool) -> None:
    """Check that the workflow of a message says what has become of it."""
    content = attributes(run.history.events[-1])
    if run.closed == "WORKFLOW_EXECUTION_COMPLETED":
        [payload] = content.result.payloads
        done = unpack(RawValue(payload), MessageDelivery)
        if (done.disposition is not None) != is_accepted:
            raise BrokenError(PROMISE, f"{done} is said, and accepted is {is_accepted}", run)
    elif run.closed == "WORKFLOW_EXECUTION_FAILED":
        kind = content.failure.application_failure_info.type
        if is_accepted or kind not in _REFUSALS:
            raise BrokenError(PROMISE, f"it has failed: {content.failure.message}", run)
