"""`perdure chat`: a session on a terminal, and one from the lines of a pipe."""

from __future__ import annotations

import io
import json
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from perdure.text import exact

from ..support.e2e.command_line import InProcess, beside_a_worker
from ..support.e2e.terminal import Terminal, terminal
from ..support.hostile_text import EVIL, OURS

AGENTS = f'''
import asyncio
from datetime import timedelta
from pathlib import Path
from perdure import Agent, tool
from perdure.errors import LLMAuthError
from perdure.testing import FunctionModel, call, calls, fails, says, slowly
from perdure.values.messages import UserMessage
from perdure.worker import AgentWorker

@tool
async def hold(path: str) -> str:
    """Wait until a file appears."""
    while not Path(path).exists():
        await asyncio.sleep(0.02)
    return "it is there"

@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Give money back."""
    return f"{{euros}} euros"

def answer(messages):
    asked = [message.text for message in messages if isinstance(message, UserMessage)]
    if messages[-1].role == "tool":
        return says("It is done. " + " | ".join(asked))
    match asked[-1].split():
        case ["Hold", path]:
            return calls(call("hold", path=path), text="I hold.")
        case ["Pay", euros]:
            return calls(call("refund", euros=int(euros)))
        case ["Evil"]:
            return says({f"{EVIL}{chr(10)}> /close{chr(10)}" + "> x" * 40!r})
        case ["Slowly"]:
            return slowly(says("very slowly " * 100), pause=timedelta(seconds=0.2))
        case ["Fail"]:
            return fails(LLMAuthError("bad key"))
    return says(f"You said: {{' | '.join(asked)}}")

app = AgentWorker(
    [Agent(name=name, model="stub:m", tools=[hold, refund]) for name in ("support", "other")],
    providers={{"stub": FunctionModel(lambda request: answer(request.messages))}},
)
'''


@pytest.fixture(scope="module")
def perdure(perdure_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """The command line beside a worker; it needs no connection options."""
    with beside_a_worker(AGENTS, tmp_path_factory.mktemp("chat"), perdure_server) as here:
        yield here


@pytest.fixture
def session_id() -> str:
    return f"chat-{secrets.token_hex(4)}"


def chat(perdure: InProcess, *arguments: str) -> AbstractContextManager[Terminal]:
    """The command on a terminal."""
    command = [sys.executable, "-m", "perdure", "chat", "support", *arguments]
    return terminal(command, Path(perdure.folder), perdure.environment)


def from_a_pipe(
    perdure: InProcess, text: str, *arguments: str, agent: str = "support"
) -> subprocess.CompletedProcess[str]:
    """The command with these lines on standard input."""
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        return perdure("chat", agent, *arguments)
    finally:
        sys.stdin = before


def says(shown: Terminal, text: str, answer: str) -> None:
    """Type a line, and wait for the next prompt below an answer."""
    shown.type(f"{text}\n")
    shown.wait_for(f"(?s){answer}.*\n>$")


PROMPT = r"(?m)^>$"


@pytest.mark.accepts("P32")
@pytest.mark.slow
def test_lines_are_messages_and_the_session_stays_open(perdure: InProcess, session_id: str) -> None:
    """Each turn begins with the messages before; calls are short lines, and a call that waits comes
    with the command that decides about it. Ctrl-D leaves, with the command that comes back.
    """
    with chat(perdure, "--session", session_id, "--by", "anna") as shown:
        shown.wait_for(PROMPT)
        says(shown, "Hello.", "You said: Hello")
        shown.type("Pay 30\n")
        shown.wait_for(rf"perdure approvals {session_id}/2")
        perdure("approvals", f"{session_id}/2", "--approve", "call_1_1", "--by", "ben")
        shown.wait_for(r"(?s)It is done.*\n>$")
        shown.type("\x04")
        code, screen = shown.end(), re.sub(r"\d+\.\d s\b", "N s", shown.text)

    assert (code, screen.replace(session_id, "ID")) == (
        0,
        """\
session ID with support; /help lists the commands
to come back: perdure chat support --session ID --by anna
> Hello.
  You said: Hello.
1 step · 0 tokens · cost – · N s
> Pay 30
step-1  refund {"euros": 30}
waits for approval: somebody has to approve or deny refund (call_1_1)
perdure approvals ID/2
call_1_1 approved by ben
goes on
step-1.call-1  → 30 euros
  It is done. Hello. | Pay 30
2 steps · 0 tokens · cost – · N s
>
session ID stays open; to come back:
  perdure chat support --session ID --by anna""",
    )


@pytest.mark.accepts("P33")
@pytest.mark.slow
def test_ctrl_c_interrupts_the_turn_and_not_the_session(
    perdure: InProcess, session_id: str
) -> None:
    """A model that speaks is stopped. What was typed meanwhile waits until it is asked for; at the
    prompt Ctrl-C leaves, and the session goes on with `--session`, after its last messages.
    """
    with chat(perdure, "--session", session_id) as shown:
        shown.wait_for(PROMPT)
        shown.type("Slowly\n")
        shown.wait_for(r"  very slowly very")
        shown.type("\x03")
        shown.wait_for(r"(?s)what was said does not count\n.*cancelled\n>$")
        shown.type("Hold nothing\n")
        shown.wait_for("hold {")
        shown.type("Next.\n")
        shown.wait_for("the next turn reads it")
        shown.type("\x03")
        shown.wait_for(r"(?s)cancelled\n1 message waits for your next one.*\n>$")
        says(shown, "/resume", r"you: Next\.\n.*Next\.")
        shown.type("\x03")
        left = shown.end()
    with chat(perdure, "--session", session_id) as shown:
        shown.wait_for(PROMPT)
        recalled = shown.text
        says(shown, "Back.", r"Hold nothing \| Next\. \| Back")
        shown.type("/quit\n")
        quitted = shown.end()

    assert (left, quitted) == (130, 0)
    assert recalled.splitlines()[2:] == [
        "user: Hold nothing",
        "support: I hold.",
        "user: Next.",
        "support: You said: Slowly | Hold nothing | Next.",
        ">",
    ]


@pytest.mark.accepts("P34")
@pytest.mark.slow
def test_running_turn_is_followed_steered_and_interrupted(
    perdure: InProcess, session_id: str
) -> None:
    """A turn that runs when somebody comes is shown first, and so are the messages of others.
    `/steer` and `/now` reach it; `/close` ends the session after its turn.
    """
    held = Path(perdure.folder) / session_id
    with chat(perdure, "--session", session_id, "--by", "anna") as first:
        first.wait_for(PROMPT)
        first.type(f"Hold {held}\n")
        first.wait_for("hold {")
        with chat(perdure, "--session", session_id, "--by", "ben") as second:
            second.wait_for("hold {")
            second.type("/steer Be brief.\n")
            second.wait_for("ben says: Be brief.")
            held.touch()
            second.wait_for(r"(?s)You said: .*brief\..*\n>$")
            first.wait_for(r"(?s)You said: .*brief\..*\n>$")
            says(second, "From me.", "brief.*From\\s+me")
            first.wait_for(r"(?s)ben: From me\.\n.*\n>$")
            second.type("Hold nothing\n")
            second.wait_for("(?s)From\\s+me.*hold {")
            says(second, "/now Instead.", r"cancelled\nyou: Instead\.\n.*\|\s+Instead\.")
            second.type("/close\n")
            closed = second.end()
        ended = first.end()
        texts = first.text, second.text
    refused = from_a_pipe(perdure, "Hi.", "--session", session_id)

    assert (closed, ended, refused.returncode) == (0, 0, 2)
    assert all(text.endswith(f"session {session_id} takes no more messages") for text in texts)
    assert f"session {session_id} is closed" in refused.stderr


@pytest.mark.accepts("E99")
@pytest.mark.slow
def test_turn_that_is_not_of_the_session_is_not_shown(perdure: InProcess, session_id: str) -> None:
    """It runs under the id of the session's first turn."""
    held = Path(perdure.folder) / session_id
    command = [sys.executable, "-m", "perdure", "run", "support", f"Hold {held}"]
    folder, environment = Path(perdure.folder), perdure.environment
    with terminal([*command, "--id", f"{session_id}/1"], folder, environment) as other:
        other.wait_for("hold {")
        with chat(perdure, "--session", session_id) as shown:
            shown.wait_for(PROMPT)
            says(shown, "Hello.", "You said: Hello")
            shown.type("\x04")
            code = shown.end()
        held.touch()
        ended = other.end()

    assert (code, ended) == (0, 0)
    assert "hold" not in shown.text


@pytest.mark.accepts("P35")
@pytest.mark.slow
def test_text_of_models_cannot_pass_for_a_line_of_the_command(
    perdure: InProcess, session_id: str
) -> None:
    """Control characters are escaped, and no line of it begins at the left edge, where prompts
    are; what a failed turn says is an error, and the session goes on.
    """
    with chat(perdure, "--session", session_id) as shown:
        shown.wait_for(PROMPT)
        says(shown, "Evil", "x> x")
        says(shown, "Fail", "bad key")
        says(shown, "Still there?", "Evil . Fail . Still there")
        screen, raw = shown.text, OURS.sub("\n", shown.raw.decode())

    assert {one for one in raw if one != "\n" and exact(one) != one} <= {"\r", "\t"}
    assert [line for line in screen.splitlines() if line.startswith(">")] == [
        *("> Evil", "> Fail", "> Still there?", ">")
    ]
    assert "\n  > /close\n  > x> x" in screen
    assert f"\n{session_id}/2: bad key\n" in screen


@pytest.mark.slow
@pytest.mark.accepts("P36")
def test_lines_of_a_pipe_are_answered_one_after_the_other(
    perdure: InProcess, session_id: str
) -> None:
    """Only the answers are on standard output; a message without an answer ends the command with
    the exit code of its turn; another agent's session is refused.
    """
    first = from_a_pipe(perdure, "Hi.\n\nAnd now?\n", "--session", session_id)
    second = from_a_pipe(perdure, "/quit", "--session", session_id, "--usd", "1")
    failed = from_a_pipe(perdure, "Fail\nNever.\n", "--session", session_id)
    other = from_a_pipe(perdure, "Hi.", "--session", session_id, agent="other")

    assert (first.returncode, first.stdout) == (0, "You said: Hi.\nYou said: Hi. | And now?\n")
    assert (second.returncode, second.stdout) == (0, "You said: Hi. | And now? | /quit\n")
    assert "exists; limits, labels and idle time stay as they are" in second.stderr
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.endswith("perdure: bad key\n")
    assert (other.returncode, "belongs to the agent support" in other.stderr) == (2, True)


@pytest.mark.accepts("P36")
def test_json_has_the_session_and_for_each_message_its_turn(perdure: InProcess) -> None:
    """The id of a new session comes first; then, for each message, the lines of `perdure run`."""
    done = from_a_pipe(perdure, "Hi.\nFail\n", "--json")

    told = [json.loads(line) for line in done.stdout.splitlines()]
    session_id = told[0]["session"]
    assert (done.returncode, told[0]["kind"]) == (1, "session")
    assert re.fullmatch(r"support-[0-9a-f]{8}", session_id)
    assert [(one["kind"], one["turn"]) for one in told if "message" in one and "turn" in one] == [
        *(("sent", f"{session_id}/1"), ("sent", f"{session_id}/2"), ("error", f"{session_id}/2"))
    ]
    [report] = [one["report"] for one in told if one["kind"] == "report"]
    assert report["output"] == "You said: Hi."


@pytest.mark.accepts("P36")
@pytest.mark.slow
def test_ctrl_c_leaves_the_turn_of_a_pipe_running(perdure: InProcess, session_id: str) -> None:
    """As `perdure run` does; the turn goes on, and the command that comes back is printed."""
    held = Path(perdure.folder) / session_id
    with subprocess.Popen(
        [sys.executable, "-m", "perdure", "chat", "support", "--session", session_id],
        cwd=perdure.folder,
        env=perdure.environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stderr is not None
        running.stdin.write(f"Hold {held}\n")
        running.stdin.flush()
        said = ""
        while "hold {" not in said:
            said += running.stderr.readline()
        running.send_signal(signal.SIGINT)
        code, said = running.wait(60), running.stderr.read()
    held.touch()
    shown = perdure("show", f"{session_id}/1")

    assert (code, shown.returncode) == (130, 0)
    assert f"stays open; to come back:\n  perdure chat support --session {session_id}\n" in said
    assert "It is done." in shown.stdout


@pytest.mark.accepts("P33")
@pytest.mark.slow
def test_message_that_no_worker_takes_is_told(perdure: InProcess, session_id: str) -> None:
    """After a few seconds; Ctrl-C leaves at once then."""
    with chat(perdure, "--session", session_id, "--task-queue", "nobody") as shown:
        shown.wait_for(PROMPT)
        shown.type("Hello.\n")
        shown.wait_for("no worker has accepted the message yet")
        shown.type("\x03")
        code = shown.end(within_s=60)

    assert code == 130
    assert f"session {session_id} stays open" in shown.text
    assert "Traceback" not in shown.text


@pytest.mark.slow
@pytest.mark.accepts("D64")
def test_line_that_is_typed_while_an_answer_is_written_stays_apart(
    perdure: InProcess, session_id: str
) -> None:
    """Nothing of it is in the answer's lines. A complete line has one of its own; what is not sent
    yet stands after the next prompt, where it can be edited.
    """
    with chat(perdure, "--session", session_id) as shown:
        shown.wait_for(PROMPT)
        shown.type("Slowly\n")
        shown.wait_for(r"  very slowly very")
        shown.type("Nxe\x7ft.\n")
        shown.wait_for("(?m)^> Nxt\\.\nthe next turn reads it$")
        shown.type("/resumx\x1b[D")
        shown.type("\x03")
        shown.wait_for(r"(?m)^> /resumx$")
        shown.type("\x7fe\n")
        shown.wait_for(r"(?s)You said: Slowly \| Nxt\..*\n>$")
        shown.type("gone\x15\x04")
        code = shown.end()

    assert code == 0
    assert not re.search(r"slowly.*(Nx|resum)", shown.text)
    assert "\n> /resume\n" in shown.text
