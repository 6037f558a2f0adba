"""Who has done what over HTTP."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Annotated

from pydantic import Field

from perdure.base import Value
from perdure.clients.auditing.entries import AuditEntry
from perdure.clients.gateway.inputs import Query
from perdure.clients.gateway.operations import Call, operation
from perdure.values.turn_options import Subject

_MOST = 1_000


class ReadAudit(Query):
    """A time, and what is looked for.

    Attributes:
        since: The earliest time, with a time zone.
        until: The time before which it was done; without it, all since then.
        subject: Only what is of this data subject.
        limit: The largest number of entries.
    """

    since: datetime
    until: datetime | None = None
    subject: Subject | None = None
    limit: Annotated[int, Field(ge=1, le=_MOST)] = _MOST


class AuditEntries(Value):
    """What people and programs have done, in the order of its times.

    Attributes:
        entries: The entries.
        has_more: Whether there are more than these.
    """

    entries: tuple[AuditEntry, ...]
    has_more: bool = False


@operation("GET", "/v1/audit", may="read")
async def read_audit(call: Call, query: ReadAudit) -> AuditEntries:
    """Return who has done what, in the order of its times.

    The histories of all that is not over, or has ended since, are read for it.
    """
    acts = call.client.audit(
        query.since,
        until=query.until,
        subject=query.subject and call.caller.own(query.subject),
        id_prefix=call.caller.prefix or None,
    )
    entries: list[AuditEntry] = []
    with call.stay_open():
        async with contextlib.aclosing(acts):
            async for entry in acts:
                if len(entries) == query.limit:
                    return AuditEntries(entries=tuple(entries), has_more=True)
                entries.append(entry)
    return AuditEntries(entries=tuple(entries))
