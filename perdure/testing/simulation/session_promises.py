"""What Perdure promises of sessions, as checks of a simulation at its end."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.testing.simulation.observations import (
    MessageFates,
    Simulated,
    answers_to_close,
    answers_to_unqueue,
    failed_updates,
    messages_of_session,
    sent_after_close,
    sessions,
)
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.withheld import TASK_MARK
from perdure.values.messages import UserMessage

_REMINDER = "reminder-"
"""The beginning of the ids of messages that a session sends to itself."""


def messages_once_in_order(simulated: Simulated) -> None:
    """A message that a session has accepted is read by one turn, or left: once, and in order.

    One that a turn has read was sent to its model, and is once in the record that the next turn
    begins with. The others wait in the queue, were taken back, or belong to the turn that a
    cancelled session leaves. Messages that are sent into a running turn pass others; those that
    come too late for it are read in their order.
    """
    for session_id, runs in sessions(simulated.server).items():
        accepted, wishes = messages_of_session(runs)
        fates = MessageFates(fact for run in runs for fact in run.session_facts)
        refused = failed_updates(runs)
        known = [*fates.read, *fates.left, *fates.taken_back]
        known = [one for one in known if one not in refused and not one.startswith(_REMINDER)]
        if sorted(known) != sorted(accepted):
            message = f"{session_id} has accepted {accepted}, and knows {fates}"
            raise BrokenError("session messages once, in order", message)
        plain = [one for one in accepted if wishes[one] != "steer"]
        in_order = [one for one in (*fates.read, *fates.left) if one in plain]
        if in_order != [one for one in plain if one in in_order]:
            message = f"{session_id} has accepted {plain}, and reads {in_order}"
            raise BrokenError("session messages once, in order", message)
        for came_back in fates.came_back:
            if came_back != [one for one in accepted if one in came_back]:
                message = f"{came_back} came too late for a turn, and are read in this order"
                raise BrokenError("session messages once, in order", message, runs[-1])
        if fates.held:
            message = f"{fates.held} came when a turn was over, and wait for another message"
            raise BrokenError("session messages once, in order", message, runs[-1])
        _check_taken_back(runs, fates)
        _check_record(simulated, runs[-1], fates)
        if not any(run.is_cancelled for run in runs):
            _check_close(runs, fates)


def _check_record(simulated: Simulated, last: SimulatedRun, fates: MessageFates) -> None:
    """Check that each message that was read was sent to a model, and is in the record once.

    There is a mark in the place of each that the checks of its agent have not let pass.
    """
    people = simulated.people
    texts = [one.text for one in last.session.messages if isinstance(one, UserMessage)]
    withheld = sum(text.startswith(TASK_MARK) for text in texts)
    for message_id in fates.read:
        text = people.texts[message_id]
        shown, turn = repr(text)[1:-1], fates.turn_of.get(message_id)
        sent = turn is None or any(
            request.turn_id == turn and shown in request.text
            for request in simulated.world.requests
        )
        if not sent:
            message = f"{message_id} counts as read by {turn}, whose models were not sent it"
            raise BrokenError("session messages once, in order", message)
        if text not in texts and withheld:
            withheld -= 1
            continue
        if not last.session.dropped and texts.count(text) != 1:
            message = f"{message_id} is {texts.count(text)} times in the record"
            raise BrokenError("session messages once, in order", message)


def _check_taken_back(runs: Sequence[SimulatedRun], fates: MessageFates) -> None:
    """Check that whoever has taken a message back was told so, and nobody else."""
    answers = list(answers_to_unqueue(runs))
    done = {message_id for message_id, is_done in answers if is_done}
    unanswered = {message_id for message_id, is_done in answers if is_done is None}
    if not done <= set(fates.taken_back) <= done | unanswered:
        told = f"{sorted(done)} are said to be taken back, and {fates.taken_back} were"
        raise BrokenError("session messages once, in order", told, runs[-1])


def _check_close(runs: Sequence[SimulatedRun], fates: MessageFates) -> None:
    """Check that an answer to a close, when no turn runs, names all messages that are left.

    One that was accepted before and is handled after it is named at the end of the run, and what it
    has named may be taken back in the same workflow task.
    """
    later = sent_after_close(runs)
    for named in answers_to_close(runs):
        may_be_named = {*fates.left, *fates.taken_back}
        if not set(fates.left) - later <= set(named) <= may_be_named:
            told = f"a close has named {named}, and left are {fates.left}"
            raise BrokenError("session messages once, in order", told, runs[-1])
