"""Models that are benched after failures."""

from __future__ import annotations

import pytest

from perdure import limits
from perdure.turn.circuit_breaker import Health

BENCH_S, LONGEST_S = limits.BENCH.total_seconds(), limits.LONGEST_BENCH.total_seconds()


def failed_at(*moments: float) -> Health:
    health = Health()
    for moment in moments:
        health.failed("m", moment)
    return health


@pytest.mark.accepts("M1")
def test_second_failure_in_a_row_benches_a_model_for_five_seconds() -> None:
    """The first one does not; other models are not affected."""
    assert failed_at(0).benched_s("m", 0) == 0
    health = failed_at(0, 1)

    assert BENCH_S == 5
    assert [health.benched_s("m", now) for now in (1, 3, 5.5, 6)] == [5, 3, 0.5, 0]
    assert health.benched_s("other", 1) == 0


@pytest.mark.accepts("M1")
def test_each_bench_is_twice_as_long_up_to_five_minutes() -> None:
    """For a model that fails twice whenever it may be called again."""
    health, now, benches = Health(), 0.0, []
    for _ in range(9):
        health.failed("m", now)
        health.failed("m", now)
        benches.append(health.benched_s("m", now))
        now += benches[-1]

    assert benches == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert LONGEST_S == 300


@pytest.mark.accepts("M1")
def test_success_resets_it() -> None:
    """It resets the number of failures, and the length of the next bench."""
    health = failed_at(0, 0, 5, 5)
    assert health.benched_s("m", 5) == 2 * BENCH_S
    health.succeeded("m")
    assert health.benched_s("m", 5) == 0
    health.failed("m", 6)
    assert health.benched_s("m", 6) == 0
    health.failed("m", 6)
    assert health.benched_s("m", 6) == BENCH_S


def test_failures_of_calls_that_were_under_way_make_a_bench_no_longer() -> None:
    """A hundred turns call it at once, and all of them fail."""
    assert failed_at(*[0.0] * 100).benched_s("m", 0) == BENCH_S


@pytest.mark.parametrize(("pause_s", "bench_s"), [(0, 0), (4, 0), (60, 60)])
def test_long_pause_that_a_provider_asks_for_benches_at_once(
    pause_s: float, bench_s: float
) -> None:
    """A short one is waited for, and does not count."""
    health = Health()
    health.failed("m", 0, pause_s)
    assert health.benched_s("m", 0) == bench_s
