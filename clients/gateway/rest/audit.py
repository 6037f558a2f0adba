"""Who has done what over HTTP."""

from __future__ import annotations

import contextlib
from collections import deque
from datetime import datetime
from typing import Annotated

from pydantic import Field

from perdure import limits
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
        by: Only what this person or program has done.
        newest: Whether the last entries come, the last first, and not the first ones.
        limit: The largest number of entries.
    """

    since: datetime
    until: datetime | None = None
    subject: Subject | None = None
    by: Annotated[str, Field(min_length=1, max_length=limits.BY_CHARACTERS)] | None = None
    newest: bool = False
    limit: Annotated[int, Field(ge=1, le=_MOST)] = _MOST


class AuditEntries(Value):
    """What people and programs have done, in the order of its times, or the last first.

    Attributes:
        entries: The entries.
        has_more: Whether there are more than these.
    """

    entries: tuple[AuditEntry, ...]
    has_more: bool = False


@operation("GET", "/v1/audit", may="read")
async def read_audit(call: Call, query: ReadAudit) -> AuditEntries:
    """Return who has done what, in the order of its times, or the last first.

    The histories of all that is not over, or has ended since, are read for it.
    """
    acts = call.client.audit(
        query.since,
        until=query.until,
        subject=query.subject and call.caller.own(query.subject),
        id_prefix=call.caller.prefix or None,
    )
    entries = deque[AuditEntry](maxlen=query.limit if query.newest else None)
    count = 0
    with call.stay_open():
        async with contextlib.aclosing(acts):
            async for entry in acts:
                if query.by not in (None, entry.by):
                    continue
                count += 1
                if count > query.limit and not query.newest:
                    break
                entries.append(entry)
    shown = reversed(entries) if query.newest else entries
    return AuditEntries(entries=tuple(shown), has_more=count > query.limit)
