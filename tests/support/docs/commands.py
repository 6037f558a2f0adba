"""The console blocks of a page: their commands and the output shown below them."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

from .pages import ROOT, Block

_SCRIPTS = str(Path(sys.executable).parent)
_OURS = (
    "PERDURE_",
    "TEMPORAL_",
    "OPENAI_",
    "ANTHROPIC_",
    "OTEL_",
    "PYTEST_",
    "NO_COLOR",
    "HTTP_PROXY",
    "http_proxy",
)
_PATIENCE_S = 120.0
_VARIABLE = re.compile(r"[A-Z_]+=")
_SAME = [
    (r"\d+\.\d+ ?s\b", "0.0 s"),  # how long it took
    (r"approved by \w+", "approved by anna"),  # the login name
    (r"\bin \d+ h \d+ min", "in 7 h 59 min"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:0"),
    (r"temporal\.example\.com:\d+", "127.0.0.1:0"),
    (r"process \d+", "process 0"),
    (r"[ ─]+", " "),
]
"""What differs from run to run, or with the width of a column."""


@dataclass(frozen=True)
class Command:
    """A command that a page shows.

    Attributes:
        where: The block that contains it.
        text: As it is typed, on several lines if it is.
        shown: The output shown below it.
    """

    where: Block
    text: str
    shown: str

    @property
    def line(self) -> str:
        """The command as run here: programs of `.venv/bin` are on the path."""
        return self.text.removeprefix(".venv/bin/")

    @property
    def words(self) -> list[str]:
        """Program and arguments, without the variables set before them."""
        return list(dropwhile(_VARIABLE.match, shlex.split(self.line)))

    @property
    def lasts(self) -> bool:
        """Whether it runs until it is stopped."""
        if "--check" in self.words:
            return False
        return (
            self.words[:2] in (["perdure", "dev"], ["perdure", "worker"], ["perdure", "serve"])
            or self.words[0] == "uvicorn"
        )


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block; an open quote or a backslash continues on the next line."""
    lines = block.text.splitlines()
    while lines:
        line = lines.pop(0)
        assert line.startswith("$ "), f"{block}: a console block begins with a command"
        text = line.removeprefix("$ ")
        while _goes_on(text):
            text += "\n" + lines.pop(0)
        shown = ""
        while lines and not lines[0].startswith("$ "):
            shown += lines.pop(0) + "\n"
        yield Command(block, text, shown)


def _goes_on(text: str) -> bool:
    try:
        shlex.split(text)
    except ValueError:
        return True
    return False


def agrees(shown: str, printed: str) -> bool:
    """Whether the shown output matches what is printed: `…` matches anything, and on a line of its
    own any number of lines.
    """
    lines = [
        r"(.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in _same(shown).splitlines()
    ]
    return re.fullmatch("".join(lines), _same(printed)) is not None


def _same(text: str) -> str:
    for pattern, word in _SAME:
        text = re.sub(pattern, word, text)
    return "".join(f"{line.strip()}\n" for line in text.strip().splitlines())


class Terminal:
    """A terminal in a folder, with the environment of a fresh machine.

    Attributes:
        environment: What is set; `export` adds to it.
    """

    def __init__(self, folder: Path, address: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        self.folder = folder
        self.environment = {
            **kept,
            "HOME": str(folder),
            "PATH": f"{_SCRIPTS}:{os.environ['PATH']}",
            "PERDURE_GRACE_S": "1",
            "NO_PROXY": "*",
        }
        self.environment |= {"TEMPORAL_ADDRESS": address} if address else {}
        self._address = address

    async def run(self, command: Command) -> None:
        """Run a command; it must succeed and print what the page shows."""
        printed = await (self._until_shown(command) if command.lasts else self._to_the_end(command))
        assert not command.shown or agrees(command.shown, printed), (
            f"{command.where}: `{command.text}` prints\n{printed}"
        )

    def goes_to(self, printed: str) -> None:
        """Use the server whose address `perdure dev` has printed."""
        self.environment["TEMPORAL_ADDRESS"] = re.findall(r"Temporal +(\S+)", printed)[0]

    def export(self, command: Command) -> None:
        """Set variables, as `export NAME=VALUE` does, with what other commands print."""
        done = subprocess.run(
            ["bash", "-c", f"{command.line}; env -0"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
        names = [word.partition("=")[0] for word in command.words[1:]]
        self.environment |= {name: found[name] for name in names}

    async def _to_the_end(self, command: Command) -> str:
        async with self._started(command.line) as process:
            out, err = await process.communicate()
        assert process.returncode == 0, (
            f"{command.where}: `{command.text}` ends with"
            f" {process.returncode}\n{out.decode()}{err.decode()}"
        )
        return out.decode() or err.decode()

    async def _until_shown(self, command: Command) -> str:
        async with self.stays(command) as (process, printed):
            process.send_signal(signal.SIGINT)
            await process.communicate()
        assert process.returncode == 0, (
            f"{command.where}: `{command.text}` ends with {process.returncode}\n{printed}"
        )
        return printed

    @asynccontextmanager
    async def stays(
        self, command: Command, port: int = 0, patience_s: float = _PATIENCE_S
    ) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
        """A command that keeps running, once all the output that the page shows is there; and its
        output so far, including stderr. A server listens at a port, or at any free one.
        """
        shown, said = command.shown or "…\n…task queue…\n", list[str]()
        line = command.line + (
            f" --port {port}" if {"dev", "serve", "uvicorn"} & set(command.words) else ""
        )
        async with self._started(
            line, said, stderr=asyncio.subprocess.STDOUT, patience_s=patience_s
        ) as process:
            assert process.stdout is not None
            while (more := (await process.stdout.readline()).decode()) and not agrees(
                shown, "".join([*said, more])
            ):
                said.append(more)
            yield process, "".join([*said, more])

    @asynccontextmanager
    async def _started(
        self,
        line: str,
        said: Sequence[str] = (),
        stderr: int = asyncio.subprocess.PIPE,
        patience_s: float = _PATIENCE_S,
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """A command that is killed when it takes too long."""
        where = ROOT if "tests/" in line else self.folder
        line = re.sub(r"(localhost|temporal\.example\.com):7233", self._address, line)
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", f"exec env {line}"),
            cwd=where,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
        try:
            async with asyncio.timeout(patience_s):
                yield process
        except TimeoutError:
            raise AssertionError(f"not within {patience_s} s: `{line}`\n{''.join(said)}") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
