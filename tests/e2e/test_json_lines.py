"""`--json`: one value per line, nothing else on standard output, and the error on the last line of
a command that fails.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from perdure.clients import TurnEntry
from perdure.clients.reading.events import kind_of
from perdure.turn.facts import Fact

from ..support.e2e.command_line import NO_MODEL, CommandLine, InProcess


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.accepts("P4", "E15")
@pytest.mark.slow
def test_turn_is_told_as_its_events_and_its_report(
    perdure: CommandLine, at_work: list[str], new_id: str
) -> None:
    """`run` and `show` print the same; each event has its cursor; options for colours and stderr
    change nothing.
    """
    ran = perdure("run", "talker", "hello", "--id", new_id, "--json", *at_work, FORCE_COLOR="1")
    shown = perdure("show", new_id, "--json", *at_work)
    *events, last = lines(ran.stdout)

    assert (ran.returncode, ran.stderr, shown.returncode, shown.stdout) == (0, "", 0, ran.stdout)
    assert [event["kind"] for event in events] == [
        "turn_started",
        "agent_resolved",
        "scheduled",
        "model_answered",
        "turn_ended",
    ]
    envelope = (
        *("v", "turn", "kind", "cursor", "at", "agent", "last_agent"),
        *("step", "attempt", "tool", "call_id"),
    )
    assert {tuple(event) for event in events} == {(*envelope, "fact")}
    assert {event["turn"] for event in (*events, last)} == {new_id}
    assert [event["fact"].get("key") for event in events] == [
        None,
        "agent",
        "step-1",
        "step-1",
        None,
    ]
    assert events[0]["fact"]["request"]["task"]["content"] == "hello"
    assert (tuple(last), last["kind"], last["report"]["outcome"]) == (
        ("turn", "kind", "report"),
        "report",
        "completed",
    )
    assert last["report"]["output"].startswith(NO_MODEL)


@pytest.mark.slow
def test_words_of_a_model_are_told_with_stream(
    here: InProcess, at_work: list[str], new_id: str
) -> None:
    """Before the event that records the text."""
    ran = here("run", "talker", "hello", "--id", new_id, "--json", "--stream", *at_work)
    told = lines(ran.stdout)
    kinds = [line["kind"] for line in told]
    begins = kinds.index("text_begins")

    assert kinds[begins : begins + 3] == ["text_begins", "text", "model_answered"]
    assert told[begins] == {"v": 1, "turn": new_id, "kind": "text_begins", "step": 1, "attempt": 1}
    assert told[begins + 1]["text"] == told[-1]["report"]["output"]


def test_turn_that_fails_is_told_with_its_error_and_its_report(
    here: InProcess, at_work: list[str], new_id: str
) -> None:
    """On the last line; the message is on stderr, too."""
    ran = here("run", "nobody", "hello", "--id", new_id, "--json", *at_work)
    last = lines(ran.stdout)[-1]

    assert ran.returncode == 1
    assert tuple(last) == (
        "turn",
        "kind",
        "class",
        "code",
        "severity",
        "message",
        "context",
        "cause",
        "report",
    )
    assert (last["turn"], last["kind"], last["class"], last["code"]) == (
        new_id,
        "error",
        "UnknownAgentError",
        "UNKNOWN_AGENT",
    )
    assert (last["report"]["outcome"], ran.stderr) == ("failed", f"perdure: {last['message']}\n")


@pytest.mark.accepts("P4")
def test_command_that_fails_says_why_as_json(
    here: InProcess, at_work: list[str], closed_port: str, new_id: str
) -> None:
    """Every command with the option, with the same fields."""
    absent = {
        name: here(name, new_id, "--json", *more, *at_work)
        for name, more in {
            "show": (),
            "approvals": (),
            "answer": ("call_1_1", "yes"),
            "settle": ("call_1_1", "done"),
            "add-budget": ("--usd", "1"),
        }.items()
    }
    away = here("list", "--json", "--address", closed_port)

    assert {
        name: (done.returncode, [line["code"] for line in lines(done.stdout)])
        for name, done in absent.items()
    } == dict.fromkeys(absent, (2, ["TURN_NOT_FOUND"]))
    assert (away.returncode, [line["code"] for line in lines(away.stdout)]) == (
        20,
        ["SERVER_UNREACHABLE"],
    )


@pytest.mark.slow
@pytest.mark.accepts("P4")
def test_list_and_cancel_have_a_line_for_each_turn(
    perdure: CommandLine, at_work: list[str], new_id: str
) -> None:
    """With the fields of `TurnEntry`."""
    with perdure.started("run", "seeker", "notice", "--id", new_id, *at_work) as following:
        following.wait_for("search_files")
        listed = lines(
            perdure("list", "--json", "--agent", "seeker", "--limit", "1", *at_work).stdout
        )
        stopped = lines(perdure("cancel", new_id, "--json", *at_work).stdout)
        following.process.wait(timeout=60)

    assert [(tuple(line) == tuple(TurnEntry.model_fields), line["agent"]) for line in listed] == [
        (True, "seeker")
    ]
    assert stopped == [{"turn": new_id, "asked": True}]


@pytest.mark.slow
def test_output_that_nobody_reads_any_more_is_no_traceback(
    perdure: CommandLine, at_work: list[str], new_id: str
) -> None:
    """As in `perdure show TURN | head -0`: the shell's exit code for it, and no output."""
    perdure("run", "talker", "hello", "--id", new_id, *at_work)
    done = perdure.into_a_closed_pipe("show", new_id, *at_work)

    assert (done.returncode, done.stderr) == (141, "")


def test_kinds_and_their_fields_are_documented() -> None:
    """All of them, by their names, because scripts rely on them."""
    page = (Path(__file__).parents[2] / "docs/command-line.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE)
    kinds = {
        kind_of(fact): [field.name for field in dataclasses.fields(fact)] for fact in get_args(Fact)
    }

    assert {kind: re.findall(r"`(\w+)`", fields) for kind, fields in rows if kind in kinds} == kinds
