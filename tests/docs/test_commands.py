"""Commands on the pages are valid as shown, including those that no test runs."""

from __future__ import annotations

import itertools
import re
import tomllib
from importlib import metadata

import pytest

from perdure.__main__ import parsed

from ..support.docs.commands import Command, commands
from ..support.docs.not_run import NOT_RUN, is_run
from ..support.docs.pages import BLOCKS, PAGES, ROOT

COMMANDS = [
    command for block in BLOCKS if block.language == "console" for command in commands(block)
]
MAKE = re.compile(r"`make (?:-C ([\w/]+) )?([\w-]+)")
MANIFESTS = "".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
)


def is_target(folder: str, name: str) -> bool:
    """Whether the Makefile of a folder has a target."""
    makefile = (ROOT / folder / "Makefile").read_text(encoding="utf-8")
    return re.search(rf"^{name}:", makefile, re.MULTILINE) is not None


def named(*programs: str) -> list[Command]:
    """The commands that start one of these programs."""
    return [command for command in COMMANDS if command.words[0] in programs]


@pytest.mark.parametrize("command", named("perdure"), ids=lambda command: command.text)
def test_command_of_perdure_is_one(command: Command) -> None:
    """Its options exist and accept these values."""
    arguments = itertools.takewhile(lambda word: word not in (">", ">>"), command.words[1:])
    begun = parsed(list(arguments), {})

    if begun is None:
        assert command.words[1] == "completion"
    else:
        begun.close()


def test_targets_of_make_exist() -> None:
    """In blocks and in prose; archived decisions name the targets of their time."""
    pages = [page.path for page in PAGES if "archive" not in page.path.parts]
    words = "".join(page.read_text(encoding="utf-8") for page in pages)
    words += "".join(f"`{command.text}`" for command in named("make"))
    targets = set(MAKE.findall(words))

    assert {("", "test"), ("benchmarks", "step")} <= targets
    assert [target for target in sorted(targets) if not is_target(*target)] == []


def test_extras_that_are_installed_exist() -> None:
    """In blocks and in prose."""
    words = "".join(page.path.read_text(encoding="utf-8") for page in PAGES)
    found = re.findall(r"""['"]\$?([\w-]+)\[([\w,-]+)\]['"]""", words)
    asked = {(name.lower(), extra) for name, extras in found for extra in extras.split(",")}
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    unknown = {
        (name, extra)
        for name, extra in asked
        if extra
        not in (
            ours if name == "perdure" else metadata.metadata(name).get_all("Provides-Extra", [])
        )
    }

    assert ("perdure", "mcp") in asked
    assert unknown == set()


def test_files_and_names_that_commands_name_exist() -> None:
    """Relative to where Docker and Kubernetes would look; files that a command writes do not exist
    yet.
    """
    text = "\n".join(
        re.sub(r"> \S+", "", command.text) for command in named("docker", "kubectl", "echo")
    )

    assert [
        path for path in re.findall(r"\bdeploy/[\w./-]+", text) if not (ROOT / path).exists()
    ] == []
    assert [name for name in re.findall(r"generic (\S+)", text) if name not in MANIFESTS] == []


def test_every_reason_not_to_run_is_about_a_command_that_is_shown() -> None:
    """A command that is no longer on a page is not in the table either."""
    assert [
        name
        for name in NOT_RUN
        if not any(command.line.startswith(f"{name} ") for command in COMMANDS)
    ] == []


@pytest.mark.accepts("P7")
def test_most_commands_are_run() -> None:
    """The table holds exceptions only: every program that a page starts is run, or has a reason
    there.
    """
    programs = {command.words[0] for command in COMMANDS if is_run(command)}

    assert programs <= {
        "curl",
        "perdure",
        "temporal",
        "export",
        "openssl",
        "printf",
        "pytest",
        "python",
        "uvicorn",
    }
