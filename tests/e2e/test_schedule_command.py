"""`perdure schedule`: what its commands do, print and refuse."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.clients.cli.schedules import schedule

from ..support.e2e.command_line import InProcess, wait_until

WHEN = ("--cron", "0 7 * * 1-5", "--timezone", "Europe/Berlin")


def value(here: InProcess, *arguments: str) -> Any:
    """The line of JSON of a command that succeeds."""
    done = here("schedule", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.accepts("B24")
def test_schedule_of_batches_is_created_shown_and_run(
    here: InProcess, at_work: Sequence[str], new_id: str, tmp_path: Path
) -> None:
    """Options of a batch without one are refused."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('"one"\n{"task": "two", "id": "b"}\n', encoding="utf-8")
    create = ("schedule", "create", new_id, "talker", *WHEN, *at_work, "--at-once", "2")
    without = here(*create)
    batch = ("--batch", str(tasks), "--turn-usd", "0.10", "--on-error", "stop")
    created = here(*create, *batch)
    run = here("schedule", "run", new_id, *at_work)
    told = value(here, "show", new_id, *at_work)
    wait_until(
        lambda: "completed, 2 of 2" in here("schedule", "show", new_id, *at_work).stdout,
        "the batch completes",
    )
    listed = here("schedule", "list", *at_work[:2])
    value(here, "delete", new_id, *at_work)

    assert without.returncode == 2
    assert "--batch" in without.stderr
    assert created.stdout.splitlines()[1] == "batch     talker: 2 tasks"
    assert "at once: 2, on error: stop, if running: skip" in created.stdout
    assert "each turn $0.10" in created.stdout
    assert f"perdure batch show {new_id}-" in run.stderr.replace(f"--address {at_work[1]} ", "")
    assert (told["tasks"], told["last"][0]["batch"]["total"]) == (2, 2)
    assert "2 tasks" in listed.stdout


@pytest.mark.slow
@pytest.mark.accepts("E166")
def test_schedule_is_given_budget_and_cancelled(
    here: InProcess, at_work: Sequence[str], new_id: str
) -> None:
    """There is nothing left to cancel afterwards."""
    value(here, "create", new_id, "talker", "Hello.", *WHEN, "--total-tokens", "100", *at_work)
    added = value(here, "add-budget", new_id, "--tokens", "20", "--by", "anna", *at_work)
    nothing = here("schedule", "add-budget", new_id, *at_work)
    cancelled = value(here, "cancel", new_id, "--reason", "enough", "--by", "anna", *at_work)
    shown = value(here, "show", new_id, *at_work)
    again = value(here, "cancel", new_id, *at_work)
    said = here("schedule", "cancel", new_id, *at_work).stderr
    value(here, "delete", new_id, *at_work)

    assert added["total"]["tokens"] == 120
    assert (nothing.returncode, "name what to add: --usd" in nothing.stderr) == (2, True)
    assert [one["asked"] for one in (cancelled, again)] == [True, False]
    assert said == f"schedule {new_id} is paused already, and runs no turn\n"
    assert (shown["state"], shown["reason"], shown["by"]) == ("paused", "enough", "anna")


@pytest.mark.accepts("A16", "E172")
def test_results_of_a_schedule_are_printed_with_who_ran_it(
    here: InProcess, at_work: Sequence[str], new_id: str
) -> None:
    """As lines for people and of JSON, from the last ones on; the log has the names."""
    value(here, "create", new_id, "talker", "Hello.", *WHEN, *at_work)
    turns = [value(here, "run", new_id, "--by", "anna", *at_work)["turn"]]
    [first] = lines_of(here, "results", new_id, "--limit", "1", *at_work)
    turns.append(value(here, "run", new_id, "--by", "bo", *at_work)["turn"])
    [second] = lines_of(
        here, "results", new_id, "--limit", "1", "--after", first["cursor"], *at_work
    )
    printed = here("schedule", "results", new_id, "--limit", "2", *at_work)
    shown = here("schedule", "show", new_id, *at_work).stdout
    bad = here("schedule", "results", new_id, "--after", "bad", *at_work)
    value(here, "delete", new_id, *at_work)

    assert [(one["id"], one["by"], one["outcome"]) for one in (first, second)] == [
        (turns[0], "anna", "completed"),
        (turns[1], "bo", "completed"),
    ]
    assert (first["schedule"], first["kind"]) == (new_id, "result")
    assert [line.split()[-1] for line in printed.stdout.splitlines()] == turns
    assert all("  completed" in line for line in printed.stdout.splitlines())
    assert "run by bo\n" in shown
    assert (bad.returncode, "is not a cursor" in bad.stderr) == (2, True)


def lines_of(here: InProcess, *arguments: str) -> list[Any]:
    """The lines of JSON of a command that succeeds."""
    done = here("schedule", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.accepts("E74")
def test_schedule_is_created_shown_run_paused_changed_and_deleted(
    here: InProcess, at_work: Sequence[str], new_id: str
) -> None:
    """Each step changes what `show` prints; `list` shows the turns."""
    create = ("schedule", "create", new_id, "talker", "Say\thello.", *WHEN, *at_work)
    created = here(*create, "--usd", "0.50", "--label", "team=x", "--starts", "2026-01-01")
    again = here(*create, "--usd", "0.50", "--label", "team=x", "--starts", "2026-01-01")
    other = here(*create)
    turn = value(here, "run", new_id, *at_work)["turn"]
    slots = value(here, "backfill", new_id, "2026-03-27", "2026-03-30T23:59", *at_work)["slots"]
    wait_until(
        lambda: (
            [one["outcome"] for one in value(here, "show", new_id, *at_work)["last"]].count(
                "completed"
            )
            == 3
        ),
        "three turns complete",
    )
    first = here("show", f"{new_id}-2026-03-27T06:00:00Z", *at_work).stdout
    why = ["--reason", "the source is down", "--by", "anna"]
    paused = here("schedule", "pause", new_id, *why, *at_work)
    shown = here("schedule", "show", new_id, *at_work)
    changed = value(
        here,
        *("change", new_id, *at_work, "--cron", "30 6 * * *", "--ends", "2099-12-24T18:00"),
        *("--starts", "none", "--jitter", "90s", "--remember-last", "--model-calls", "3"),
    )
    resumed = value(here, "resume", new_id, *at_work)
    deleted = value(here, "delete", new_id, *at_work)
    gone = here("schedule", "show", new_id, *at_work, "--json")

    assert created.returncode == 0
    assert created.stdout == again.stdout
    assert created.stdout.splitlines()[:3] == [
        f"schedule  {new_id}",
        "turn      talker: Say hello.",
        "times     0 7 * * 1-5  Europe/Berlin",
    ]
    assert other.returncode == 2
    assert "differs in labels, budget, starts" in other.stderr
    assert slots == ["2026-03-27T07:00:00+01:00", "2026-03-30T07:00:00+02:00"]
    assert "talker, scheduled for Friday, 2026-03-27 07:00 Europe/Berlin (UTC+01:00): Say" in first
    assert paused.stderr == f"schedule {new_id} is paused\n"
    assert shown.stdout.splitlines()[:7] == [
        f"schedule  {new_id}  paused",
        "reason    the source is down",
        "by        anna",
        "turn      talker: Say hello.",
        "times     0 7 * * 1-5  Europe/Berlin",
        "rules     if running: skip, catch up: 1 h, on failure: go on, from Thu 2026-01-01 00:00",
        "budget    $0.50",
    ]
    assert shown.stdout.splitlines()[7:9] == [
        "labels    team=x",
        "so far    3 started, 0 skipped, 0 missed",
    ]
    assert shown.stdout.splitlines()[-3:] == [
        f"Mon 2026-03-30 07:00  schedule  completed  $0.00  {new_id}-2026-03-30T05:00:00Z",
        f"Fri 2026-03-27 07:00  schedule  completed  $0.00  {new_id}-2026-03-27T06:00:00Z",
        shown.stdout.splitlines()[-1],
    ]
    assert shown.stdout.splitlines()[-1].split()[3:] == ["hand", "completed", "$0.00", turn]
    assert (changed["cron"], changed["task"], changed["starts"]) == (
        "30 6 * * *",
        "Say hello.",
        None,
    )
    assert (changed["ends"], changed["jitter"]) == ("2099-12-24T18:00:00+01:00", "PT1M30S")
    assert (changed["remember_last"], changed["is_paused"]) == (True, True)
    assert (changed["budget"]["usd"], changed["budget"]["model_calls"]) == (None, 3)
    assert resumed == {"schedule": new_id, "paused": False}
    assert deleted == {"schedule": new_id, "deleted": True}
    assert gone.returncode == 2
    assert json.loads(gone.stdout)["code"] == "SCHEDULE_NOT_FOUND"


@pytest.mark.slow
@pytest.mark.accepts("E74", "E105")
def test_schedule_of_a_session_is_created_shown_and_run(
    here: InProcess, at_work: Sequence[str], new_id: str
) -> None:
    """`show` has the session, and the turns that read the messages."""
    create = ("schedule", "create", new_id, "talker", "Say hello.", *WHEN, *at_work)
    created = here(*create, "--session", f"{new_id}-chat")
    message = value(here, "run", new_id, *at_work)["turn"]
    wait_until(
        lambda: value(here, "show", new_id, *at_work)["last"][0]["outcome"] == "completed",
        "a turn has read the message",
    )
    shown = here("schedule", "show", new_id, *at_work).stdout.splitlines()
    status = value(here, "show", new_id, *at_work)
    changed = value(here, "change", new_id, "--session", f"{new_id}-2", *at_work)
    refused = here("schedule", "change", new_id, "--if-running", "allow", *at_work)
    here("schedule", "delete", new_id, *at_work)

    assert created.stdout.splitlines()[1:3] == [
        "message   talker: Say hello.",
        f"session   {new_id}-chat",
    ]
    assert shown[-1].split()[3:] == ["hand", "completed", "$0.00", f"{new_id}-chat/1"]
    assert (status["session"], status["if_running"]) == (f"{new_id}-chat", "queue")
    assert (status["last"][0]["message"], changed["session"]) == (message, f"{new_id}-2")
    assert refused.returncode == 2
    assert "cannot be combined with a session" in refused.stderr


@pytest.mark.accepts("E74", "E110")
def test_schedule_shows_its_total_budget_and_what_is_spent(
    here: InProcess, at_work: Sequence[str], new_id: str
) -> None:
    """A change raises it."""
    create = ("schedule", "create", new_id, "talker", "Say hello.", *WHEN, *at_work)
    created = here(*create, "--total-usd", "20", "--total-tokens", "5000")
    refused = here("schedule", "change", new_id, "--if-running", "allow", *at_work)
    changed = value(here, "change", new_id, "--total-usd", "30", *at_work)
    here("schedule", "delete", new_id, *at_work)

    assert "total     $20.00, 5000 tokens; spent: $0.00, 0 tokens" in created.stdout.splitlines()
    assert (refused.returncode, "total needs turns" in refused.stderr) == (2, True)
    assert (changed["total"]["usd"], changed["total"]["tokens"]) == ("30", None)
    assert changed["spent"]["tokens"] == 0


@pytest.mark.slow
@pytest.mark.accepts("E74")
def test_schedules_and_their_turns_are_listed(
    here: InProcess, at_work: Sequence[str], new_id: str
) -> None:
    """`list --schedule` has the turns of one."""
    here("schedule", "create", new_id, "talker", "Say hello.", *WHEN, *at_work)
    turn = value(here, "run", new_id, *at_work)["turn"]
    wait_until(lambda: turn in here("list", "--schedule", new_id, *at_work).stdout, "it is listed")
    wait_until(lambda: new_id in here("schedule", "list", *at_work).stdout, "the schedule, too")
    lines = here("schedule", "list", *at_work).stdout.splitlines()
    entries = [
        json.loads(line)
        for line in here("schedule", "list", "--json", *at_work).stdout.splitlines()
    ]
    limited = here("schedule", "list", "--limit", "1", "--json", *at_work)
    here("schedule", "delete", new_id, *at_work)

    assert len(limited.stdout.splitlines()) == 1
    [line] = [line for line in lines if line.startswith(f"{new_id} ")]
    assert lines[0].split() == ["ID", "AGENT", "CRON", "ZONE", "NEXT", "TASK"]
    assert line.split()[1:8] == ["talker", "0", "7", "*", "*", "1-5", "Europe/Berlin"]
    assert line.endswith("07:00  Say hello.")
    [entry] = [entry for entry in entries if entry["id"] == new_id]
    assert (entry["agent"], entry["task"], len(entry["next"])) == ("talker", "Say hello.", 10)


@pytest.mark.accepts("E74")
def test_help_of_every_command_of_schedules_fits_on_a_terminal(here: InProcess) -> None:
    """Each has an example, in 80 columns."""
    pages = {name: here("schedule", name, "--help", COLUMNS="80") for name in schedule.commands}

    assert {done.returncode for done in pages.values()} == {0}
    assert all(f"  perdure schedule {name} " in done.stdout for name, done in pages.items())
    assert [
        line for done in pages.values() for line in done.stdout.splitlines() if len(line) > 80
    ] == []


@pytest.mark.accepts("E74")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "ID", "talker", "go", "--cron", "0 7 * * *"], "Missing option '--timezone'"),
        (["create", "ID", "talker", "go", "--cron", "0 7 * *", "--timezone", "UTC"], "five"),
        (["create", "ID", "talker", "go", *WHEN, "--if-running", "wait"], "is not one of 'skip'"),
        (["create", "ID", "talker", "go", *WHEN, "--starts", "soon"], "'soon' is not a time"),
        (["create", "ID", "talker", "go", *WHEN, "--usd", "much"], "usd"),
        (["show", "ID"], "there is no schedule"),
        (["run", "ID"], "there is no schedule"),
        (["pause", "ID"], "there is no schedule"),
        (["backfill", "ID", "2026-01-01", "tomorrow"], "'tomorrow' is not a time"),
        (["change", "ID", "--cron", "0 7 * * *"], "there is no schedule"),
        (["rum", "ID"], "No such command 'rum'"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[-2:]),
)
def test_mistake_is_said_in_one_line(
    here: InProcess, at_work: Sequence[str], arguments: list[str], said: str
) -> None:
    """Exit code 2, and nothing on standard output."""
    name = f"none-{secrets.token_hex(4)}"
    given = [name if one == "ID" else one for one in arguments]
    done = here("schedule", *given, *at_work, COLUMNS="1000")

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
