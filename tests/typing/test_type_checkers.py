"""The public names, as users write them, by type checkers besides mypy, which `make check` runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent
CHECKERS = [["basedpyright"], ["pyrefly", "check"]]


@pytest.mark.slow
@pytest.mark.parametrize("command", CHECKERS, ids=lambda command: command[0])
def test_public_names_have_the_types_that_users_expect(command: list[str]) -> None:
    """`make types` installs the checkers."""
    checker = SCRIPTS / command[0]
    if not checker.exists():
        pytest.skip(f"{command[0]} is not installed; `make types` installs it")
    checked = subprocess.run(
        [checker, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
