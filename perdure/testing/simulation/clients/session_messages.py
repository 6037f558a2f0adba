"""Whoever sends the messages of a schedule to its session: the activity of a worker, in a real one.

An attempt does not wait for the answer of the session. It fails instead, as an attempt that is lost
with its worker does, and the next one finds the answer.
"""

from __future__ import annotations

from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from perdure import errors
from perdure.clients.schedules.sending import REFUSED
from perdure.session.scheduled import MessageCall, MessageDelivery
from perdure.session.wire import Receipt, Say
from perdure.temporal import failures
from perdure.temporal.names import SAY, SESSION
from perdure.temporal.payloads import pack, unpack
from perdure.testing.simulation.clients.worker_client import WorkerClient
from perdure.testing.simulation.people import SentRequest
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import Activity, SimulatedRun, Update, UpdateResponse
from perdure.testing.simulation.server.sdk import CONVERTER
from perdure.testing.simulation.server.server import SimulatedServer


class MessageSender:
    """Sends messages to sessions, which the first message begins."""

    def __init__(self, server: SimulatedServer, client: WorkerClient) -> None:
        self._server = server
        self._client = client

    def send(self, activity: Activity) -> MessageDelivery:
        """Send a message; the same id is the same message.

        Raises:
            ApplicationError: The session refuses it, or has not answered yet.
        """
        with failures.typed(REFUSED):
            return self._sent(unpack(RawValue(activity.input), MessageCall))

    def _sent(self, call: MessageCall) -> MessageDelivery:
        session = self._server.last_run_of(call.session_id)
        if session is not None and session.closed and not _has_answered(session, call.id):
            raise errors.SessionClosedError(f"session {call.session_id!r} is closed")
        session = session or self._client.running(SESSION, pack(call.request), call.session_id)
        said = Say(
            text=call.text,
            if_busy=call.if_busy,
            by=call.by,
            expects=call.request.agent,
            parts=call.parts,
        )
        update = self._server.update(session, call.id, SAY, pack(said))
        sent = SentRequest(session.id, call.id, SAY, said, update)
        if not sent.is_answered:
            raise ApplicationError("the session has not answered yet", type="UNAVAILABLE")
        return self._answer(call, session, update)

    def _answer(self, call: MessageCall, session: SimulatedRun, update: Update) -> MessageDelivery:
        """Return what the session says of a message.

        Raises:
            PerdureError: It refuses the message.
        """
        if update.failure is None:
            receipt = _receipt(session, call.id)
            return MessageDelivery(
                id=call.id, turn_id=receipt.turn_id, disposition=receipt.disposition
            )
        cause = CONVERTER.failure_converter.from_failure(
            update.failure, CONVERTER.payload_converter
        )
        refusal = errors.from_info(failures.error_in(cause))
        turn_id = refusal.context.get("turn_id")
        is_busy = isinstance(refusal, errors.SessionBusyError) and call.if_busy == "reject"
        if is_busy and isinstance(turn_id, str):
            return MessageDelivery(id=call.id, turn_id=turn_id)
        raise refusal


def _has_answered(session: SimulatedRun, message_id: str) -> bool:
    """Return whether a run has answered a message: a server knows the answer also after its end."""
    update = session.updates.get(message_id)
    return update is not None and update.answer is UpdateResponse.COMPLETED


def _receipt(session: SimulatedRun, message_id: str) -> Receipt:
    """Return the answer to a message, from the history of the session."""
    for event in session.history.events:
        if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_COMPLETED":
            content = attributes(event)
            if content.meta.update_id == message_id:
                [payload] = content.outcome.success.payloads
                return unpack(RawValue(payload), Receipt)
    raise AssertionError(message_id)
