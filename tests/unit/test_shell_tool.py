"""The tool that runs commands: their environment and limits, and their end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import errors
from perdure.agents.tool_context import encode
from perdure.agents.tools import Toolbox, as_tools
from perdure.toolboxes import shell

pytestmark = pytest.mark.timeout(60)

Start = Callable[[str], Any]


async def call(box: Toolbox, **arguments: object) -> str:
    """Call the tool as a turn does, with arguments as JSON."""
    (item,) = as_tools(box.tools)
    text = await item.function(**item.arguments.parse(encode(arguments)))
    assert isinstance(text, str)
    return text


async def refusal(box: Toolbox, **arguments: object) -> str:
    with pytest.raises(ValueError) as caught:
        await call(box, **arguments)
    return str(caught.value)


def anything(folder: Path, **options: Any) -> Toolbox:
    return shell(folder, "anything", **options)


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(state) and not state.startswith("Z")


def written(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def pid_in(file: Path) -> int:
    """The process id that a command wrote."""
    async with asyncio.timeout(60):
        while not (text := written(file)).endswith("\n"):  # noqa: ASYNC110 - a process writes it
            await asyncio.sleep(0.01)
    return int(text)


async def ended(pid: int) -> bool:
    """Whether a process ends within two seconds, because a killed one takes a moment."""
    for _ in range(100):
        if not is_running(pid):
            return True
        await asyncio.sleep(0.02)
    return False


def test_each_call_waits_for_approval_unless_somebody_decides_otherwise(tmp_path: Path) -> None:
    """A command may change anything, so it is neither read-only nor idempotent."""
    boxes = [
        shell(tmp_path, ["ls"]),
        anything(tmp_path),
        shell(tmp_path, ["ls"], requires_approval=False),
    ]
    tools = [as_tools(box.tools)[0] for box in boxes]

    assert [(item.name, item.requires_approval, item.idempotent) for item in tools] == [
        ("run_program", True, False),
        ("run_command", True, False),
        ("run_program", False, False),
    ]
    assert "There are: ls." in tools[0].description


@pytest.mark.parametrize(
    ("allow", "options", "reason"),
    [
        ([], {}, "a list of programs"),
        ("ls", {}, "a list of programs"),
        (["no-such-program-here"], {}, "no program 'no-such-program-here'"),
        (["ls"], {"timeout": timedelta(0)}, "longer than zero"),
        (["ls"], {"folder": "missing"}, "is not a folder"),
    ],
)
def test_setting_that_cannot_work_is_said_at_once(
    tmp_path: Path, allow: Any, options: dict[str, Any], reason: str
) -> None:
    """Before an agent has the tool."""
    folder = tmp_path / options.get("folder", ".")
    with pytest.raises(errors.ConfigurationError, match=reason):
        shell(folder, allow, **{name: value for name, value in options.items() if name != "folder"})


async def test_program_gets_its_arguments_as_they_are(tmp_path: Path) -> None:
    """They do not pass through a shell: nothing is expanded, split or run."""
    hostile = [
        "a b",
        "$(touch hacked)",
        "`touch hacked`",
        "; touch hacked",
        "*",
        "$HOME",
        "'\"",
        "",
    ]
    text = await call(shell(tmp_path, ["printf"]), program="printf", arguments=["<%s>", *hostile])

    assert text == "".join(f"<{argument}>" for argument in hostile) + "\n[exit code 0]"
    assert not (tmp_path / "hacked").exists()


async def test_program_that_is_not_named_is_refused(tmp_path: Path) -> None:
    """Neither under another path nor as a shell."""
    box = shell(tmp_path, ["ls", "wc"])

    assert (
        await refusal(box, program="sh", arguments=["-c", "true"])
        == "'sh' is not allowed here; there are ls, wc"
    )
    assert "is not allowed here" in await refusal(box, program="/bin/ls")
    assert "at most 256" in await refusal(box, program="ls", arguments=["x"] * 257)
    assert "NUL" in await refusal(box, program="ls", arguments=["a\0b"])
    assert "Argument list too long" in await refusal(box, program="ls", arguments=["x" * 500_000])


async def test_command_is_a_line_for_the_shell_in_the_folder(tmp_path: Path) -> None:
    """Output and errors in their order, and the exit status."""
    text = await call(anything(tmp_path), command="pwd -P; echo wrong >&2; echo 1 > made; exit 3")

    assert text.endswith(f"{tmp_path.name}\nwrong\n\n[exit code 3]")
    assert (tmp_path / "made").read_text() == "1\n"
    assert await call(anything(tmp_path), command="kill -9 $$") == "[ended by signal 9]"


async def test_command_gets_nothing_of_the_environment_but_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not get the worker's keys."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    text = await call(shell(tmp_path, ["env"]), program="env")

    assert sorted(text.split("\n")[:-2]) == ["LANG=C.UTF-8", f"PATH={os.environ['PATH']}"]


async def test_command_has_no_input_and_no_open_file_of_the_worker(tmp_path: Path) -> None:
    """A read from standard input returns the end of file at once, even if the worker's input never
    ends.
    """
    ours, (endless, writer) = os.dup(0), os.pipe()
    os.dup2(endless, 0)
    try:
        os.set_inheritable(writer, True)
        box = anything(tmp_path, timeout=timedelta(seconds=10))
        text = await call(box, command=f"cat; test -e /dev/fd/{writer} && echo open; true")
    finally:
        os.dup2(ours, 0)
        for fd in (ours, endless, writer):
            os.close(fd)

    assert text == "[exit code 0]"


async def test_long_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    """And a command never blocks on its output."""
    text = await call(anything(tmp_path), command="echo first; yes | head -c 20000000; echo last")

    assert text.startswith("first\ny\n")
    assert text.endswith("last\n\n[exit code 0]")
    assert "bytes are left out here]" in text
    assert len(text.encode()) < 64 * 1024


async def test_output_that_is_no_text_is_told_as_well_as_it_can_be(tmp_path: Path) -> None:
    """Invalid UTF-8 becomes replacement characters."""
    assert await call(anything(tmp_path), command=r"printf 'a\377b'") == "a�b\n[exit code 0]"


async def test_command_that_does_not_end_is_stopped_and_what_it_wrote_is_told(
    tmp_path: Path,
) -> None:
    """The result says so, and its descendants have ended, too."""
    box = anything(tmp_path, timeout=timedelta(seconds=2))
    began = time.monotonic()
    text = await call(
        box, command="echo begun; (sh -c 'echo $$ > pid; sleep 60; true'; true) & wait"
    )

    assert text == "begun\n\n[stopped after 2 s, before it had ended]"
    assert time.monotonic() - began < 60
    assert await ended(await pid_in(tmp_path / "pid"))


async def test_command_may_clean_up_when_it_is_stopped(tmp_path: Path) -> None:
    """SIGTERM comes first."""
    command = "trap 'echo cleaned; exit' TERM; echo begun; while :; do sleep 0.05; done"

    assert "cleaned" in await call(
        anything(tmp_path, timeout=timedelta(seconds=2)), command=command
    )


@pytest.mark.slow
async def test_command_that_will_not_end_is_killed(tmp_path: Path) -> None:
    """SIGKILL comes half a second later, for the group."""
    command = (
        "trap '' TERM; (trap '' TERM; sh -c 'echo $$ > pid; while :; do sleep 1; done') & while :;"
        " do sleep 1; done"
    )
    await call(anything(tmp_path, timeout=timedelta(seconds=2)), command=command)

    assert await ended(await pid_in(tmp_path / "pid"))


async def test_cancel_ends_all_of_the_group(tmp_path: Path) -> None:
    """For a turn that is cancelled: the command may clean up, and when the call is over, none of
    its processes runs.
    """
    command = (
        "trap 'echo > cleaned; exit' TERM; (sh -c 'echo $$ > pid; sleep 60; true'; true) & wait"
    )
    task = asyncio.create_task(call(anything(tmp_path), command=command))
    pid = await pid_in(tmp_path / "pid")
    assert is_running(pid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await ended(pid)
    assert written(tmp_path / "cleaned") == "\n"


async def test_nothing_goes_on_in_the_background(tmp_path: Path) -> None:
    """The command ends at once even if a child keeps its output open; the child is killed."""
    began = time.monotonic()
    text = await call(
        anything(tmp_path),
        command=(
            "sh -c 'echo $$ > pid; sleep 60; true' & while [ ! -s pid ]; do sleep 0.01; done; echo"
            " done"
        ),
    )

    assert text == "done\n\n[exit code 0]"
    assert time.monotonic() - began < 60
    assert await ended(await pid_in(tmp_path / "pid"))


async def test_writer_that_left_the_group_is_not_waited_for(tmp_path: Path) -> None:
    """A program in its own session does not get the signals, and does not delay the turn."""
    (tmp_path / "leaves.py").write_text(
        "import os\nos.setsid()\nwith open('pid', 'w') as file:\n    print(os.getpid(),"
        " file=file)\nos.execvp('yes', ['yes'])\n"
    )
    text = await call(
        anything(tmp_path),
        command=f"{sys.executable} -I leaves.py & while [ ! -s pid ]; do sleep 0.01; done",
    )
    os.kill(await pid_in(tmp_path / "pid"), signal.SIGKILL)

    assert text.endswith("[exit code 0]")


PYTHON = sys.executable


@pytest.mark.accepts("T26")
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of data is Linux's")
async def test_command_cannot_take_more_memory_than_its_limit(tmp_path: Path) -> None:
    """The system refuses 3 GB; the command ends, the worker does not."""
    said = await call(
        shell(tmp_path, [PYTHON]),
        program=PYTHON,
        arguments=["-c", "x = bytearray(3_000_000_000); print('had it')"],
    )

    assert "MemoryError" in said
    assert said.endswith("[exit code 1]")


@pytest.mark.accepts("T26")
async def test_command_cannot_write_a_larger_file_than_its_limit(tmp_path: Path) -> None:
    """The file is sparse, so this test writes next to nothing."""
    code = "f = open('big', 'wb'); f.seek(2 * 1024**3); f.write(b'x'); f.flush()"
    said = await call(shell(tmp_path, [PYTHON]), program=PYTHON, arguments=["-c", code])

    assert "File too large" in said
    assert said.endswith("[exit code 1]")


@pytest.mark.accepts("T26")
async def test_limits_are_hard_ones(tmp_path: Path) -> None:
    """Child processes have them, too, and cannot raise them."""
    said = await call(
        anything(tmp_path, timeout=timedelta(seconds=10)),
        command="ulimit -H -c; ulimit -H -n; ulimit -H -f; sh -c 'ulimit -n 2000'",
    )
    cpu_s = int(
        (
            await call(anything(tmp_path, timeout=timedelta(seconds=10)), command="ulimit -H -t")
        ).split()[0]
    )

    core, files, blocks, *refused = said.splitlines()
    assert (core, files, int(blocks)) == ("0", "1024", 1024**3 // 512)
    assert "ulimit" in refused[0]
    assert cpu_s == 10 * (os.cpu_count() or 1) + 1


async def test_pipe_that_is_closed_ends_its_writer(tmp_path: Path) -> None:
    """SIGPIPE has its default action, as in an interactive shell."""
    assert await call(anything(tmp_path), command="yes | head -n 1") == "y\n\n[exit code 0]"


async def test_program_that_is_gone_is_told(tmp_path: Path) -> None:
    """It existed when the toolbox was built."""
    program = tmp_path / "here"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    box = shell(tmp_path, [str(program)])
    program.unlink()

    assert (
        await call(box, program=str(program))
        == "the command cannot be started: No such file or directory\n\n[exit code 1]"
    )
