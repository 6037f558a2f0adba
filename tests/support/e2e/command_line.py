"""The command line as real processes: each test has its own folder, and the environment of a fresh
machine.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from perdure.__main__ import run

from ..ports import free_port

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
    """`perdure` in a folder of its own, with the environment of a fresh machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(
                ("PERDURE_", "TEMPORAL_", "OPENAI_", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
            )
        }
        self.environment = {**kept, "HOME": str(folder), "PERDURE_SUPERVISOR": "0"}

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command until it ends."""
        return subprocess.run(
            [sys.executable, "-m", "perdure", *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def into_a_closed_pipe(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command whose output pipe is closed."""
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as out:
            return subprocess.run(
                [sys.executable, "-m", "perdure", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
            )

    @contextlib.contextmanager
    def started(self, *arguments: str, **environment: str) -> Iterator[Started]:
        """A command that runs until it is stopped."""
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


class InProcess(CommandLine):
    """The same commands without a process for each, which saves a third of a second of CPU.

    For their effects and output, not for how a process ends.
    """

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command until it ends."""
        modules, path = set(sys.modules), list(sys.path)
        with (
            changed(os.environ, {**self.environment, **environment}),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            try:
                code = run(arguments)
            finally:
                sys.path[:] = path
                for name in set(sys.modules) - modules:
                    if (getattr(sys.modules[name], "__file__", None) or "").startswith(
                        str(self.folder)
                    ):
                        sys.modules.pop(name)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def changed(environment: os._Environ[str], into: Mapping[str, str]) -> Iterator[None]:
    """Only these variables, until the end of the block."""
    before = dict(environment)
    environment.clear()
    environment.update(into)
    try:
        yield
    finally:
        environment.clear()
        environment.update(before)


@contextlib.contextmanager
def beside_a_worker(agents: str, folder: Path, address: str) -> Iterator[InProcess]:
    """The command line beside a worker for this program of agents; it needs no connection
    options.
    """
    here = InProcess(folder)
    (folder / "agents.py").write_text(agents, encoding="utf-8")
    queue = f"test-{secrets.token_hex(6)}"
    here.environment |= {
        "TEMPORAL_ADDRESS": address,
        "PERDURE_TASK_QUEUE": queue,
        "PERDURE_GRACE_S": "1",
    }
    with here.started("worker", "agents:app") as worker:
        worker.wait_for(queue)
        yield here


class Started:
    """A running command, and its stderr so far."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.process = process
        self._said = said

    @property
    def stderr(self) -> str:
        return self._said.read_text(encoding="utf-8")

    def wait_for(self, pattern: str, *, within_s: float = 60.0) -> re.Match[str]:
        """Wait until this text is on stderr."""
        found = wait_until(
            lambda: re.search(pattern, self.stderr),
            f"{pattern} in {self.stderr!r}",
            within_s=within_s,
        )
        assert found is not None
        return found

    def interrupt(self) -> int:
        """Send Ctrl-C, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)


def wait_until(look: Callable[[], T], what: str, *, within_s: float = 60.0) -> T:
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
    with opener.open(url, timeout=60) as response:
        code: int = response.status
        return code


@pytest.fixture
def perdure(tmp_path: Path) -> CommandLine:
    """The command line in a folder with nothing but agents.py."""
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    return CommandLine(tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> InProcess:
    """The same, in this process."""
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    return InProcess(tmp_path)


@pytest.fixture(scope="session")
def at_work(perdure_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """A worker process for agents.py, and the options with which a command uses its queue."""
    folder = tmp_path_factory.mktemp("worker")
    (folder / "agents.py").write_text(AGENTS, encoding="utf-8")
    queue = f"test-{secrets.token_hex(6)}"
    with CommandLine(folder).started(
        *("worker", "agents:registry", "--address", perdure_server),
        PERDURE_TASK_QUEUE=queue,
        PERDURE_GRACE_S="1",
    ) as worker:
        worker.wait_for(queue)
        yield ["--address", perdure_server, "--task-queue", queue]


@pytest.fixture
def closed_port() -> str:
    """An address where nothing listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def new_id() -> str:
    """An id that no other test uses."""
    return f"turn/{secrets.token_hex(6)}"
