"""`perdure run`, `show` and `cancel`: what is printed to which stream, and how the end of a turn is
reported.
"""

from __future__ import annotations

import re
import secrets

import pytest

from ..support.e2e.command_line import NO_MODEL, CommandLine, InProcess, wait_until


def test_run_follows_a_turn_to_its_answer(
    perdure: CommandLine, at_work: list[str], new_id: str
) -> None:
    """Exit code 0; only the answer is on stdout, so that it can be redirected; id, steps and
    numbers are on stderr; no escape codes in a pipe.
    """
    done = perdure("run", "talker", "hello", "--id", new_id, *at_work)

    assert (done.returncode, done.stdout.startswith(NO_MODEL)) == (0, True)
    assert [
        re.sub(r"[\d.]+ s\b|\d+ tokens", "N", line).strip() for line in done.stderr.splitlines()
    ] == [
        f"turn {new_id}",
        "N  talker: hello",
        "N  asks offline:librarian",
        "N  step-1  answers",
        "N  completed",
        "1 step · N · cost $0.00 · N",
    ]


@pytest.mark.accepts("D59")
def test_unknown_agent_is_not_resumed_but_started_by_another_name(
    here: InProcess, at_work: list[str], new_id: str
) -> None:
    """The error names the agents that there are; the command below it works with one of them."""
    failed = here("run", "nobody", "hello", "--id", new_id, *at_work)
    again = here("run", "talker", "hello", "--id", new_id, *at_work)

    assert failed.returncode != 0
    assert "no agent named 'nobody'; this worker knows " in failed.stderr
    assert "perdure resume" not in failed.stderr
    assert f" --id {new_id} TASK" in failed.stderr.replace("\n", " ")
    assert "to go on: perdure run AGENT" in failed.stderr
    assert again.returncode == 0


@pytest.mark.accepts("E3")
def test_run_with_the_same_id_shows_the_same_turn(
    here: InProcess, at_work: list[str], new_id: str
) -> None:
    """Attached by default; an error or a conflict gives exit code 2."""
    first = here("run", "talker", "hello", "--id", new_id, *at_work)
    second = here("run", "talker", "hello", "--id", new_id, *at_work)
    refused = here("run", "talker", "hello", "--id", new_id, "--if-exists", "error", *at_work)
    conflict = here("run", "talker", "good bye", "--id", new_id, *at_work)

    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (conflict.returncode, conflict.stdout) == (2, "")
    assert new_id in refused.stderr
    assert new_id in conflict.stderr


def test_show_prints_a_turn_from_its_beginning(
    here: InProcess, at_work: list[str], new_id: str
) -> None:
    """The same as `run` did; here the steps are the purpose, so they are on stdout with the
    answer.
    """
    ran = here("run", "talker", "hello", "--id", new_id, *at_work)
    shown = here("show", new_id, *at_work)
    steps, figures = (
        ran.stderr.splitlines(keepends=True)[1:-1],
        ran.stderr.splitlines(keepends=True)[-1],
    )

    assert (shown.returncode, shown.stdout, shown.stderr) == (
        0,
        f"{''.join(steps)}\n{ran.stdout}\n",
        figures,
    )


@pytest.mark.slow
def test_output_that_knows_few_letters_is_no_reason_to_fail(
    perdure: CommandLine, at_work: list[str], new_id: str
) -> None:
    """Characters that cannot be encoded are escaped."""
    perdure("run", "talker", "請求", "--id", new_id, *at_work)
    done = perdure("show", new_id, *at_work, PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert "  talker: \\u8acb\\u6c42\n" in done.stdout


@pytest.mark.accepts("P3")
@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("broken", "the only model here is 'librarian', not 'nothing'"),
        ("nobody", "no agent named 'nobody'; this worker knows"),
    ],
)
def test_turn_that_fails_is_exit_code_one_with_the_reason(
    here: InProcess, at_work: list[str], agent: str, said: str
) -> None:
    """The last line on stderr is the error's message."""
    done = here("run", agent, "hello", *at_work)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"perdure: {said}")
    assert (done.stdout, " failed\n" in done.stderr) == ("", True)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.accepts("E4")
def test_cancel_stops_a_turn_and_says_why(
    perdure: CommandLine, here: InProcess, at_work: list[str], new_id: str
) -> None:
    """A follower sees the reason and exit code 8, and so does a later `show`; cancelling again does
    nothing.
    """
    with perdure.started("run", "seeker", "notice period", "--id", new_id, *at_work) as following:
        following.wait_for(new_id)
        wait_until(
            lambda: (
                here("cancel", new_id, "--reason", "no longer needed", *at_work).returncode == 0
            ),
            "the turn is there",
        )
        code = following.process.wait(timeout=60)
        said = following.stderr
    shown = here("show", new_id, *at_work)
    again = here("cancel", new_id, *at_work)

    assert (code, shown.returncode, again.returncode) == (8, 8, 0)
    assert said.splitlines()[-1] == "perdure: the turn was cancelled: no longer needed"
    assert shown.stderr.splitlines()[-1] == "perdure: the turn was cancelled: no longer needed"
    assert "cancelled" in shown.stdout


@pytest.mark.slow
@pytest.mark.accepts("O13")
def test_queue_that_nobody_polls_is_said(perdure: CommandLine, perdure_server: str) -> None:
    """On stderr, with the queue's name and the command to run; Ctrl-C stops following with exit
    code 130.
    """
    queue = f"nobody-{secrets.token_hex(4)}"

    with perdure.started(
        "run", "talker", "hello", "--address", perdure_server, "--task-queue", queue
    ) as waiting:
        waiting.wait_for("turn talker/")
        line = waiting.wait_for(rf".*{queue}.*")[0]
        code = waiting.interrupt()

    assert "perdure worker" in line
    assert code == 130
    assert re.search(
        r"turn (talker/\w+) goes on; to follow it again:\n  perdure show \1 --address",
        waiting.stderr,
    )
    assert "Traceback" not in waiting.stderr
