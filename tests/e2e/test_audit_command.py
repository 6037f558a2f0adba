"""`perdure audit` and `perdure audit verify`, as people use them."""

from __future__ import annotations

import json
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..support.e2e.command_line import AGENTS, CommandLine, InProcess, wait_until

KEY = {"PERDURE_AUDIT_KEY": "f" * 32}
CRON = ("--cron", "0 7 * * *", "--timezone", "UTC")


def lines_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The lines that a command has printed."""
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def acts_in(lines: list[dict[str, Any]]) -> list[tuple[str, str | None, str | None]]:
    """What was done, by whom and through what."""
    return [(line["act"], line.get("by"), line["via"]) for line in lines if "act" in line]


@pytest.mark.accepts("G43", "G44", "G49")
def test_file_of_an_audit_goes_on_and_a_change_in_it_is_found(
    here: InProcess, perdure_server: str
) -> None:
    """A chain over two audits, with a key: as it was written, changed, cut, and written anew."""
    here.environment |= {"TEMPORAL_ADDRESS": perdure_server, **KEY}
    name = f"audit-{secrets.token_hex(4)}"
    asked = ("audit", "--since", "1h", "--id-prefix", name)
    file, copy = here.folder / "audit.jsonl", here.folder / "copy.jsonl"

    def appended(*arguments: str) -> list[dict[str, Any]]:
        done = here(*arguments, "--json")
        with file.open("a", encoding="utf-8") as lines:
            lines.write(done.stdout)
        return lines_of(done)

    created = here("schedule", "create", name, "talker", "go", *CRON, "--by", "anna")
    here("schedule", "pause", name, "--reason", "ill", "--by", "bo")
    try:
        first = appended(*asked)
        here("schedule", "resume", name, "--by", "anna")
        second = appended("audit", "--after", "audit.jsonl")
        third = appended("audit", "--after", "audit.jsonl")
        shown = here(*asked, COLUMNS="120")
        others = here("audit", "--after", "audit.jsonl", "--since", "1h")
    finally:
        here("schedule", "delete", name)
    texts = file.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = here("audit", "verify", "audit.jsonl")
    without_key = here("audit", "verify", "audit.jsonl", PERDURE_AUDIT_KEY="")
    copy.write_text("".join([*texts[:2], texts[2].replace('"bo"', '"al"'), *texts[3:]]))
    changed = here("audit", "verify", "copy.jsonl")
    refused = here("audit", "--after", "copy.jsonl")
    copy.write_text("".join(texts[:-1]))
    cut = here("audit", "verify", "copy.jsonl", "--json")

    assert created.returncode == 0
    assert acts_in(first) == [("created", "anna", "cli"), ("paused", "bo", "cli")]
    assert acts_in(second) == [("resumed", "anna", "cli")]
    assert acts_in(third) == []
    assert [line["n"] for line in (*first, *second, *third)] == list(range(9))
    assert first[2]["detail"] == "ill"
    assert "paused" in shown.stdout
    assert name in shown.stdout
    assert others.returncode == 2
    assert (whole.returncode, whole.stdout) == (0, "")
    assert "9 lines, as they were written" in whole.stderr
    assert without_key.returncode == 2
    assert (changed.returncode, changed.stdout) == (1, "copy.jsonl, line 3: it was changed\n")
    assert refused.returncode == 2
    assert "line 3: it was changed" in refused.stderr
    assert cut.returncode == 1
    assert json.loads(cut.stdout) == {
        "file": "copy.jsonl",
        "line": 8,
        "fault": "the end of the audit is missing after it",
    }


@pytest.mark.slow
@pytest.mark.accepts("G45")
def test_acts_of_a_supervised_worker_are_told(tmp_path: Path, perdure_server: str) -> None:
    """A turn that was started and cancelled by commands, with the supervisor on."""
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    perdure, turn = CommandLine(tmp_path), f"audit-{secrets.token_hex(4)}"
    perdure.environment |= {
        "TEMPORAL_ADDRESS": perdure_server,
        "PERDURE_TASK_QUEUE": f"test-{secrets.token_hex(6)}",
        "PERDURE_SUPERVISOR": "1",
        "PERDURE_GRACE_S": "1",
    }

    def told() -> list[dict[str, Any]]:
        asked = ("audit", "--since", "1h", "--id-prefix", turn, "--json")
        return lines_of(perdure(*asked))

    with perdure.started("worker", "agents:registry"):
        with perdure.started("run", "seeker", "Look.", "--id", turn, "--by", "anna"):
            wait_until(lambda: len(told()) == 3, "the turn is listed")
            perdure("cancel", turn, "--reason", "enough", "--by", "bo")
            wait_until(lambda: len(told()) == 4, "the cancel is there")
        entries = told()

    assert acts_in(entries) == [("start", "anna", "cli"), ("cancel", "bo", "cli")]
