"""The driver that kills other systems, tried on Perdure alone; the others have an environment of
their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def rows(folder: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """The rows of a run, by the settings."""
    command = [sys.executable, "-m", "benchmarks.peers.matrix", "--out", str(folder), *arguments]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    figures = json.loads((folder / "peers_matrix.json").read_text(encoding="utf-8"))
    return {row["settings"]: row for row in figures["rows"]}


@pytest.mark.slow
@pytest.mark.accepts("Y147")
def test_charge_that_is_killed_is_unknown_or_done_again_as_declared(tmp_path: Path) -> None:
    """And the witness sees a charge that was declared repeatable without a key."""
    seen = rows(tmp_path, "perdure", "--calls", "charge")

    assert {row["kills"] for row in seen.values()} == {1}
    assert {name: row["duplicates"] for name, row in seen.items()} == {
        "defaults": 0,
        "no supervisor": 0,
        "careless": 1,
    }
    assert {name: row["unknown"] for name, row in seen.items()} == {
        "defaults": 1,
        "no supervisor": 1,
        "careless": 0,
    }
    assert {row["overclaims"] for row in seen.values()} == {0}
    assert {row["paid again"] for row in seen.values()} == {0}
