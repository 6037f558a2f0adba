"""The places where something of a data subject is, and what becomes of each after an erasure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from perdure.clients.erasing.belongings import Belonging
from perdure.clients.erasing.receipts import ErasedPlace
from perdure.temporal.encryption.data_keys import KEPT, KEPT_WHILE_AWAY
from perdure.text import counted


def of(
    ended: Sequence[Belonging],
    *,
    deleted_schedules: int,
    retention: timedelta | None,
    erased_at: datetime,
    has_storage: bool,
    key_store: str,
) -> tuple[ErasedPlace, ...]:
    """Return all places.

    Args:
        ended: The runs of workflows that are over.
        deleted_schedules: The number of schedules that were deleted.
        retention: How long Temporal keeps what is over; None if that is not known.
        erased_at: The time at which the key was destroyed.
        has_storage: Whether the connection has an external storage.
        key_store: The name of the store.
    """
    closed = [work.closed_at for work in ended if work.closed_at is not None]
    gone = max([*closed, erased_at]) + retention if retention is not None else None
    period = "some time" if retention is None else counted(retention.days, "day")
    return (
        ErasedPlace(
            place="histories",
            count=len({work.id for work in ended}),
            what=f"everything in them is unreadable; Temporal removes them {period} after"
            " their end",
            until=gone,
        ),
        ErasedPlace(
            place="schedules",
            count=deleted_schedules,
            what="they were deleted",
            until=erased_at,
        ),
        ErasedPlace(
            place="names",
            what=(
                "ids and names of agents are never encrypted, nor are, unless"
                " PERDURE_LABELS_PLAIN=no, the name of the subject, labels and names of tools;"
                " Temporal removes them with the histories"
            ),
            until=gone,
        ),
        ErasedPlace(
            place="backups of Temporal",
            what="what they have is unreadable, as the key was never in Temporal's database",
            until=erased_at,
        ),
        ErasedPlace(
            place="external storage",
            what=(
                "everything in it is unreadable; its own lifecycle rule removes it"
                if has_storage
                else "this connection has none"
            ),
        ),
        ErasedPlace(
            place="processes",
            what=(
                f"workers and callers may use the key for {KEPT.total_seconds():.0f} s, and for"
                f" {KEPT_WHILE_AWAY.total_seconds() / 60:.0f} minutes if they cannot reach the key"
                " store"
            ),
            until=erased_at + KEPT_WHILE_AWAY,
        ),
        ErasedPlace(
            place="key store",
            what=(
                f"the key was destroyed in {key_store}, with the tokens of logins at MCP servers;"
                " the store keeps the name of the subject, the id of the key and the times;"
                " backups of it have the wrapped key until you delete them"
            ),
        ),
        ErasedPlace(
            place="logs and spans",
            what=(
                "with encryption they have ids and no content, unless you have switched that on"
                " (PERDURE_LOG_TRACEBACKS, content=True); your own retention removes them"
            ),
        ),
        ErasedPlace(
            place="result files and receivers",
            what=(
                "Perdure does not know them: files of results, receivers of webhooks, what tools"
                " have written, and requests that model providers keep; erase them there"
            ),
        ),
    )
