"""The command line as users meet it: wrong and missing arguments, and servers that do not
answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

import pytest

from perdure.__main__ import COMMANDS
from perdure.clients.cli import exits
from perdure.clients.cli.group import GROUPS

from ..support.e2e.command_line import CommandLine, InProcess

GROUPED = (("session",), ("schedule",), ("batch",))


def test_no_command_prints_the_help_and_is_a_mistake(perdure: CommandLine) -> None:
    """Exit code 2; the help lists every command in its group, and all exit codes."""
    done = perdure()
    names = re.findall(r"^  ([a-z][a-z-]+)  ", done.stdout, re.MULTILINE)

    assert done.returncode == 2
    assert names == [name for names in GROUPS.values() for name in names]
    assert re.findall(r"^  (\d+) ", done.stdout, re.MULTILINE) == [
        str(code) for code in exits.MEANINGS
    ]


def test_help_names_every_command(here: InProcess) -> None:
    """Once, in a group; the completion of a shell has the same list."""
    names = re.findall(r"^  ([a-z][a-z-]+)  ", here("--help").stdout, re.MULTILINE)

    assert sorted(names) == sorted(command.name or "" for command in COMMANDS)


def test_help_of_every_command_fits_on_a_terminal_of_80_columns(here: InProcess) -> None:
    """The examples fit, too; and each help describes its command."""
    names = re.findall(r"^  ([a-z][a-z-]+)  ", here("--help", COLUMNS="80").stdout, re.MULTILINE)
    pages = {name: here(name, "--help", COLUMNS="80") for name in names}

    assert {name: done.returncode for name, done in pages.items()} == dict.fromkeys(names, 0)
    assert [
        line for done in pages.values() for line in done.stdout.splitlines() if len(line) > 80
    ] == []
    assert [
        name
        for name, done in pages.items()
        if f"perdure {name}" not in done.stdout.partition("\n  Example")[2]
    ] == ["demo", "mcp"]


@pytest.mark.parametrize("group", [(), *GROUPED], ids=lambda group: " ".join(group) or "all")
def test_list_of_commands_has_the_first_sentence_of_each_help(
    here: InProcess, group: Sequence[str]
) -> None:
    """Whole, and in one line of a terminal of 80 columns."""
    page = here(*group, "--help", COLUMNS="80").stdout
    listed = dict(re.findall(r"^  ([a-z][a-z-]+)  +(\S.*)$", page, re.MULTILINE))
    texts = {
        name: " ".join(here(*group, name, "--help").stdout.split("\n\n")[1].split())
        for name in listed
    }

    assert len(listed) >= 5
    assert [name for name, entry in listed.items() if not texts[name].startswith(f"{entry}.")] == []


@pytest.mark.parametrize("group", GROUPED, ids=lambda group: group[0])
def test_group_without_a_command_prints_its_help(here: InProcess, group: Sequence[str]) -> None:
    """Exit code 2, as without any command."""
    done = here(*group)

    assert (done.returncode, done.stdout, done.stderr) == (2, here(*group, "--help").stdout, "")


@pytest.mark.accepts("P27")
def test_version_is_printed(here: InProcess) -> None:
    """The version of the package, and nothing else."""
    done = here("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"perdure {version('perdure')}\n", "")


@pytest.mark.slow
def test_unknown_command_is_a_mistake(perdure: CommandLine) -> None:
    """Exit code 2, and one line with the closest match."""
    done = perdure("rum")

    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "perdure: No such command 'rum'. (Did you mean one of: 'resume', 'run'?) See perdure"
        " --help.\n"
    )


@pytest.mark.accepts("P27")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "talker"], "perdure run: Missing argument 'TASK'. See perdure run --help."),
        (
            ["list", "--limit", "few"],
            (
                "perdure list: Invalid value for '--limit': 'few' is not a valid whole number. See"
                " perdure list --help."
            ),
        ),
        (
            ["schedule", "list", "--limit", "0"],
            (
                "perdure schedule list: Invalid value for '--limit': 0 is not in the range x>=1."
                " See perdure schedule list --help."
            ),
        ),
        (
            ["list", "--label", "region"],
            (
                "perdure list: Invalid value for '--label': 'region' is not NAME=VALUE. See perdure"
                " list --help."
            ),
        ),
        (
            ["add-budget", "t", "--time", "soon"],
            (
                "perdure add-budget: Invalid value for '--time': 'soon' is not a time; write it"
                " like 90s, 10m or 1h30m. See perdure add-budget --help."
            ),
        ),
        (
            ["add-budget", "t", "--time", f"{'9' * 20}d"],
            (
                f"perdure add-budget: Invalid value for '--time': '{'9' * 20}d' is too long. See"
                " perdure add-budget --help."
            ),
        ),
        (
            ["dev", "--port", "abc"],
            (
                "perdure dev: Invalid value for '--port': 'abc' is not a valid integer. See perdure"
                " dev --help."
            ),
        ),
        (
            ["setup", "--wait", "long"],
            (
                "perdure setup: Invalid value for '--wait': 'long' is not a valid float. See"
                " perdure setup --help."
            ),
        ),
        (
            ["show", "ticket", "5001"],
            "perdure show: Got unexpected extra argument (5001). See perdure show --help.",
        ),
        (
            ["run", "talker", "hello", "--model", "gpt"],
            (
                "perdure run: No such option '--model'. (Did you mean one of: '--delay',"
                " '--model-calls', '--model-retry'?) See perdure run --help."
            ),
        ),
        (
            ["--verb", "list"],
            (
                "perdure: No such option '--verb'. (Did you mean one of: '--verbose', '--version'?)"
                " See perdure --help."
            ),
        ),
        (
            ["show", "ticket", "--ful"],
            "perdure show: No such option '--ful'. Did you mean '--full'? See perdure show --help.",
        ),
        (
            ["cancel", "a\x1b[2J\n", "b\x1b[2J"],
            (
                "perdure cancel: Got unexpected extra argument (b\\u001b[2J). See perdure cancel"
                " --help."
            ),
        ),
        (
            ["add-budget", "t"],
            (
                "perdure: name what to add: --usd, --time, --tokens, --model-calls, --tool-calls"
                " or --iterations"
            ),
        ),
        (
            ["add-budget", "t", "--iterations", "0"],
            (
                "perdure add-budget: Invalid value for '--iterations': 0 is not in the range x>=1."
                " See perdure add-budget --help."
            ),
        ),
        (
            ["run", "talker", "hello", "--max-iterations", "few"],
            (
                "perdure run: Invalid value for '--max-iterations': 'few' is not a valid whole"
                " number. See perdure run --help."
            ),
        ),
        (
            ["run", "talker", "hello", "--usd", "much"],
            "perdure: Budget: usd: 'much' is not a number, such as '0.50'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistake_is_said_in_one_line(here: InProcess, arguments: list[str], said: str) -> None:
    """It says what to do, and no server is contacted."""
    done = here(*arguments)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{said}\n")


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
        ("", "not module:name"),
    ],
)
def test_what_is_no_agent_is_refused_in_one_kind_line(
    here: InProcess, target: str, said: str
) -> None:
    """Exit code 2 and a sentence that says what was found, without a traceback."""
    done = here("worker", target)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"perdure: .*{said}.*\n", done.stderr), done.stderr


@pytest.mark.parametrize(
    "command",
    [["worker", "agents:talker"], ["run", "talker", "hello"], ["show", "any"], ["cancel", "any"]],
    ids=lambda c: c[0],
)
def test_server_that_does_not_answer_is_said_with_what_to_do(
    here: InProcess, closed_port: str, command: list[str]
) -> None:
    """Every command that needs a server has the exit code for it."""
    done = here(*command, "--address", closed_port)

    assert done.returncode == 20
    assert f"no Temporal server answers at {closed_port}" in done.stderr
    assert "perdure dev" in done.stderr
    assert "Traceback" not in done.stderr


UNKNOWN = [
    *(["show"], ["cancel"], ["resume"], ["steer", "Hurry."], ["add-budget", "--usd", "1"]),
    *(["emit", "built"], ["session", "forget", "reminder"]),
    *(["fork", "--yes"], ["session", "show"], ["session", "add-budget", "--usd", "1"]),
    *(["session", "unqueue", "message"], ["session", "interrupt"], ["session", "resume"]),
    *(["session", "fork", "--id", "another"], ["session", "close"], ["batch", "show"]),
    *(["batch", "results"], ["batch", "retry"], ["batch", "cancel"], ["schedule", "show"]),
    *(["schedule", "run"], ["schedule", "pause"], ["schedule", "resume"], ["schedule", "delete"]),
    ["schedule", "change", "--task", "Other."],
]
"""Commands about one turn, session, batch or schedule, without its id."""


@pytest.mark.accepts("P57")
@pytest.mark.parametrize("command", UNKNOWN, ids=" ".join)
def test_id_that_is_not_there_is_said_in_one_line(
    here: InProcess, at_work: list[str], new_id: str, command: list[str]
) -> None:
    """Exit code 2, with the id and the kind of the resource."""
    names = 1 + (command[0] in {"session", "schedule", "batch"})
    noun = command[0] if names == 2 else "turn"

    done = here(*command[:names], new_id, *command[names:], *at_work)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{noun} '{new_id}'" in done.stderr
    assert done.stderr.count("\n") == 1
