"""`perdure session`: what its commands do, print and refuse."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from perdure.clients.cli.sessions import session

from ..support.e2e.command_line import InProcess, wait_until


def lines(here: InProcess, *arguments: str) -> list[Any]:
    """The lines of JSON of a command that succeeds."""
    done = here("session", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def begin(here: InProcess, session_id: str, *options: str) -> None:
    """Begin a session with a message, from a pipe."""
    before, sys.stdin = sys.stdin, io.StringIO("hello\n")
    try:
        assert here("chat", "talker", "--session", session_id, *options).returncode == 0
    finally:
        sys.stdin = before


def until_idle(here: InProcess, session_id: str, at_work: Sequence[str]) -> Any:
    """What `show` prints when the session has recorded its turns."""
    found: list[Any] = []

    def is_idle() -> bool:
        found[:] = lines(here, "show", session_id, *at_work)
        return bool(found[0]["state"] == "idle")

    wait_until(is_idle, "the session is idle")
    return found[0]


@pytest.mark.accepts("E100")
@pytest.mark.slow
def test_session_is_begun_shown_forked_and_closed_without_a_terminal(
    here: InProcess, at_work: Sequence[str], new_id: str
) -> None:
    """Each step changes what `show` prints."""
    begin(here, new_id, *at_work, "--model-calls", "5", "--label", f"id={new_id}")
    sent, *told = lines(here, "say", new_id, "More.", "--id", "m-2", "--follow", *at_work)
    said = here("session", "say", new_id, "More.", "--id", "m-2", *at_work)
    status = until_idle(here, new_id, at_work)
    [added] = lines(here, "add-budget", new_id, "--model-calls", "3", *at_work)
    [forked] = lines(here, "fork", new_id, "--id", f"{new_id}-b", "--at-turn", "1", *at_work)
    answer = here(*("session", "say", f"{new_id}-b", "Else.", "--follow"), *at_work)
    [nothing] = lines(here, "unqueue", new_id, "m-2", *at_work)
    [idle] = lines(here, "interrupt", new_id, *at_work)
    [resumed] = lines(here, "resume", new_id, *at_work)
    shown = here("session", "show", new_id, *at_work)
    [closed] = lines(here, "close", new_id, "--reason", "solved", *at_work)
    late = here("session", "say", new_id, "Too late.", *at_work, "--json")

    assert (sent["kind"], sent["turn"], told[-1]["kind"]) == ("sent", f"{new_id}/2", "report")
    following = f"perdure show {new_id}/2 --address {at_work[1]}"
    assert said.stderr == f"{sent['disposition']}; {following}\n"
    assert (status["turns"], [one["outcome"] for one in status["last"]]) == (2, ["completed"] * 2)
    assert (status["agent"], status["queue"], status["last"][1]["messages"]) == (
        *("talker", []),
        ["m-2"],
    )
    assert (added["budget"]["model_calls"], forked["session"]) == (8, f"{new_id}-b")
    assert (answer.returncode, bool(answer.stdout)) == (0, True)
    assert (nothing["unqueued"], idle["interrupted"], resumed["resumed"]) == (False, False, False)
    assert re.sub(r"\d+ tokens", "N tokens", shown.stdout).splitlines()[:4] == [
        f"session   {new_id}  idle",
        "agent     talker",
        "spent     N tokens, 2 model calls",
        "budget    8 model calls",
    ]
    assert closed == {"session": new_id, "unread": []}
    assert (late.returncode, json.loads(late.stdout)["class"]) == (2, "SessionClosedError")


@pytest.mark.accepts("E100")
@pytest.mark.slow
def test_sessions_are_listed(here: InProcess, at_work: Sequence[str], new_id: str) -> None:
    """Those of an agent or with a label; `--limit` says that there are more."""
    label = ("--label", f"id={new_id}")
    for number in (1, 2):
        begin(here, f"{new_id}-{number}", *at_work, *label)
    wait_until(lambda: len(lines(here, "list", *label, *at_work)) == 2, "both are listed")
    one = here("session", "list", *label, "--limit", "1", *at_work)
    none = here("session", "list", *label, "--agent", "nobody", *at_work)

    assert re.fullmatch(rf"{re.escape(new_id)}-. +talker +open +.+", one.stdout.splitlines()[1])
    assert "there are more than these 1" in one.stderr
    assert (none.stdout, none.stderr) == ("", "there is no such session\n")


@pytest.mark.slow
@pytest.mark.accepts("E100")
def test_session_is_cancelled(here: InProcess, at_work: Sequence[str], new_id: str) -> None:
    """It takes no messages then, and there is nothing left to cancel."""
    here("session", "say", new_id, "Hello.", "--begin", "talker", "--follow", *at_work)
    cancel = ("cancel", new_id, "--reason", "enough", "--by", "anna", *at_work)
    [asked] = lines(here, *cancel)
    wait_until(lambda: not lines(here, *cancel)[0]["asked"], "it is over")
    late = here("session", "say", new_id, "Too late.", *at_work)

    assert asked == {"session": new_id, "asked": True}
    assert (late.returncode, "is closed" in late.stderr) == (2, True)


@pytest.mark.table(2)
@pytest.mark.accepts("E100")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "none"], "there is no session 'none'"),
        (["say", "none", "Hello."], "there is no session 'none'"),
        (["add-budget", "none"], "name what to add: --usd"),
        (["fork", "none", "--id", "other", "--at-turn", "-1"], "-1 is not in the range"),
        (["list", "--limit", "0"], "limit"),
        (["show", ""], "id must be a string that UTF-8 can hold, not empty"),
    ],
)
def test_mistakes_are_told(
    here: InProcess, at_work: Sequence[str], arguments: list[str], words: str
) -> None:
    done = here("session", *arguments, *at_work)

    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.accepts("E100")
def test_every_command_prints_json() -> None:
    names = {parameter.name for parameter in session.params}
    commands = session.commands.values()

    assert not names
    assert all("as_json" in {one.name for one in each.params} for each in commands)
