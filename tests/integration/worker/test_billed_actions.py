"""What Temporal Cloud would bill for a step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perdure.temporal.liveness import INTERVAL

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.accepts("O27")
def test_step_of_a_call_of_five_seconds_is_three_actions() -> None:
    """Two activities and one heartbeat; without waiting, two. The server itself counts them."""
    default = f"{INTERVAL.total_seconds():g}"
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.actions", default, "0,5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    fixed = "local activities 1, memo 1, search attributes 1, start 1"
    assert ran.stdout.splitlines() == [
        f"heartbeats every {default} s, model calls of 0 s",
        f"  a turn of one step  7 (activities 3, {fixed})",
        "  one more step       2 (activities 2)",
        f"heartbeats every {default} s, model calls of 5 s",
        f"  a turn of one step  8 (activities 3, heartbeats 1, {fixed})",
        "  one more step       3 (activities 2, heartbeats 1)",
    ]
