"""`perdure setup` and `perdure list` as users run them: real processes, and a server that has not
been prepared.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

from perdure import Agent
from perdure.clients import AgentClient
from perdure.temporal.connect import connect
from perdure.temporal.search_attributes import TYPES
from perdure.testing import ScriptedModel, local_runtime
from perdure.worker.dev.server import DevServer

from ..support.ports import free_port

pytestmark = pytest.mark.slow

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


@pytest.fixture
async def bare() -> AsyncIterator[str]:
    """The address of a server whose namespace lacks Perdure's search attributes."""
    async with DevServer(folder=None, port=0, ui=False, search_attributes={}) as server:
        yield server.address.address


@pytest.fixture
def perdure(tmp_path: Path) -> Command:
    """Runs the command line in an empty folder, with the environment of a fresh machine."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PERDURE_", "TEMPORAL_", "NO_COLOR"))
    }

    def run(*arguments: str) -> Done:
        command = [sys.executable, "-m", "perdure", *arguments]
        environment = {**kept, "HOME": str(tmp_path)}
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def attributes(done: Done) -> dict[str, str]:
    """The reported state of each attribute."""
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("attribute")]
    return {f"{name} {kind}": " ".join(words) for _, name, kind, *words in lines}


async def test_setup_prepares_a_namespace_once_and_then_finds_it_ready(
    bare: str, perdure: Command
) -> None:
    """Every line says what was found or done; the second run finds nothing to do."""
    first, second = perdure("setup", "--address", bare), perdure("setup", "--address", bare)
    names = [f"{name} ({kind})" for name, kind in TYPES.items()]

    assert (first.returncode, second.returncode) == (0, 0), (first.stderr, second.stderr)
    assert first.stdout.splitlines()[0].startswith(f"server     {bare} answers, Temporal 1.")
    assert (
        first.stdout.splitlines()[1]
        == "namespace  default is there; it keeps ended turns for 1 day"
    )
    assert first.stdout.splitlines()[-1].startswith("ready")
    assert attributes(first) == dict.fromkeys(names, "was registered")
    assert attributes(second) == dict.fromkeys(names, "is there")


async def test_namespace_is_created_only_when_asked_and_then_left_as_it_is(
    bare: str, perdure: Command
) -> None:
    """A misspelt name creates no namespace; the retention of an existing one is not changed."""
    there = ("setup", "--address", bare, "--namespace", "agents")
    missing = perdure(*there)
    created = perdure(*there, "--create-namespace", "--retention", "30")
    again = perdure(*there, "--create-namespace", "--retention", "3")
    client = await connect(bare, namespace="agents")
    described = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace="agents")
    )

    assert (missing.returncode, created.returncode, again.returncode) == (2, 0, 0), (
        missing.stderr,
        created.stderr,
        again.stderr,
    )
    assert (
        missing.stderr
        == "perdure: there is no namespace 'agents'; `perdure setup --namespace agents"
        " --create-namespace` creates it\n"
    )
    assert "agents was created; it keeps ended turns for 30 days" in created.stdout
    assert "agents is there; it keeps ended turns for 30 days" in again.stdout
    assert described.config.workflow_execution_retention_ttl.ToTimedelta().days == 30


async def test_attribute_of_another_type_is_named_and_nothing_is_changed(perdure: Command) -> None:
    """Another application uses the name: the command says which name and what can be done, with
    exit code 2.
    """
    async with DevServer(
        folder=None, port=0, ui=False, search_attributes={"PerdureSteps": "Keyword"}
    ) as server:
        refused = perdure("setup", "--address", server.address.address)
        again = perdure("setup", "--address", server.address.address)

    assert (refused.returncode, attributes(refused)) == (2, {})
    assert "PerdureSteps is of type Keyword instead of Int" in refused.stderr
    assert "PerdureAgent is missing" in again.stderr


def test_setup_waits_for_a_server_and_says_that_none_answers(perdure: Command) -> None:
    """It waits as long as its option says, and no longer."""
    port = free_port()
    began = time.monotonic()
    done = perdure("setup", "--address", f"127.0.0.1:{port}", "--wait", "3")

    assert done.returncode == 20
    assert f"no Temporal server answers at 127.0.0.1:{port}" in done.stderr
    assert time.monotonic() - began >= 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("setup", "--retention", "0"),
        ("setup", "--retention", "soon"),
        ("list", "--label", "region"),
    ],
    ids=" ".join,
)
def test_arguments_that_cannot_be_are_refused(perdure: Command, arguments: tuple[str, ...]) -> None:
    """On one line and with exit code 2, before any request."""
    command, done = f"perdure {arguments[0]}", perdure(*arguments)

    assert done.returncode == 2
    assert re.fullmatch(
        rf"{command}: Invalid value for '{arguments[1]}': .* is not .*\. See {command} --help\.\n",
        done.stderr,
    )


async def test_list_needs_setup_to_filter_and_shows_turns_after_it(
    bare: str, perdure: Command
) -> None:
    """An empty namespace, one without the attributes, and the table and the JSON of one with
    them.
    """
    adder = Agent(name="adder", model="scripted:adder")
    empty, lacking = (
        perdure("list", "--address", bare),
        perdure("list", "--address", bare, "--agent", "adder"),
    )
    prepared = perdure("setup", "--address", bare)
    async with local_runtime(
        adder, model=ScriptedModel("five", "six", "seven"), address=bare
    ) as client:
        for task in ("2 + 3?", "2 + 4?", "2 + 5?"):
            await client.run(
                adder, task, id=f"sum of {task[:5]}", labels={"customer": "Jo & Co", "task": task}
            )
        await listed(client, 3)
    table = perdure("list", "--address", bare, "--agent", "adder", "--limit", "2")
    labelled = perdure(
        "list",
        "--address",
        bare,
        "--label",
        "customer=Jo & Co",
        "--label",
        "task=2 + 3?",
        "--state",
        "ended",
        "--json",
    )
    none = perdure("list", "--address", bare, "--outcome", "failed")
    wrong = perdure("list", "--address", bare, "--outcome", "perfect")

    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "there is no turn yet\n")
    assert (lacking.returncode, prepared.returncode) == (2, 0)
    assert "run `perdure setup --namespace default` once" in lacking.stderr
    assert table.stdout.splitlines()[0].split() == [
        "ID",
        "AGENT",
        "STATE",
        "STEPS",
        "SPENT",
        "STARTED",
        "TASK",
    ]
    assert [line.partition("  ")[0] for line in table.stdout.splitlines()[1:]] == [
        '"sum of 2 + 5"',
        '"sum of 2 + 4"',
    ]
    assert table.stderr == "there are more than these 2; --limit shows them\n"
    assert [
        (found["id"], found["outcome"], found["steps"])
        for found in map(json.loads, labelled.stdout.splitlines())
    ] == [("sum of 2 + 3", "completed", 1)]
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "there is no such turn\n")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'perfect' is not one of 'completed', 'failed', 'truncated', " in wrong.stderr


async def listed(client: AgentClient, count: int) -> None:
    """Wait until this number of ended turns is listed."""
    deadline = time.monotonic() + 60
    while len([entry async for entry in client.turns(state="ended")]) < count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
