"""Which workflows an audit reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from perdure.clients.turns.filters import Filter
from perdure.temporal import search_attributes
from perdure.temporal.names import (
    BATCH,
    ERASURE,
    KEYED_EVENTS,
    SCHEDULED_BATCH,
    SESSION,
    SETTLEMENT,
    TURN,
)

OF_SETTLEMENTS = "settled/"
"""How the ids of workflows begin that keep what was said of a call, before the id of its turn."""
WITHOUT_LABELS = (BATCH, SETTLEMENT)
"""Types of workflows without search attributes: a key says of which data subject they are."""
_BY_INPUT = (KEYED_EVENTS, ERASURE)
"""Types of workflows whose ids do not begin with that of what they are about."""
_OVER = "('Completed', 'Failed', 'Canceled', 'Terminated', 'TimedOut', 'ContinuedAsNew')"


@dataclass(frozen=True, kw_only=True)
class AuditFilter(Filter):
    """Selects the runs that may hold acts of a time.

    Attributes:
        since: The earliest time of an act.
        until: The time before which an act was; None for all since.
    """

    since: datetime
    until: datetime | None = None
    workflows: tuple[str, ...] = (
        TURN,
        SESSION,
        BATCH,
        SCHEDULED_BATCH,
        SETTLEMENT,
        ERASURE,
        KEYED_EVENTS,
    )

    @property
    def needs_attributes(self) -> bool:
        """Whether the filter needs the search attributes in the namespace."""
        return self.subject is not None

    def query(self) -> str:
        """Return Temporal's list filter. Each run has its own acts."""
        types = " OR ".join(f"WorkflowType = '{name}'" for name in self.workflows)
        parts = [
            types,
            f"ExecutionStatus NOT IN {_OVER} OR CloseTime >= '{_moment(self.since)}'",
            *([] if self.until is None else [f"StartTime <= '{_moment(self.until)}'"]),
            *self._places(),
            *self._subjects(),
        ]
        return " AND ".join(f"({part})" for part in parts)

    def _subjects(self) -> Iterator[str]:
        others = ", ".join(map(repr, (*WITHOUT_LABELS, ERASURE)))
        for label in self._labels():
            yield f"{search_attributes.LABELS.name} = '{label}' OR WorkflowType IN ({others})"

    def _places(self) -> Iterator[str]:
        """Yield the filter by the beginning of the id, as far as the server can have it."""
        prefix = self.id_prefix
        if prefix and search_attributes.keyword(prefix) == prefix:
            begins = "WorkflowId STARTS_WITH"
            yield (
                f"{begins} '{prefix}' OR {begins} '{OF_SETTLEMENTS}{prefix}'"
                f" OR WorkflowType IN ({', '.join(map(repr, _BY_INPUT))})"
            )


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
