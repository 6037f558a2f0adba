"""`perdure ask`: a question about a folder, without any set-up."""

from __future__ import annotations

import json
import re

import pytest

from ..support.e2e.command_line import CommandLine, InProcess


@pytest.mark.slow
def test_ask_answers_from_a_folder_and_names_the_source(perdure: CommandLine) -> None:
    """Without a server, a worker or a key: the command starts everything and removes it
    afterwards.
    """
    (perdure.folder / "rules").mkdir()
    (perdure.folder / "rules/lease.md").write_text(
        "# Lease\n\n## Notice\n\nThe notice period is three months.\n", encoding="utf-8"
    )
    (perdure.folder / "rules/house.md").write_text(
        "# House\n\nQuiet hours begin at ten.\n", encoding="utf-8"
    )

    done = perdure("ask", "How long is the notice period?", "--folder", "rules")

    assert done.returncode == 0, done.stderr
    assert "three months" in done.stdout
    assert re.search(r"Source: lease\.md:[1-5]\n$", done.stdout)
    assert "offline:librarian is not a language model" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert not (perdure.folder / ".perdure/server.json").exists()


@pytest.mark.slow
def test_ask_tells_lines_of_json(perdure: CommandLine) -> None:
    """The events and the report, and nothing else, such as a note about the folder."""
    (perdure.folder / "rules.md").write_text(
        "# Notice\n\nThe notice period is three months.\n", encoding="utf-8"
    )

    done = perdure("ask", "How long is the notice period?", "--folder", ".", "--json")
    *events, last = [json.loads(line) for line in done.stdout.splitlines()]

    assert (done.returncode, done.stderr) == (0, "")
    assert (events[0]["kind"], events[-1]["kind"], last["kind"]) == (
        "turn_started",
        "turn_ended",
        "report",
    )
    assert "three months" in last["report"]["output"]


@pytest.mark.parametrize("command", [["ask", "anything"], ["demo"]], ids=["ask", "demo"])
@pytest.mark.table(1)
def test_folder_that_is_none_is_said_before_anything_starts(
    here: InProcess, command: list[str]
) -> None:
    """Exit code 2, with the folder and the option."""
    done = here(*command, "--folder", "nowhere")

    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere is not a folder" in done.stderr
    assert "--folder" in done.stderr
