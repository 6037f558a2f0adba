"""Which models are left alone for a while because they failed.

Pure: whoever asks says what time it is, in seconds by any one clock.

A worker process keeps one for all its turns. A turn keeps one of its own besides, by the workflow's
clock, so that it survives restarts.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure import limits


@dataclass(slots=True)
class _Record:
    failures: int = 0
    benches: int = 0
    until_s: float = float("-inf")
    asked_until_s: float = float("-inf")


class Health:
    """Benches a model after two failures in a row: for 5 s, twice as long each time, up to 5 min.

    A success resets that.
    """

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    def failed(self, model: str, now_s: float, pause_s: float = 0.0) -> None:
        """A call failed in a way that may pass.

        `pause_s` is what the provider asked for; a long one benches the model at once.
        """
        record = self._records.setdefault(model, _Record())
        record.asked_until_s = now_s + pause_s
        if now_s < record.until_s:
            return  # it was under way before the model was benched, or was made although it is
        record.failures += 1
        if record.failures > limits.TRANSIENT_RETRIES or is_long(pause_s):
            bench_s = min(
                limits.BENCH.total_seconds() * 2.0 ** min(record.benches, 30),
                limits.LONGEST_BENCH.total_seconds(),
            )
            record.failures, record.benches, record.until_s = (
                0,
                record.benches + 1,
                now_s + max(bench_s, pause_s),
            )

    def succeeded(self, model: str) -> None:
        """A call was answered."""
        self._records.pop(model, None)

    def benched_s(self, model: str, now_s: float) -> float:
        """For how many more seconds a model is left alone; 0 for one that is not."""
        record = self._records.get(model)
        return max(record.until_s - now_s, 0.0) if record else 0.0

    def asked_s(self, model: str, now_s: float) -> float:
        """For how many more seconds its provider has asked not to be asked; 0 where it has not."""
        record = self._records.get(model)
        return max(record.asked_until_s - now_s, 0.0) if record else 0.0


def is_long(pause_s: float) -> bool:
    """Whether a provider asks for a longer pause than a first bench.

    Another model is asked then.
    """
    return pause_s > limits.BENCH.total_seconds()
