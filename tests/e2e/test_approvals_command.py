"""`perdure approvals` as a user runs it: a worker process, and a waiting turn for each test."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator

import pytest

from ..support.e2e.command_line import CommandLine, beside_a_worker, wait_until

pytestmark = pytest.mark.slow

AGENTS = r'''
from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker


@tool(requires_approval=True)
def close(number: str, words: str = "") -> str:
    """Close a ticket."""
    return f"closed {number}"


class Model:
    async def complete(self, request):
        letter = call("close", number="4711", words="Dear Jo,\nclosed.\x1b[2K\u202e9")
        asks = calls(letter, call("close", number="4712"), call("close", number="4713"))
        results = [
            result.content.partition("\n")[0]
            for message in request.messages
            for result in getattr(message, "results", ())
        ]
        return await ScriptedModel(says("; ".join(results)) if results else asks).complete(request)

    async def close(self):
        pass


app = AgentWorker(Agent(name="support", model="mine:m", tools=[close]), providers={"mine": Model()})
'''


@pytest.fixture(scope="module")
def perdure(perdure_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line beside a worker; it needs no connection options."""
    with beside_a_worker(AGENTS, tmp_path_factory.mktemp("approvals"), perdure_server) as here:
        yield here


@pytest.fixture
def waiting(perdure: CommandLine) -> Iterator[str]:
    """The id of a turn that waits for three approvals.

    An id with a space needs quotes in a shell.
    """
    turn_id = f"ticket {secrets.token_hex(6)}"
    with perdure.started("run", "support", "Close them.", "--id", turn_id):
        wait_until(lambda: "[call_1_1]" in look(perdure, turn_id), "the turn waits")
        yield turn_id


def look(perdure: CommandLine, turn_id: str) -> str:
    """The call ids that wait."""
    return "".join(
        f"[{line.split()[0]}]"
        for line in perdure("approvals", turn_id).stdout.splitlines()
        if line[:1].strip()
    )


def answer(perdure: CommandLine, turn_id: str) -> str:
    """The last line of the turn's answer."""
    return perdure("show", turn_id).stdout.rstrip().splitlines()[-1]


@pytest.mark.accepts("A1", "A4")
def test_person_approves_edits_and_denies(perdure: CommandLine, waiting: str) -> None:
    """Each call separately; a line states each decision, and the turn follows it."""
    approved = perdure("approvals", waiting, "--approve", "call_1_1")
    edited = perdure(
        "approvals", waiting, "--approve", "call_1_2", "--arguments", '{"number": "99"}'
    )
    left = look(perdure, waiting)
    denied = perdure("approvals", waiting, "--deny", "call_1_3", "--reason", "the customer called")

    assert (approved.returncode, approved.stdout[:38]) == (
        0,
        'approved  call_1_1  close  {"number": ',
    )
    assert (edited.returncode, edited.stdout) == (
        0,
        'approved  call_1_2  close  {"number": "99"}\n',
    )
    assert left == "[call_1_3]"
    assert (denied.returncode, denied.stdout) == (
        0,
        'denied  call_1_3  close  {"number": "4713"}\n',
    )
    assert (
        answer(perdure, waiting)
        == "closed 4711; closed 99; This call was not run: it was denied: the customer called"
    )


def test_several_calls_are_decided_at_once_or_none(perdure: CommandLine, waiting: str) -> None:
    """If one of them does not wait, the error names those that do, and nothing is decided."""
    wrong = perdure("approvals", waiting, "--deny", "call_1_1", "--deny", "z")
    left = look(perdure, waiting)
    right = perdure(
        "approvals", waiting, "--deny", "call_1_1", "--deny", "call_1_2", "--deny", "call_1_3"
    )
    again = perdure("approvals", waiting, "--deny", "call_1_1")

    assert (wrong.returncode, wrong.stdout, left) == (2, "", "[call_1_1][call_1_2][call_1_3]")
    assert (
        f"no call 'z' of turn '{waiting}' waits for approval (waiting: call_1_1, call_1_2,"
        " call_1_3); nothing was decided" in wrong.stderr
    )
    assert (right.returncode, len(right.stdout.splitlines())) == (0, 3)
    assert again.returncode == 2


def test_what_a_model_wrote_is_shown_as_it_is(perdure: CommandLine, waiting: str) -> None:
    """No text of a model moves the cursor or changes the writing direction; the suggested commands
    can be pasted.
    """
    looked = perdure("approvals", waiting)
    listed = wait_until(
        lambda: next(
            (line for line in perdure("approvals").stdout.splitlines() if waiting in line), ""
        ),
        "it is listed",
    )

    shown = looked.stdout.split("call_1_1  close  expires in 23 h 59 min\n")[1].split(
        "call_1_2  close"
    )[0]
    assert json.loads(shown) == {"number": "4711", "words": "Dear Jo,\nclosed.\x1b[2K\u202e9"}
    assert looked.stdout.replace("\n", "").isprintable()
    words = r"Dear Jo,\nclosed.\u001b[2K\u202e9"
    assert re.match(rf'"{re.escape(waiting)}"  call_1_1 +close +support +in 23 h', listed)
    assert listed.endswith(f'{{"number": "4711", "words": "{words}"}}')
    assert f"\nperdure approvals '{waiting}' --approve call_1_1\n" in looked.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--approve", "call_1_1"],
            "name the turn of the call: perdure approvals TURN --approve CALL",
        ),
        (["nobody/nothing"], "there is no turn 'nobody/nothing'"),
        (["any", "--deny", "call_1_1", "--arguments", "{}"], "--arguments goes with one --approve"),
        (["any", "--approve", "call_1_1", "--arguments", "{"], "--arguments is not JSON"),
        (
            ["any", "--approve", "call_1_1", "--arguments", "[]"],
            "--arguments must be a JSON object",
        ),
        (["any", "--reason", "because"], "name a call with --approve or --deny"),
    ],
)
def test_mistakes_decide_nothing(perdure: CommandLine, options: list[str], said: str) -> None:
    """Exit code 2, with a line that explains what to do."""
    done = perdure("approvals", *options)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
