"""What has become of the turns of an agent, by its versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal

from perdure.base import Value
from perdure.clients.turns.entries import TurnEntry
from perdure.values.reports import Outcome

_STOPPED = (Outcome.CANCELLED, Outcome.TERMINATED)
_ANSWERED = (Outcome.COMPLETED, Outcome.TRUNCATED)


class VersionSummary(Value):
    """The turns of one version of an agent.

    Attributes:
        version: The version; empty for turns without one, which includes those whose agent is not
            known yet.
        turns: The number of turns.
        open: How many of them are not over.
        failed: How many have ended without an answer, and were neither cancelled nor terminated.
        stopped: How many were cancelled or terminated.
        steps: The average number of steps of those that are over; None if none is.
        spent: The average cost in USD of those that are over and whose cost is known; None if there
            is none.
    """

    version: str
    turns: int
    open: int
    failed: int
    stopped: int
    steps: float | None = None
    spent: Decimal | None = None


async def summaries(entries: AsyncIterator[TurnEntry]) -> tuple[VersionSummary, ...]:
    """Return a summary for each version among these turns, sorted by the version."""
    by_version = defaultdict[str, list[TurnEntry]](list)
    async for entry in entries:
        by_version[entry.version].append(entry)
    return tuple(_summary(version, turns) for version, turns in sorted(by_version.items()))


def _summary(version: str, turns: Sequence[TurnEntry]) -> VersionSummary:
    ended = [turn for turn in turns if turn.outcome is not None]
    steps = [turn.steps for turn in ended if turn.steps is not None]
    spent = [turn.spent for turn in ended if turn.spent is not None]
    return VersionSummary(
        version=version,
        turns=len(turns),
        open=len(turns) - len(ended),
        failed=sum(turn.outcome not in (*_ANSWERED, *_STOPPED) for turn in ended),
        stopped=sum(turn.outcome in _STOPPED for turn in ended),
        steps=sum(steps) / len(steps) if steps else None,
        spent=sum(spent, Decimal()) / len(spent) if spent else None,
    )
