"""Turns with a codec: what is readable on the server, and what a process without the codec or the
key sees.
"""

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from perdure import Agent, Budget, OutputGuardrail, errors, tool
from perdure.__main__ import parsed
from perdure.clients import AgentClient
from perdure.temporal.data_converter import VARIABLE, chosen
from perdure.temporal.histories.runs import describe
from perdure.testing import Runtime, ScriptedModel, call, calls, says
from perdure.values.states import State
from perdure.workflows import AgentTurn
from perdure.workflows.single_input import OneInput

from ...support import encrypting
from ...support.approving import pending
from ...support.listing import entry_of

SECRET = "canary-4711"
ALL = "tests.support.encrypting:converter"


@tool(requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    raise ValueError(f"{SECRET}: no such account as {to}")


def payer(**fields: Any) -> Agent:
    """An agent whose tool fails with a secret in its error."""
    return Agent(
        name="payer",
        model="scripted:payer",
        instructions=f"Instructions {SECRET}",
        tools=[pay],
        **fields,
    )


def asks(answer: str = f"answer {SECRET}") -> ScriptedModel:
    """A model that calls the tool once."""
    return ScriptedModel(calls(call("pay", to=SECRET)), says(answer))


async def stored(client: Client, turn_id: str) -> bytes:
    """All data of a turn in the server's own form."""
    request = GetWorkflowExecutionHistoryRequest(namespace=client.namespace)
    request.execution.workflow_id = turn_id
    history = await client.workflow_service.get_workflow_execution_history(request)
    return history.SerializeToString() + (await describe(client, turn_id)).SerializeToString()


@pytest.mark.accepts("P15", "P16")
async def test_nothing_of_a_turn_can_be_read_without_the_key(
    perdure_runtime: Runtime, perdure_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Task, instructions, arguments, a tool's error, a decision, a guardrail's reason, memo and
    summaries; clients with the key read all of it.
    """
    monkeypatch.setenv(VARIABLE, ALL)
    agent = payer(middleware=[OutputGuardrail(lambda report: f"refused {SECRET}")])
    async with perdure_runtime(agent, model=asks()) as client:
        turn = await client.start(
            "payer",
            f"Task {SECRET}",
            labels={"team": "north"},
            context={"notes": SECRET},
            budget=Budget(tool_calls=3),
        )
        [one] = await pending(turn)
        waiting = await stored(client.temporal, turn.id)
        await turn.add_budget(Budget(tool_calls=1), by=f"by {SECRET}")
        await turn.approve(one, reason=f"because {SECRET}", by=f"by {SECRET}")
        with pytest.raises(errors.GuardrailError, match=f"refused {SECRET}") as caught:
            await turn.result()
        ended = await stored(client.temporal, turn.id)
        entry = await entry_of(client, turn.id, in_state=State.ENDED, labels={"team": "north"})
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
    report = caught.value.report
    assert report is not None

    kept = (waiting, ended)
    assert [
        SECRET.encode() in held or base64.b64encode(SECRET.encode()) in held for held in kept
    ] == [False, False]
    assert all(
        words in ended
        for words in (b"team=north", b"payer", b"GUARDRAIL", b"Encoded failure", b"pay")
    )
    assert SECRET in report.steps[0].results[0].content
    assert entry.task == f"Task {SECRET}"
    assert entry.error is not None
    assert (entry.error.code, SECRET in str(entry.error)) == ("GUARDRAIL", False)
    replayer = Replayer(workflows=[AgentTurn], interceptors=[OneInput()], data_converter=chosen())
    await replayer.replay_workflow(WorkflowHistory(turn.id, history.events))
    assert perdure_server


Command = Callable[..., Awaitable[tuple[str, str]]]


@pytest.fixture
def command(perdure_server: str, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process, and return its standard output and standard error."""

    async def run(name: str, *words: str) -> tuple[str, str]:
        capsys.readouterr()
        begun = parsed([name, *words, "--address", perdure_server], {})
        assert begun is not None
        await begun
        return tuple(capsys.readouterr())  # type: ignore[return-value]

    return run


@pytest.mark.slow
@pytest.mark.accepts("P16", "P17")
async def test_turn_that_cannot_be_decoded_costs_a_list_one_line(
    perdure_runtime: Runtime,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An encrypted turn and a plain one wait: without the codec the plain one is listed and can be
    decided; with it, both.
    """
    caplog.set_level(logging.WARNING, "perdure")
    missing = (
        "the turn cannot be read: it is encoded as binary/encrypted by a codec that this process"
        " does not have (set PERDURE_DATA_CONVERTER)"
    )
    async with (
        perdure_runtime(payer(), model=asks(), data_converter=encrypting.converter) as locked,
        perdure_runtime(payer(), model=asks()) as open_,
    ):
        hidden, plain = [
            await client.start("payer", "Task", labels={"case": "both"})
            for client in (locked, open_)
        ]
        for turn in (hidden, plain):
            await pending(turn)
        both = ["--label", "case=both"]
        async with asyncio.timeout(60):
            while (  # noqa: ASYNC110 - a list lags behind
                len((await command("list", "--state", "waiting", "--json", *both))[0].splitlines())
                < 2
            ):
                await asyncio.sleep(0.1)
        entries = [
            json.loads(line)
            for line in (await command("list", "--state", "waiting", "--json", *both))[
                0
            ].splitlines()
        ]
        table, _ = await command("list", "--state", "waiting", *both)
        listed, hint = await command("approvals", *both)
        as_json = [
            json.loads(line)
            for line in (await command("approvals", *both, "--json"))[0].splitlines()
        ]
        found = [entry.id async for entry, _ in open_.pending_approvals(labels={"case": "both"})]
        with pytest.raises(errors.PayloadDecodeError) as shown:
            await command("show", hidden.id, "--json")
        with pytest.raises(errors.PayloadDecodeError):
            await open_.turn(hidden.id).result()
        monkeypatch.setenv(VARIABLE, ALL)
        readable, _ = await command("approvals", *both)
        for turn in (hidden, plain):
            await turn.deny((await pending(turn))[0])
            await turn.result()
        told, _ = await command("show", hidden.id)

    assert {entry["id"]: entry["error"] and entry["error"]["code"] for entry in entries} == {
        hidden.id: "PAYLOAD_DECODE",
        plain.id: None,
    }
    assert {entry["state"] for entry in entries} == {"waiting"}
    assert [
        line for line in table.splitlines() if missing in line and line.startswith(hidden.id)
    ] != []
    header, *rows = listed.splitlines()
    assert header.split()[:3] == ["TURN", "CALL", "TOOL"]
    assert {row.split()[0]: row.split()[1] for row in rows} == {
        hidden.id: "–",
        plain.id: "call_1_1",
    }
    assert missing in listed
    assert f"perdure approvals {plain.id}" in hint.replace("'", "")
    assert {line["turn"]: line.get("error", {}).get("code") for line in as_json} == {
        hidden.id: "PAYLOAD_DECODE",
        plain.id: None,
    }
    assert found == [plain.id]
    assert [
        record.getMessage() for record in caplog.records if hidden.id in record.getMessage()
    ] == [f"the calls of {hidden.id} that wait are left out: {missing}"]
    assert shown.value.message == missing
    assert [line.split()[1] for line in readable.splitlines()] == ["CALL", "call_1_1", "call_1_1"]
    assert f"answer {SECRET}" in told


@pytest.mark.accepts("P15", "P17")
async def test_turn_is_read_with_every_key_that_is_kept(
    perdure_runtime: Runtime, perdure_server: str
) -> None:
    """After a rotation the old key decrypts; without it, the error says that a key is missing."""
    async with perdure_runtime(
        payer(), model=asks(), data_converter=encrypting.converter
    ) as client:
        turn = await client.start("payer", "Task")
        [one] = await pending(turn)
        await turn.deny(one)
        await turn.result()
    rotated = await AgentClient.connect(perdure_server, data_converter=encrypting.rotated)
    renewed = DataConverter(payload_codec=encrypting.Encrypting("second"))
    without = await AgentClient.connect(perdure_server, data_converter=renewed)
    report = await rotated.turn(turn.id).result()

    assert report.output == f"answer {SECRET}"
    with pytest.raises(
        errors.PayloadDecodeError,
        match=r"the data converter failed \(KeyError\); does it have the key",
    ):
        await without.turn(turn.id).result()


@pytest.mark.accepts("P16")
async def test_process_reads_the_variable_for_every_connection(
    perdure_runtime: Runtime, perdure_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients and the test runtime; an argument overrides it."""
    monkeypatch.setenv(VARIABLE, ALL)
    by_variable = await AgentClient.connect(perdure_server)
    by_argument = await AgentClient.connect(perdure_server, data_converter=encrypting.rotated)
    async with perdure_runtime(payer(), model=asks(), data_converter=encrypting.rotated) as client:
        codecs = [
            each.temporal.data_converter.payload_codec
            for each in (by_variable, by_argument, client)
        ]

    assert codecs == [
        encrypting.converter.payload_codec,
        encrypting.rotated.payload_codec,
        encrypting.rotated.payload_codec,
    ]
