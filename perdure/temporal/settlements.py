"""What people say of calls that no turn waits for: workflows that hold it, and how it is read.

Such a workflow does nothing. Its input is what was said, which holds from its start, also if no
worker has run it yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from urllib.parse import quote

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import WorkflowSerializationContext
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, limits
from perdure.temporal.histories.fetching import first_event
from perdure.temporal.histories.runs import describe, runs_up_to
from perdure.temporal.histories.turn_history import raw_value
from perdure.temporal.names import SETTLEMENT
from perdure.temporal.payloads import unpack
from perdure.text import clip
from perdure.turn import effects
from perdure.turn.effect_values import CallPlace, SettledCall
from perdure.values.effects import EffectRecord

_CALL_CHARACTERS = 200
"""The length of a call's id in the id of a workflow, which has at most 1,000 bytes."""


def workflow_id(place: CallPlace) -> str:
    """Return the id of the workflow that holds what was said of a call.

    The id of a call is that of a provider, so it is quoted, and a long one is replaced.
    """
    call = quote(place.call_id, safe="", errors="replace")
    if len(call) > _CALL_CHARACTERS:
        call = hashlib.sha256(call.encode()).hexdigest()
    return f"settled/{place.turn_id}/{place.step}/{call}"


async def settled(
    client: Client, place: CallPlace, runs: Collection[str] = ()
) -> SettledCall | None:
    """Return what a person has said of a call that no turn waited for; None if nobody has.

    What was said before the turn was reset, or started again, is about another call.

    Args:
        client: Temporal's client.
        place: The call.
        runs: The runs of its turn, if they are known.

    Raises:
        PayloadDecodeError: This process lacks the codec or the key.
        RPCError: The server does not answer.
    """
    try:
        first = await first_event(client, workflow_id(place), "")
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    said = await _said(client, place, first)
    if said is None or said.run_id in (runs or await _runs(client, said)):
        return said
    return None


async def applied(
    client: Client, record: EffectRecord, turn_id: str, runs: Collection[str] = ()
) -> EffectRecord:
    """Return a record of a turn with what a person has said since, if its effect is unknown.

    `runs` are as for `settled`.

    Raises:
        PayloadDecodeError: This process lacks the codec or the key.
        RPCError: The server does not answer.
    """
    if record.status != "unknown":
        return record
    place = CallPlace(record.turn_id or turn_id, record.step, record.call_id)
    said = await settled(client, place, runs)
    if said is None:
        return record
    if said.decision.settlement == "absent":
        return record.model_copy(update={"status": "absent"})
    result = clip(effects.settled_result(said.decision), limits.EFFECT_RESULT_BYTES)
    return record.model_copy(update={"status": "done", "result": result})


async def _said(client: Client, place: CallPlace, first: HistoryEvent) -> SettledCall | None:
    started = first.workflow_execution_started_event_attributes
    if started.workflow_type.name != SETTLEMENT:
        return None
    context = WorkflowSerializationContext(
        namespace=client.namespace, workflow_id=workflow_id(place)
    )
    raw = await raw_value(client.data_converter.with_context(context), started.input.payloads)
    try:
        said = unpack(raw, SettledCall)
    except errors.InvalidRequestError:  # somebody else has started it
        return None
    return said if said.place == place else None


async def _runs(client: Client, said: SettledCall) -> Collection[str]:
    """Return the runs of the latest turn with the id, in which the call may have been made.

    A turn whose retention is over was not reset since.
    """
    try:
        return await runs_up_to(client, await describe(client, said.turn_id))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return (said.run_id,)
