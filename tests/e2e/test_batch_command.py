"""`perdure batch`: a file of tasks, a file of results, and what is printed to which stream."""

from __future__ import annotations

import csv
import json
import re
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.clients.cli.batches import batch

from ..support.e2e.command_line import CommandLine, InProcess, wait_until
from ..support.e2e.stories import ROOT
from ..support.e2e.terminal import terminal

APP = "tests.support.e2e.batch_app:make"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A file with four tasks."""
    path = tmp_path / f"tasks {secrets.token_hex(4)}.jsonl"
    lines = ['"one"', '{"task": "two", "id": "b", "labels": {"row": "2"}}', "", '"three"', '"four"']
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def here(tmp_path: Path, perdure_server: str) -> InProcess:
    """The command line in this process, and in the environment of a worker."""
    here = InProcess(tmp_path)
    here.environment |= environment(tmp_path, perdure_server)
    return here


@pytest.fixture
def worked(here: InProcess) -> Iterator[InProcess]:
    """The same beside a worker."""
    with working(here):
        yield here


def environment(folder: Path, address: str) -> dict[str, str]:
    """The environment of commands and workers of one test."""
    return {
        "TEMPORAL_ADDRESS": address,
        "PERDURE_TASK_QUEUE": f"test-{secrets.token_hex(6)}",
        "PERDURE_GRACE_S": "1",
        "E2E_JOURNAL": str(folder),
        "PYTHONPATH": str(ROOT),
    }


def working(here: CommandLine) -> Any:
    """A worker, which is stopped at the end of the block."""
    return here.started("worker", APP)


def listed_batches(here: InProcess, batch_id: str) -> str:
    """The table of batches as soon as a batch is in it; Temporal's list lags."""
    text = here("batch", "list", "--limit", "100").stdout
    return text if batch_id in text else ""


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.accepts("P56", "E87", "B25")
def test_file_has_each_result_once(worked: InProcess, tasks: Path, tmp_path: Path) -> None:
    """Also after a second start, with a file that lacks the end, or whose last line was cut off.
    Standard output is empty without --json, and has JSON alone with it.
    """
    out = tmp_path / "results.jsonl"
    command = ("batch", "run", str(tasks), "--agent", "classifier", "--out", str(out))
    first = worked(*command, "--at-once", "2", "--usd", "1")
    found = lines_of(out)
    whole = out.read_bytes()
    second = worked(*command)
    is_same = out.read_bytes() == whole
    begin = whole.splitlines(keepends=True)
    out.write_bytes(begin[0] + begin[1][:40])
    third = worked(*command)
    completed = lines_of(out)
    batch_id = first.stderr.splitlines()[0].removeprefix("batch ")
    as_json = worked("batch", "results", batch_id, "--json")
    rows = worked("batch", "results", batch_id, "--csv")
    sheet = tmp_path / "results.csv"
    into_file = [
        worked("batch", "results", batch_id, "--csv", "--out", str(sheet)) for _ in range(2)
    ]
    both = worked("batch", "results", batch_id, "--csv", "--json")
    for_people = worked("batch", "results", batch_id)
    shown = worked("batch", "show", batch_id)
    table = wait_until(lambda: listed_batches(worked, batch_id), "the batch is listed")
    entries = [json.loads(line) for line in worked("batch", "list", "--json").stdout.splitlines()]
    selected = ("list", "--parent", batch_id, "--label", "row=2", "--json")
    listed = wait_until(lambda: worked(*selected).stdout, "the turn is listed")
    told = [json.loads(line) for line in as_json.stdout.splitlines()]

    assert re.fullmatch(r"tasks-[0-9a-f]{8}-[0-9a-f]{8}", batch_id)
    assert (first.returncode, first.stdout) == (0, "")
    assert "b  done  done: two" in for_people.stdout.splitlines()
    assert rows.returncode == 0
    [names, *cells] = csv.reader(rows.stdout.splitlines())
    assert {tuple(one[:5]) for one in cells} >= {
        ("b", f"{batch_id}/b", "done", "completed", "done: two")
    }
    assert (len(cells), names[4:6]) == (4, ["output", "cost_usd"])
    assert [one.returncode for one in into_file] == [0, 0]
    assert sorted(sheet.read_text(encoding="utf-8").splitlines()) == sorted(
        rows.stdout.splitlines()
    )
    assert (both.returncode, json.loads(both.stdout)["code"]) == (2, "INVALID_REQUEST")
    assert len(for_people.stdout.splitlines()) == 4
    assert first.stderr.splitlines()[-2].startswith("completed: 4 of 4 done, $0.0002")
    assert Counter(line["id"] for line in found) == Counter(["1", "b", "3", "4"])
    answers = {f"done: {task}" for task in ("one", "two", "three", "four")}
    assert {line["output"] for line in found} == answers
    assert (second.returncode, third.returncode, is_same) == (0, 0, True)
    assert Counter(line["id"] for line in completed) == Counter(["1", "b", "3", "4"])
    assert [line["kind"] for line in told] == ["result"] * 4 + ["batch"]
    assert shown.stdout.splitlines()[:3] == [
        f"batch     {batch_id}  completed",
        "agent     classifier",
        "tasks     4 of 4 done",
    ]
    assert json.loads(listed)["id"] == f"{batch_id}/b"
    [header, *rows_of_table] = table.splitlines()
    assert header.split() == ["ID", "AGENT", "STATE", "DONE", "FAILED", "STARTED"]
    [row] = [row.split() for row in rows_of_table if row.startswith(f"{batch_id} ")]
    assert row[1:7] == ["classifier", "completed", "4", "of", "4", "0"]
    [entry] = [entry for entry in entries if entry["id"] == batch_id]
    assert (entry["state"], entry["done"], entry["total"]) == ("completed", 4, 4)


@pytest.mark.accepts("E79", "E82", "E87")
@pytest.mark.slow
def test_retry_completes_the_file(worked: InProcess, tasks: Path, tmp_path: Path) -> None:
    """A task that failed and those not started are run again, and their lines replaced; mistakes
    are one line.
    """
    tasks.write_text('"one"\n"refuse"\n"three"\n', encoding="utf-8")
    out, batch_id = tmp_path / "results.jsonl", f"batch-{secrets.token_hex(4)}"
    first = worked(
        *("batch", "run", str(tasks), "--agent", "classifier", "--id", batch_id, "--at-once", "1"),
        *("--on-error", "stop", "--out", str(out)),
    )
    states = [(line["id"], line["state"]) for line in lines_of(out)]
    (tmp_path / "allow").touch()
    retried = worked("batch", "retry", batch_id, "--out", str(out), "--at-once", "2")
    found = lines_of(out)
    cancelled = worked("batch", "cancel", batch_id)
    conflict = worked("batch", "run", str(tasks), "--agent", "other", "--id", batch_id)
    tasks.write_text('"one"\n{"tusk": 1}\n', encoding="utf-8")
    broken = worked("batch", "run", str(tasks), "--agent", "classifier")
    other = tmp_path / "letter.txt"
    other.write_text("Dear all", encoding="utf-8")
    foreign = worked("batch", "results", batch_id, "--out", str(other))
    missing = worked("batch", "show", "no-such-batch")

    assert first.returncode == 1
    assert states == [("1", "done"), ("2", "failed"), ("3", "not_started")]
    assert first.stderr.splitlines()[-1].endswith(f"perdure batch retry {batch_id}")
    assert (retried.returncode, len(found)) == (0, 3)
    assert {line["id"]: line["turn_id"] for line in found} == {
        "1": f"{batch_id}/1",
        "2": f"{batch_id}/2~2",
        "3": f"{batch_id}/3~2",
    }
    assert cancelled.stderr == f"batch {batch_id} is over already\n"
    assert (conflict.returncode, conflict.stderr.count("\n")) == (2, 1)
    assert (broken.returncode, "line 2 of tasks" in broken.stderr) == (2, True)
    assert (foreign.returncode, other.read_text(encoding="utf-8")) == (2, "Dear all")
    assert (missing.returncode, "no batch 'no-such-batch'" in missing.stderr) == (2, True)


@pytest.mark.accepts("P27")
def test_help_and_mistakes_of_batch_commands(here: InProcess) -> None:
    """The help fits on a terminal of 80 columns; a mistake names the help of its command."""
    names = list(batch.commands)
    pages = [here("batch", name, "--help", COLUMNS="80") for name in names]
    missing = here("batch")
    unknown = here("batch", "rum")

    assert [done.returncode for done in pages] == [0] * len(names)
    assert [line for done in pages for line in done.stdout.splitlines() if len(line) > 80] == []
    assert (missing.returncode, missing.stdout) == (2, here("batch", "--help").stdout)
    assert (unknown.returncode, "See perdure batch --help." in unknown.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.accepts("E87")
def test_interrupted_command_goes_on_with_the_same_batch(
    here: InProcess, tasks: Path, tmp_path: Path
) -> None:
    """Ctrl-C while no worker runs; a second start on a terminal shows a bar, and ends when a worker
    has run the tasks.
    """
    out = tmp_path / "results.jsonl"
    command = ("batch", "run", str(tasks), "--agent", "classifier", "--out", str(out))
    with here.started(*command) as first:
        batch_id = first.wait_for(r"batch (tasks-\S+)\n")[1]
        wait_until(lambda: here("batch", "show", batch_id).returncode == 0, "it is there")
        code = first.interrupt()
    shown = [sys.executable, "-m", "perdure", *command]
    with terminal(shown, tmp_path, here.environment, columns=100) as second:
        second.wait_for("0 of 4 done")
        bar = second.text
        with working(here):
            second.wait_for("completed: 4 of 4 done")
            code_after = second.end()
        text = second.text

    assert (code, code_after) == (130, 0)
    assert "━━━" in bar
    assert batch_id in text
    assert Counter(line["id"] for line in lines_of(out)) == Counter(["1", "b", "3", "4"])
    asked = (tmp_path / "asked").read_text(encoding="utf-8").split()
    assert sorted(asked) == ["four", "one", "three", "two"]
