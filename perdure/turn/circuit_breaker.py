"""A circuit breaker: models are benched for a while after failures.

Pure: the caller passes the time, in seconds by any single clock.

A worker process keeps one `Health` for all its turns. Each turn also keeps its own, by the
workflow's clock, so that it survives restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from perdure import limits


@dataclass(frozen=True, slots=True)
class Record:
    """The failures of one model: in a row, and its benches, by the caller's clock."""

    failures: int = 0
    benches: int = 0
    until_s: float = float("-inf")
    asked_until_s: float = float("-inf")


class Health:
    """The health of models. Two consecutive failures bench a model.

    The first bench lasts 5 s. Each further bench lasts twice as long, up to 5 min. A success resets
    this.
    """

    def __init__(self, records: Mapping[str, Record] | None = None) -> None:
        self._records: dict[str, Record] = dict(records or {})

    @property
    def records(self) -> Mapping[str, Record]:
        """The records of the models that have failed, by model."""
        return self._records

    def failed(self, model: str, now_s: float, pause_s: float = 0.0) -> None:
        """Record a transient failure of a call.

        `pause_s` is the pause that the provider asked for; a long pause benches the model at once.
        """
        before = self._records.get(model, Record())
        record = replace(before, asked_until_s=now_s + pause_s)
        is_benched = now_s < record.until_s  # the call began before the bench, or in spite of it
        if not is_benched:
            record = _counted(record, now_s, pause_s)
        self._records[model] = record

    def succeeded(self, model: str) -> None:
        """Record an answered call."""
        self._records.pop(model, None)

    def benched_s(self, model: str, now_s: float) -> float:
        """Return the remaining seconds of a model's bench; 0 if it is not benched."""
        record = self._records.get(model)
        return max(record.until_s - now_s, 0.0) if record else 0.0

    def asked_s(self, model: str, now_s: float) -> float:
        """Return the remaining seconds of the pause that the provider asked for; 0 without it."""
        record = self._records.get(model)
        return max(record.asked_until_s - now_s, 0.0) if record else 0.0


def _counted(record: Record, now_s: float, pause_s: float) -> Record:
    """Return the record after another failure, which may bench the model."""
    failures = record.failures + 1
    if failures <= limits.TRANSIENT_RETRIES and not is_long(pause_s):
        return replace(record, failures=failures)
    bench_s = min(
        limits.BENCH.total_seconds() * 2.0 ** min(record.benches, 30),
        limits.LONGEST_BENCH.total_seconds(),
    )
    until_s = now_s + max(bench_s, pause_s)
    return replace(record, failures=0, benches=record.benches + 1, until_s=until_s)


def is_long(pause_s: float) -> bool:
    """Return whether a requested pause is longer than a first bench.

    In that case, another model is asked.
    """
    return pause_s > limits.BENCH.total_seconds()
