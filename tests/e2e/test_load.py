"""The load tool, small: real workers under their supervisor, one of which is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load.app import Job
from benchmarks.load.series import measure
from benchmarks.load.traffic import Load

ROOT = Path(__file__).parents[2]


def load(*options: str) -> dict[str, Any]:
    """Run `python -m benchmarks.load`, and return its figures."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", "--json", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.accepts("O37")
@pytest.mark.accepts("O38")
def test_small_load_loses_nothing_while_a_worker_is_killed() -> None:
    """Turns and sessions go on, and each figure of the page is there."""
    found = load(
        *("--workers", "2", "--turns", "6", "--sessions", "2", "--minutes", "0.3"),
        *("--kills", "1", "--steps", "3", "--tools", "2", "--seconds", "0.1"),
    )

    assert (found["kills"], found["lost"], found["duplicates"]) == (1, [], [])
    total = found["total"]
    assert 0 < total["messages"] < total["turns"]
    assert total["steps"] == 3 * total["turns"]
    assert total["tools"] + found["unknown"] >= 4 * total["turns"]
    assert min(found[measure]["samples"] for measure in ("start", "step", "event")) > 0
    assert min(found["histories"].values()) > 0
    assert total["actions"]["start"] >= total["turns"] - total["messages"]
    assert min(total["server_cpu"], total["workers_cpu"], total["client_cpu"]) > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.accepts("O40")
async def test_load_whose_workers_do_not_start_costs_no_other() -> None:
    """It is named with the reason, and the next one is measured."""
    kept: list[dict[str, Any]] = []
    job = Job(steps=1, tools=0, seconds=0)
    loads = {
        "none": Load(workers=0, turns=1, seconds=1, job=job),
        "small": Load(workers=1, turns=2, seconds=1, job=job),
    }

    await measure(loads, 0, lambda found: kept.append(json.loads(json.dumps(found))))

    assert [[*found["points"]] for found in kept] == [[], ["small"], ["small"]]
    assert "--processes" in kept[0]["failed"]["none"]
    assert [*kept[-1]["failed"]] == ["none"]
