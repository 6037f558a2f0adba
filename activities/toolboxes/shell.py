"""The toolbox that runs commands in a folder: listed programs, or a shell. Calls require approval.

A command gets only PATH and LANG of the worker's environment, no input, and a process group of its
own (`processes`). It is not sandboxed: it runs as the worker's user, with the same access to files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal

from perdure import errors, validation
from perdure.activities.toolboxes import processes
from perdure.agents.tools import Toolbox, tool
from perdure.text import one_line

_SLACK = timedelta(seconds=5)
_ARGUMENTS = 256
_SHELL = "/bin/sh"


def shell(
    folder: Path | str,
    allow: Collection[str] | Literal["anything"],
    *,
    timeout: timedelta = timedelta(seconds=60),
    requires_approval: bool = True,
) -> Toolbox:
    """Return a toolbox named "shell" that runs commands in `folder`.

    Args:
        folder: The working directory.
        allow: The programs, by name or absolute path. The tool is then `run_program`, which runs
            one of them with arguments, without a shell. With "anything" the tool is `run_command`,
            which passes a line to /bin/sh.
        timeout: After this time a command is stopped; its output so far is returned.
        requires_approval: Whether each call requires approval.

    Raises:
        ConfigurationError: `folder` is not a folder, or a program is not on the PATH.
    """
    root = Path(folder)
    if not root.is_dir():
        raise errors.ConfigurationError(f"{root} is not a folder")
    validation.check("shell", {"timeout": timeout}, {"timeout": validation.Time})
    made = tool(timeout=timeout + _SLACK, requires_approval=requires_approval)
    commands = Commands(root.resolve(), timeout)
    if allow == "anything":
        return Toolbox("shell", [made(commands.run_command)])
    if isinstance(allow, str) or not allow:
        raise errors.ConfigurationError(
            'shell: allow is a list of programs, such as ["git", "wc"], or "anything"'
        )
    programs = Programs(commands, {name: _found(name) for name in allow})
    run_program = tool(
        timeout=timeout + _SLACK,
        requires_approval=requires_approval,
        description=(
            "Run a program in the folder, without a shell, and tell what it wrote. There are:"
            f" {', '.join(sorted(allow))}."
        ),
    )
    return Toolbox("shell", [run_program(programs.run_program)])


class Commands:
    """Runs commands in a folder."""

    def __init__(self, folder: Path, timeout: timedelta) -> None:
        self._folder = folder
        self._timeout_s = timeout.total_seconds()

    async def run_command(self, command: str) -> str:
        """Run a command of /bin/sh in the folder and tell what it wrote.

        There is no input, and nothing goes on in the background afterwards.

        Args:
            command: A line for the shell.
        """
        return await self.run([_SHELL, "-c", command])

    async def run(self, arguments: list[str]) -> str:
        """Run a command; return its output and how it ended.

        Raises:
            ValueError: It cannot be started.
        """
        if any("\0" in argument for argument in arguments):
            raise ValueError("a command cannot hold a NUL character")
        output = processes.Output()
        try:
            code = await processes.run(
                arguments, self._folder, _environment(), self._timeout_s, output
            )
        except OSError as error:
            raise ValueError(f"the command cannot be started: {error.strerror}") from None
        return f"{output.text()}\n[{self._ending(code)}]".lstrip("\n")

    def _ending(self, code: int | None) -> str:
        if code is None:
            return f"stopped after {self._timeout_s:g} s, before it had ended"
        return f"exit code {code}" if code >= 0 else f"ended by signal {-code}"


class Programs:
    """Runs listed programs by their paths."""

    def __init__(self, commands: Commands, paths: Mapping[str, str]) -> None:
        self._commands = commands
        self._paths = paths

    async def run_program(self, program: str, arguments: list[str] = []) -> str:  # noqa: B006 - it is only read, and pydantic copies it
        """Run a program in the folder.

        Args:
            program: Its name.
            arguments: What it is given, one by one, as they are.
        """
        if program not in self._paths:
            raise ValueError(
                f"{one_line(program, 60)!r} is not allowed here; there are"
                f" {', '.join(sorted(self._paths))}"
            )
        if len(arguments) > _ARGUMENTS:
            raise ValueError(
                f"a program takes at most {_ARGUMENTS} arguments here, not {len(arguments)}"
            )
        return await self._commands.run([self._paths[program], *arguments])


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise errors.ConfigurationError(
            f"shell: there is no program {program!r} on the PATH of this worker"
        )
    return os.path.abspath(path)  # noqa: PTH100 - keeps links, as a program may depend on its name


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
