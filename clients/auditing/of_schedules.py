"""What was done to schedules, as they remember it: who has created them, and the last requests."""

from __future__ import annotations

from datetime import UTC

from temporalio.api.workflowservice.v1 import DescribeScheduleResponse
from temporalio.client import Client
from temporalio.converter import decode_typed_search_attributes

from perdure import errors, limits
from perdure.clients.auditing.entries import AuditEntry
from perdure.clients.schedules import server
from perdure.clients.schedules.stored import request_of
from perdure.temporal import search_attributes
from perdure.temporal.acts import sources
from perdure.temporal.payloads import decoded
from perdure.text import one_line
from perdure.turn.slot import ScheduleLogEntry


async def acts_of_schedule(
    client: Client, schedule_id: str, subject: str | None
) -> list[AuditEntry]:
    """Return what was done to a schedule; nothing if it is gone, or about another data subject.

    Raises:
        ServerUnreachableError: Temporal does not answer.
        KeyStoreError: The store of the keys of data subjects does not answer.
    """
    try:
        description = await server.described(client, schedule_id)
    except errors.ScheduleNotFoundError:
        return []
    if subject is not None and search_attributes.data_subject(subject) not in _labels(description):
        return []
    created = AuditEntry(
        time=description.info.create_time.ToDatetime(tzinfo=UTC),
        act="created",
        kind="schedule",
        id=schedule_id,
    )
    try:
        created = created.model_copy(update=await _creator(client, description))
        request = await request_of(client, schedule_id, description)
    except errors.KeyStoreError:
        raise  # a later audit can read it
    except errors.PerdureError as error:
        problem = one_line(f"{error.code}: {error.message}", limits.NOTE_CHARACTERS)
        return [created.model_copy(update={"problem": problem})]
    log = (request.schedule.log if request.schedule else None) or ()
    return [created, *(_logged(schedule_id, entry) for entry in log)]


def _labels(description: DescribeScheduleResponse) -> set[str]:
    action = description.schedule.action.start_workflow
    attributes = decode_typed_search_attributes(action.search_attributes)
    return set(attributes.get(search_attributes.LABELS, ()))


async def _creator(client: Client, description: DescribeScheduleResponse) -> dict[str, str]:
    """Return who has created a schedule, and through what; empty for one of an earlier release.

    Raises:
        PayloadDecodeError: This process lacks the codec or the key of the schedule.
    """
    if sources.MEMO_STARTED not in description.memo.fields:
        return {}
    [memo] = await decoded(client.data_converter, [description.memo.fields[sources.MEMO_STARTED]])
    known = memo if isinstance(memo, dict) else {}
    return {name: str(known[name]) for name in ("by", "via") if known.get(name) is not None}


def _logged(schedule_id: str, entry: ScheduleLogEntry) -> AuditEntry:
    detail = ", ".join(filter(None, (entry.id, entry.reason)))
    return AuditEntry(
        time=entry.at.astimezone(UTC),
        act=entry.verb,
        kind="schedule",
        id=schedule_id,
        by=entry.by or None,
        via=entry.via or None,
        detail=one_line(detail, limits.NOTE_CHARACTERS),
    )
