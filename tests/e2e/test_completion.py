"""`perdure completion` in real shells on a real terminal: Tab completes commands, options, choices
and folders.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.__main__ import commands
from perdure.clients.cli.completion import SHELLS, script

from ..support.e2e.terminal import Terminal, terminal

SETUPS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
READS = {
    "bash": "source ./script",
    "zsh": (
        "autoload -Uz compinit; compinit -u -D; eval \"$(cat script)\"; zstyle ':completion:*'"
        " list-prompt ''"
    ),
}


PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
"""With `perdure`, which a Tab runs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts, and a folder to complete."""
    made = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (made / shell).mkdir()
        (made / shell / "script").write_text(script(commands(), shell), encoding="utf-8")
        (made / shell / "handbook").mkdir()
    return made


@pytest.fixture(params=SETUPS)
def shell(request: pytest.FixtureRequest, folder: Path) -> Iterator[Terminal]:
    """A shell that has loaded its script."""
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    environment = {"PATH": PATH, "HOME": str(folder / name), "LANG": "C.UTF-8", "PS1": "> "}
    with terminal(SETUPS[name], folder / name, environment, columns=120) as made:
        made.type(f"PS1='> '; {READS[name]}; echo re\"\"ady\n")
        # and its next prompt, because text that is typed earlier is drawn twice
        made.wait_for(r"(?m)^ready\s*\n>")
        yield made


@pytest.mark.table(2)
@pytest.mark.accepts("P6")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("perdure sh", "> perdure show $"),
        ("perdure run --if-ex", "> perdure run --if-exists $"),
        ("perdure run a b --if-exists re", "> perdure run a b --if-exists restart $"),
        ("perdure list --state pau", "> perdure list --state paused $"),
        ("perdure ask why --folder hand", "> perdure ask why --folder handbook/? ?$"),
    ],
    ids=["command", "option", "choice", "choice of a filter", "folder"],
)
def test_tab_completes(shell: Terminal, typed: str, completed: str) -> None:
    """In bash and in zsh."""
    shell.type(f"{typed}\t")

    shell.wait_for("(?m)^" + completed.replace(" $", "").removesuffix("/? ?$"))


@pytest.mark.accepts("P6")
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("perdure sh", ["show"]),
        ("perdure run --if-ex", ["--if-exists"]),
        ("perdure run a b --if-exists ", ["attach", "error", "restart"]),
        ("perdure list --state pau", ["paused"]),
        ("perdure ask why --folder hand", ["handbook/"]),
    ],
)
def test_fish_completes(folder: Path, typed: str, completed: list[str]) -> None:
    """By its own command that prints completions."""
    done = subprocess.run(
        ["fish", "--no-config", "-c", "source script; complete -C $argv[1]", typed],
        cwd=folder / "fish",
        env={"PATH": PATH, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert sorted(line.partition("\t")[0] for line in done.stdout.splitlines()) == completed


def test_command_prints_the_script(folder: Path) -> None:
    """The script that a shell loads in these tests, and nothing else."""
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "completion", "bash"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout == script(commands(), "bash")


@pytest.mark.accepts("P6")
def test_option_of_commands_among_themselves_is_not_offered(folder: Path) -> None:
    """`--attached` is for a command that starts another."""
    done = subprocess.run(
        ["perdure"],
        env={
            "PATH": PATH,
            "_PERDURE_COMPLETE": "zsh_complete",
            "COMP_WORDS": "perdure dev --",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "--state" in done.stdout
    assert "--attached" not in done.stdout
