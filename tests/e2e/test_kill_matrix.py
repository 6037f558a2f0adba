"""The kill matrix in its smallest form, as a process: `make -C benchmarks matrix` has all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..support.e2e.stories import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]
WITHIN_S = 290.0


def matrix(out: Path, *arguments: str) -> tuple[int, str, list[dict[str, Any]]]:
    """Run it; return the exit code, what it printed, and the verdicts."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.matrix", "--out", str(out), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    said = ran.stdout + ran.stderr
    lines = (out / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    return ran.returncode, said, [json.loads(line) for line in lines]


@pytest.mark.accepts("Y140", "Y142", "Y144")
def test_matrix_is_green_for_the_product(tmp_path: Path) -> None:
    """Two faults at two events, and four deciders at once; all of them land."""
    code, said, verdicts = matrix(
        tmp_path / "out",
        *("--faults", "kill,machine", "--events", "20,40", "--deciders", "4"),
        *("--controls", "none"),
    )
    faults = [verdict["fault"] for verdict in verdicts if verdict["fault"]]

    assert (code, [one for one in verdicts if one["broken"]]) == (0, []), said
    assert sorted(faults) == ["4 deciders", "kill", "kill", "machine", "machine"]
    assert all(verdict["landed"] for verdict in verdicts), said


@pytest.mark.accepts("Y143")
def test_matrix_is_red_for_a_build_without_a_safeguard(tmp_path: Path) -> None:
    """A tool that may not be repeated is repeated, and the witness has it twice."""
    code, said, _ = matrix(tmp_path / "out", *("--faults", "", "--deciders", "", "--controls", "1"))

    assert code == 0, said
    assert "a tool that may not be repeated is, after its worker was lost" in said
    assert "duplicates" in said
