"""`perdure demo`: a person's first minute with Perdure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .command_line import CommandLine

TOOLS = """# Tools

A tool is a typed function.

## What happens when a worker dies

A tool call whose worker dies runs again only if the tool is idempotent. Otherwise the model is told that the outcome is unknown.
"""


@pytest.mark.accepts("Y1")
def test_demo_survives_its_kill_and_says_what_it_checked(tmp_path: Path) -> None:
    """In a folder with a few documents: exit code 0, the kill is shown, four checks hold, the
    answer names its source, nothing is left running.
    """
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "tools.md").write_text(TOOLS, encoding="utf-8")
    (docs / "models.md").write_text(
        "# Models\n\nA model answers or asks for tools.\n", encoding="utf-8"
    )
    (docs / "start.md").write_text("# Start\n\nRun the demo.\n", encoding="utf-8")

    done = CommandLine(tmp_path)("demo")

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^([✓✗]) ", done.stdout, re.MULTILINE) == ["✓"] * 4
    assert "kill -9" in done.stdout
    assert "Source: tools.md:" in done.stdout
    assert "\x1b" not in done.stdout
    assert not (tmp_path / ".perdure/server.json").exists()
