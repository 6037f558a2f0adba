"""The command line as a person meets it: real processes, their exit codes and what they print."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

AGENTS = '''
import time
from perdure import Agent, Registry, tool

@tool
def search_files(query: str, limit: int) -> str:
    """Search for a very long time."""
    for _ in range(600):
        time.sleep(0.1)
    return "{}"

talker = Agent(name="talker", model="offline:librarian")
registry = Registry([
    talker,
    Agent(name="seeker", model="offline:librarian", tools=[search_files]),
    Agent(name="broken", model="offline:nothing"),
])
'''
NO_MODEL = "I am no language model."

T = TypeVar("T")


class CommandLine:
    """`perdure` in a folder of its own, with nothing set in its environment that a fresh machine would not have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "TEMPORAL_", "OPENAI_", "NO_COLOR"))}
        self.environment = {**kept, "HOME": str(folder)}

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "perdure", *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextlib.contextmanager
    def started(self, *arguments: str, **environment: str) -> Iterator[Started]:
        """A command that goes on until somebody ends it."""
        with (self.folder / f"stderr-{secrets.token_hex(4)}").open("w+", encoding="utf-8") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "perdure", *arguments],
                cwd=self.folder,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
            try:
                yield Started(process, Path(said.name))
            finally:
                process.kill()
                process.wait()


class Started:
    """A command that runs, and what it has said on stderr."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.process = process
        self._said = said

    @property
    def stderr(self) -> str:
        return self._said.read_text(encoding="utf-8")

    def wait_for(self, pattern: str, *, within_s: float = 20.0) -> re.Match[str]:
        """Wait until stderr holds this."""
        found = wait_until(lambda: re.search(pattern, self.stderr), f"{pattern} in {self.stderr!r}", within_s=within_s)
        assert found is not None
        return found

    def interrupt(self) -> int:
        """Ctrl-C, and the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=20)


def wait_until(look: Callable[[], T], what: str, *, within_s: float = 20.0) -> T:
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def status_of(url: str) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as response:
        code: int = response.status
        return code


@pytest.fixture
def perdure(tmp_path: Path) -> CommandLine:
    """The command line in an empty folder but for agents.py."""
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    return CommandLine(tmp_path)


@pytest.fixture(scope="module")
def at_work(perdure_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """A worker process for agents.py; the options that lead a command to it."""
    folder = tmp_path_factory.mktemp("worker")
    (folder / "agents.py").write_text(AGENTS, encoding="utf-8")
    queue = f"test-{secrets.token_hex(6)}"
    with CommandLine(folder).started(
        *("worker", "agents:registry", "--address", perdure_server), PERDURE_TASK_QUEUE=queue, PERDURE_GRACE_S="1"
    ) as worker:
        worker.wait_for(queue)
        yield ["--address", perdure_server, "--task-queue", queue]


@pytest.fixture
def closed_port() -> str:
    """An address where nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def new_id() -> str:
    """An id that no other test has."""
    return f"turn/{secrets.token_hex(6)}"


# --- wrong and missing arguments


def test_no_command_prints_the_help_and_is_a_mistake(perdure: CommandLine) -> None:
    """Exit code 2, and every command is named."""
    done = perdure()

    assert done.returncode == 2
    assert [name for name in ("worker", "dev", "run", "show", "cancel", "ask", "demo") if f"\n    {name} " not in done.stdout] == []


def test_unknown_command_is_a_mistake(perdure: CommandLine) -> None:
    """Exit code 2, with the commands there are."""
    done = perdure("rum")

    assert (done.returncode, done.stdout) == (2, "")
    assert "'rum'" in done.stderr


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nope:app", "'nope' cannot be imported"),
        ("agents:nothing", "'agents' has nothing called 'nothing'"),
        ("agents", "not module:name"),
        ("agents:", "not module:name"),
        (":registry", "not module:name"),
        ("json:loads", r"json:loads\(\) failed"),
        ("sys:path", "sys:path is a list"),
        ("broken:app", "ZeroDivisionError"),
        ("", "not module:name"),
    ],
)
def test_what_is_no_agent_is_refused_in_one_kind_line(perdure: CommandLine, target: str, said: str) -> None:
    """Exit code 2 and a sentence that says what was found; no traceback."""
    (perdure.folder / "broken.py").write_text("app = 1 / 0\n", encoding="utf-8")

    done = perdure("worker", target)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"perdure: .*{said}.*\n", done.stderr), done.stderr


@pytest.mark.parametrize("command", [["worker", "agents:talker"], ["run", "talker", "hello"], ["show", "any"], ["cancel", "any"]], ids=lambda c: c[0])
def test_server_that_does_not_answer_is_said_with_what_to_do(perdure: CommandLine, closed_port: str, command: list[str]) -> None:
    """Exit code 2 within ten seconds or so, for every command that needs a server."""
    began = time.monotonic()

    done = perdure(*command, "--address", closed_port)

    assert done.returncode == 2
    assert f"no Temporal server answers at {closed_port}" in done.stderr
    assert "perdure dev" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began < 14


# --- turns


def test_run_follows_a_turn_to_its_answer(perdure: CommandLine, at_work: list[str], new_id: str) -> None:
    """Exit code 0; the steps and the answer on stdout, id and figures on stderr, and no escape codes in a pipe."""
    done = perdure("run", "talker", "hello", "--id", new_id, *at_work)

    assert done.returncode == 0
    assert f"turn {new_id}\n" in done.stderr
    assert re.search(r"1 steps? · \d+ tokens", done.stderr)
    assert "talker: hello\n" in done.stdout
    assert "step-1" in done.stdout
    assert f"\n{NO_MODEL}" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.accepts("E3")
def test_run_with_the_same_id_shows_the_same_turn(perdure: CommandLine, at_work: list[str], new_id: str) -> None:
    """Attached by default; an error or a conflict is exit code 2."""
    first = perdure("run", "talker", "hello", "--id", new_id, *at_work)
    second = perdure("run", "talker", "hello", "--id", new_id, *at_work)
    refused = perdure("run", "talker", "hello", "--id", new_id, "--if-exists", "error", *at_work)
    conflict = perdure("run", "talker", "good bye", "--id", new_id, *at_work)

    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (conflict.returncode, conflict.stdout) == (2, "")
    assert new_id in refused.stderr
    assert new_id in conflict.stderr


def test_show_prints_a_turn_from_its_beginning(perdure: CommandLine, at_work: list[str], new_id: str) -> None:
    """The same as `run` did."""
    ran = perdure("run", "talker", "hello", "--id", new_id, *at_work)
    shown = perdure("show", new_id, *at_work)

    assert (shown.returncode, shown.stdout) == (0, ran.stdout)


@pytest.mark.parametrize("command", ["show", "cancel"])
def test_turn_that_is_not_there_is_said(perdure: CommandLine, at_work: list[str], new_id: str, command: str) -> None:
    """Exit code 2, with the id."""
    done = perdure(command, new_id, *at_work)

    assert (done.returncode, done.stdout) == (2, "")
    assert new_id in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("agent", "said"), [("broken", "the only model here is 'librarian', not 'nothing'"), ("nobody", "no agent named 'nobody'; this worker knows")]
)
def test_turn_that_fails_is_exit_code_one_with_the_reason(perdure: CommandLine, at_work: list[str], agent: str, said: str) -> None:
    """The last line on stderr is the error's message."""
    done = perdure("run", agent, "hello", *at_work)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"perdure: {said}")
    assert "failed" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.accepts("E4")
def test_cancel_stops_a_turn_and_says_why(perdure: CommandLine, at_work: list[str], new_id: str) -> None:
    """The one who follows it sees the reason and exit code 1, and so does who looks later; cancelling again does nothing."""
    with perdure.started("run", "seeker", "notice period", "--id", new_id, *at_work) as following:
        following.wait_for(new_id)
        wait_until(lambda: perdure("cancel", new_id, "--reason", "no longer needed", *at_work).returncode == 0, "the turn is there")
        code = following.process.wait(timeout=30)
        said = following.stderr
    shown = perdure("show", new_id, *at_work)
    again = perdure("cancel", new_id, *at_work)

    assert (code, shown.returncode, again.returncode) == (1, 1, 0)
    assert said.splitlines()[-1] == "perdure: the turn was cancelled: no longer needed"
    assert shown.stderr.splitlines()[-1] == "perdure: the turn was cancelled: no longer needed"
    assert "cancelled" in shown.stdout


@pytest.mark.accepts("O13")
def test_queue_that_nobody_polls_is_said_within_ten_seconds(perdure: CommandLine, perdure_server: str) -> None:
    """On stderr, with the queue's name and the command that helps; Ctrl-C ends the watching with exit code 130."""
    queue = f"nobody-{secrets.token_hex(4)}"

    with perdure.started("run", "talker", "hello", "--address", perdure_server, "--task-queue", queue) as waiting:
        waiting.wait_for("turn talker/")
        line = waiting.wait_for(rf".*{queue}.*", within_s=10)[0]
        code = waiting.interrupt()

    assert "perdure worker" in line
    assert code == 130
    assert "Traceback" not in waiting.stderr


def on_a_terminal(perdure: CommandLine, *arguments: str, **environment: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "perdure", *arguments]
    process = subprocess.Popen(command, cwd=perdure.folder, env={**perdure.environment, **environment}, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    out = b""
    with contextlib.suppress(OSError):  # a terminal whose other end is closed is an error on Linux
        while select.select([ours], [], [], 30)[0] and (data := os.read(ours, 65536)):
            out += data
    os.close(ours)
    assert process.wait(timeout=30) == 0
    return out.decode()


def test_colours_are_for_terminals_and_no_color_is_respected(perdure: CommandLine, at_work: list[str], new_id: str) -> None:
    """Escape codes on a terminal, none with NO_COLOR, and the words are the same."""
    perdure("run", "talker", "hello", "--id", new_id, *at_work)

    coloured = on_a_terminal(perdure, "show", new_id, *at_work)
    plain = on_a_terminal(perdure, "show", new_id, *at_work, NO_COLOR="1")

    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d*m", "", coloured) == plain


# --- dev and ask


def test_dev_serves_until_ctrl_c_and_leaves_nothing_running(perdure: CommandLine) -> None:
    """It prints where the server and the web UI are, both answer, and after Ctrl-C both are gone with exit code 0."""
    with perdure.started("dev", "--port", "0") as dev:
        address = dev.wait_for(r"Temporal  (\S+)")[1]
        ui = dev.wait_for(r"web UI    (\S+)")[1]
        dev.wait_for("Ctrl-C")
        note = json.loads((perdure.folder / ".perdure/server.json").read_text(encoding="utf-8"))
        answered = status_of(ui)
        again = perdure("dev")
        code = dev.interrupt()

    assert (note["address"], note["ui"], answered) == (address, ui, 200)
    assert (again.returncode, "runs already" in again.stderr, address in again.stderr) == (0, True, True)
    assert code == 0
    assert not is_alive(note["pid"])
    assert not (perdure.folder / ".perdure/server.json").exists()
    assert "Traceback" not in dev.stderr


def test_dev_moves_from_a_taken_port_and_says_so(perdure: CommandLine) -> None:
    """The next free one, with the port that was asked for."""
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        with perdure.started("dev", "--port", str(taken)) as dev:
            port = int(dev.wait_for(r"Temporal  127\.0\.0\.1:(\d+)")[1])
            said = dev.stderr
            code = dev.interrupt()

    assert f"port {taken} is taken" in said
    assert taken < port <= taken + 50
    assert code == 0


def test_dev_with_agents_runs_their_turns(perdure: CommandLine) -> None:
    """One command for server and worker; another one in another terminal runs a turn; Ctrl-C ends all of it with exit code 0."""
    with perdure.started("dev", "agents:talker", "--port", "0") as dev:
        address = dev.wait_for(r"Temporal  (\S+)")[1]
        dev.wait_for("talker on task queue 'perdure'")
        note = json.loads((perdure.folder / ".perdure/server.json").read_text(encoding="utf-8"))
        done = perdure("run", "talker", "hello", "--address", address)
        code = dev.interrupt()

    assert (done.returncode, NO_MODEL in done.stdout) == (0, True)
    assert code == 0
    assert not is_alive(note["pid"])


def test_dev_refuses_what_is_no_agent_before_it_starts_a_server(perdure: CommandLine) -> None:
    """Exit code 2, and no folder was made."""
    done = perdure("dev", "agents:nothing")

    assert done.returncode == 2
    assert not (perdure.folder / ".perdure").exists()


def test_ask_answers_from_a_folder_and_names_the_source(perdure: CommandLine) -> None:
    """Without a server, a worker or a key: all of it is brought and gone afterwards."""
    (perdure.folder / "rules").mkdir()
    (perdure.folder / "rules/lease.md").write_text("# Lease\n\n## Notice\n\nThe notice period is three months.\n", encoding="utf-8")
    (perdure.folder / "rules/house.md").write_text("# House\n\nQuiet hours begin at ten.\n", encoding="utf-8")

    done = perdure("ask", "How long is the notice period?", "--folder", "rules")

    assert done.returncode == 0, done.stderr
    assert "three months" in done.stdout
    assert re.search(r"Source: lease\.md:[1-5]\n", done.stdout)
    assert "offline:librarian is not a language model" in done.stdout
    assert "\x1b" not in done.stdout
    assert not (perdure.folder / ".perdure/server.json").exists()


@pytest.mark.parametrize("command", [["ask", "anything"], ["demo"]], ids=["ask", "demo"])
def test_folder_that_is_none_is_said_before_anything_starts(perdure: CommandLine, command: list[str]) -> None:
    """Exit code 2, with the folder and the option."""
    done = perdure(*command, "--folder", "nowhere")

    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere is not a folder" in done.stderr
    assert "--folder" in done.stderr
