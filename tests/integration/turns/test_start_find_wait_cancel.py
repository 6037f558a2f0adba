"""What callers do with turns: start, attach, find, wait and cancel, and the errors of each."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)

from perdure import (
    Agent,
    AssistantMessage,
    Context,
    Outcome,
    OutputGuardrail,
    Step,
    Task,
    Text,
    ToolMessage,
    UserMessage,
    errors,
    tool,
)
from perdure.clients import AgentClient
from perdure.clients.turns.starting import IfExists
from perdure.temporal.connect import TIMEOUT_S, connect, connect_local
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime, eventually
from ...support.approving import pending
from ...support.ports import free_port
from ...support.spending import queue


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADDER = Agent(name="adder", model="scripted:adder", instructions="Add.", tools=[add])


@pytest.fixture
def new_id() -> str:
    """An id that no other test uses."""
    return f"turn/{secrets.token_hex(6)}"


class Gate:
    """A tool that waits after its start until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

        @tool(name="wait")
        async def wait() -> str:
            self.entered.set()
            await eventually(self.opened.is_set, "the gate opens")
            return "waited"

        self.agent = replace(ADDER, tools=[wait])

    async def until_entered(self) -> None:
        await eventually(self.entered.is_set, "the tool begins")


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that opens at the end of the test in any case."""
    made = Gate()
    yield made
    made.opened.set()


# --- the same id twice


@pytest.mark.accepts("E3")
async def test_same_id_attaches_to_the_finished_turn_and_pays_nothing(
    runtime: Runtime, new_id: str
) -> None:
    """The second run returns the same report without a model call, also with another client."""
    model = ScriptedModel(calls(call("add", a=2, b=3)), says("five"))

    async with runtime(ADDER, model=model) as client:
        first = await client.run(ADDER, "2 + 3?", id=new_id)
        second = await client.run("adder", Task(content="2 + 3?"), id=new_id)
        third = await AgentClient.from_temporal(client.temporal, task_queue=client.task_queue).run(
            ADDER, "2 + 3?", id=new_id
        )

    assert first.turn_id == new_id
    assert [second, third] == [first, first]
    assert model.call_count == 2


@pytest.mark.accepts("E3")
async def test_same_id_attaches_to_the_failed_turn_and_raises_its_error(
    runtime: Runtime, new_id: str
) -> None:
    """A retried job gets an error of the same class with the same report."""
    model = ScriptedModel(fails(errors.LLMInvalidRequestError("no such parameter")))

    async with runtime(ADDER, model=model) as client:
        caught = []
        for _ in range(2):
            with pytest.raises(errors.LLMInvalidRequestError, match="no such parameter") as raised:
                await client.run(ADDER, "2 + 3?", id=new_id)
            caught.append(raised.value)

    assert caught[0].report is not None
    assert caught[1].report == caught[0].report
    assert caught[1].to_dict() == caught[0].to_dict()
    assert model.call_count == 1


@pytest.mark.slow
@pytest.mark.accepts("E26")
async def test_misspelt_agent_does_not_take_the_id(runtime: Runtime, new_id: str) -> None:
    """With the right name a turn starts under the same id, once, even for concurrent callers; then
    the id is taken as usual.
    """
    model = ScriptedModel(calls(call("add", a=2, b=3)), says("five"))

    async with runtime(ADDER, model=model) as client:
        for name in ("ader", "ader", "addr"):
            with pytest.raises(
                errors.UnknownAgentError, match=f"no agent named '{name}'; this worker knows adder"
            ):
                await client.run(name, "2 + 3?", id=new_id)
        with pytest.raises(errors.TurnExistsError):
            await client.start("adder", "2 + 3?", id=new_id, if_exists="error")
        reports = await asyncio.gather(
            *(client.run("adder", "2 + 3?", id=new_id) for _ in range(5))
        )
        with pytest.raises(errors.TurnConflictError):
            await client.start("ader", "2 + 3?", id=new_id)

    assert [report.output for report in reports] == ["five"] * 5
    assert model.call_count == 2


@pytest.mark.accepts("E26")
async def test_agent_that_is_gone_after_a_step_leaves_the_id_taken(perdure_server: str) -> None:
    """A model was called, so the same id is the same turn."""
    model = ScriptedModel(calls(call("add", a=2, b=3)), says("five"))
    checked = replace(ADDER, approval="all", middleware=[OutputGuardrail(lambda _: True)])
    async with queue(perdure_server) as work:
        async with work.worker(AgentWorker(checked), model):
            turn = await work.client.start("adder", "go", id=f"turn/{secrets.token_hex(6)}")
            [adding] = await pending(turn)
        async with work.worker(AgentWorker(replace(ADDER, name="other")), model):
            await turn.deny(adding)
            with pytest.raises(errors.UnknownAgentError) as caught:
                await turn.result()
            again = await work.client.start("adder", "go", id=turn.id)

    assert caught.value.report is not None
    assert caught.value.report.model_calls == 2
    assert (await again.first_run()) == await turn.first_run()


@pytest.mark.accepts("E3")
async def test_same_id_attaches_to_the_running_turn(
    runtime: Runtime, gate: Gate, new_id: str
) -> None:
    """Both callers wait for one turn; labels may differ, because they are not part of the work."""
    model = ScriptedModel(calls(call("wait")), says("done"))

    async with runtime(gate.agent, model=model) as client:
        first = await client.start(gate.agent, "go", id=new_id, labels={"try": "1"})
        await gate.until_entered()
        second = await client.start(gate.agent, "go", id=new_id, labels={"try": "2"})
        gate.opened.set()
        reports = await asyncio.gather(first.result(), second.result())

    assert (await second.first_run()) == await first.first_run()
    assert reports[0] == reports[1]
    assert model.call_count == 2


@pytest.mark.accepts("E3")
@pytest.mark.parametrize(
    "other",
    [
        {"agent": "subtracter"},
        {"task": "3 + 3?"},
        {"task": Task(content="2 + 3?", type="sum")},
        {"context": {"memory": "numbers are large"}},
        {"context": None},
        {"history": (UserMessage.of("hello"),)},
    ],
    ids=["agent", "task", "task type", "context", "no context", "history"],
)
@pytest.mark.table(1)
async def test_same_id_for_other_work_is_a_conflict(
    runtime: Runtime, new_id: str, other: dict[str, Any]
) -> None:
    """The error has the id, and nothing runs."""
    model = ScriptedModel(says("five"))
    asked: dict[str, Any] = {
        "agent": ADDER,
        "task": "2 + 3?",
        "context": {"memory": "numbers are small"},
    }

    async with runtime(ADDER, model=model) as client:
        await client.run(**asked, id=new_id)
        again = await client.start(
            "adder", "2 + 3?", context=Context(blocks={"memory": "numbers are small"}), id=new_id
        )
        with pytest.raises(errors.TurnConflictError, match=new_id):
            await client.start(**{**asked, **other}, id=new_id)

    assert again.id == new_id
    assert model.call_count == 1


@pytest.mark.accepts("E3")
async def test_restart_runs_a_finished_turn_anew(runtime: Runtime, new_id: str) -> None:
    """A new run, whose work may differ; the id refers to the new run, and the old one can still be
    read.
    """
    model = ScriptedModel(says("five"), says("six"))

    async with runtime(ADDER, model=model) as client:
        first = await client.start(ADDER, "2 + 3?", id=new_id)
        await first.result()
        second = await client.start(ADDER, "3 + 3?", id=new_id, if_exists="restart")
        outputs = [(await turn.result()).output for turn in (first, second, client.turn(new_id))]

    assert outputs == ["five", "six", "six"]
    assert (await second.first_run()) != await first.first_run()


@pytest.mark.slow
@pytest.mark.accepts("E3")
async def test_restart_ends_a_running_turn(runtime: Runtime, gate: Gate, new_id: str) -> None:
    """A caller that waits for the old run gets an error with its work so far."""
    model = ScriptedModel(calls(call("wait")), says("fresh"))

    async with runtime(gate.agent, model=model) as client:
        first = await client.start(gate.agent, "go", id=new_id)
        await gate.until_entered()
        second = await client.start(gate.agent, "go", id=new_id, if_exists="restart")
        with pytest.raises(errors.TurnTerminatedError) as caught:
            await first.result()
        report = await second.result()

    assert report.output == "fresh"
    assert caught.value.report is not None
    assert (caught.value.report.model_calls, caught.value.report.unstopped) == (
        1,
        ("step-1.call-1",),
    )


@pytest.mark.table(1)
@pytest.mark.accepts("E3")
@pytest.mark.parametrize("is_over", [True, False], ids=["over", "running"])
async def test_same_id_is_an_error_where_that_was_asked_for(
    runtime: Runtime, gate: Gate, new_id: str, is_over: bool
) -> None:
    """With `if_exists="error"`, even for the same work."""
    model = ScriptedModel(calls(call("wait")), says("done"))

    async with runtime(gate.agent, model=model) as client:
        turn = await client.start(gate.agent, "go", id=new_id)
        if is_over:
            gate.opened.set()
            await turn.result()
        with pytest.raises(errors.TurnExistsError, match=new_id):
            await client.start(gate.agent, "go", id=new_id, if_exists="error")
        gate.opened.set()
        report = await turn.result()

    assert report.output == "done"


@pytest.mark.table(1)
@pytest.mark.parametrize("if_exists", ["attach", "restart", "error"])
async def test_new_id_starts_a_turn_whatever_is_to_happen_to_an_old_one(
    runtime: Runtime, new_id: str, if_exists: IfExists
) -> None:
    """There is no turn to attach to."""
    async with runtime(ADDER, model=ScriptedModel(says("five"))) as client:
        report = await client.run(ADDER, "2 + 3?", id=new_id, if_exists=if_exists)

    assert report.output == "five"


@pytest.mark.slow
async def test_turn_without_an_id_is_named_after_its_agent(runtime: Runtime) -> None:
    """`<agent>/<12 random characters>`, different each time."""
    async with runtime(ADDER, model=ScriptedModel(says("five"), says("five"))) as client:
        ids = [(await client.run(ADDER, "2 + 3?")).turn_id for _ in range(2)]

    assert [(name, len(rest)) for name, _, rest in (turn_id.partition("/") for turn_id in ids)] == [
        ("adder", 12)
    ] * 2
    assert ids[0] != ids[1]


@pytest.mark.table(1)
@pytest.mark.parametrize(
    "turn_id",
    ["x" * 100, "ü" * 100, "🚲" * 100, "a b/c?d=#e%20\"'"],
    ids=["letters", "umlauts", "wide", "signs"],
)
async def test_id_is_taken_as_it_is(runtime: Runtime, turn_id: str) -> None:
    """A hundred characters of any kind are the workflow's id, unchanged."""
    async with runtime(ADDER, model=ScriptedModel(says("five"))) as client:
        await client.run(ADDER, "2 + 3?", id=turn_id, if_exists="restart")
        found = await client.temporal.get_workflow_handle(turn_id).describe()

    assert (found.id, found.workflow_type) == (turn_id, "AgentTurn")


@pytest.mark.parametrize("turn_id", ["", "x" * 101], ids=["empty", "101 characters"])
async def test_id_that_is_empty_or_too_long_is_refused(runtime: Runtime, turn_id: str) -> None:
    """Before any request, with the number of characters."""
    async with runtime(ADDER, model=ScriptedModel()) as client:
        with pytest.raises(errors.InvalidRequestError, match=f"not {len(turn_id)}"):
            await client.start(ADDER, "2 + 3?", id=turn_id)


@pytest.mark.accepts("Y9")
@pytest.mark.parametrize(
    "large",
    [
        {"task": "x" * 1_100_000},
        {"context": {"memory": "x" * 1_100_000}},
        {"history": (UserMessage.of("x" * 1_600_000),)},
        {"labels": {"note": "x" * 1_600_000}},
    ],
    ids=["task", "context", "history", "labels"],
)
async def test_input_that_is_too_large_is_refused_before_it_is_sent(
    runtime: Runtime, new_id: str, large: dict[str, Any]
) -> None:
    """With a typed error, and no turn exists afterwards."""
    async with runtime(ADDER, model=ScriptedModel()) as client:
        with pytest.raises(errors.TooLargeError):
            await client.start(**{"agent": ADDER, "task": "go", **large}, id=new_id)
        with pytest.raises(errors.TurnNotFoundError):
            await client.turn(new_id).status()


# --- finding


async def test_unknown_id_is_not_found(runtime: Runtime, new_id: str) -> None:
    """The error message and its context have the id."""
    async with runtime(ADDER, model=ScriptedModel()) as client:
        with pytest.raises(errors.TurnNotFoundError, match=new_id) as caught:
            await client.turn(new_id).status()

    assert caught.value.context == {"turn_id": new_id}


async def test_workflow_of_another_type_is_no_turn(runtime: Runtime, new_id: str) -> None:
    """It is not found as a turn, and no turn can be started under its id; it keeps running."""
    async with runtime(ADDER, model=ScriptedModel()) as client:
        other = await client.temporal.start_workflow("Payroll", id=new_id, task_queue="nobody")
        with pytest.raises(errors.TurnNotFoundError, match="Payroll"):
            await client.turn(new_id).status()
        with pytest.raises(errors.PerdureError, match="Payroll"):
            await client.start(ADDER, "2 + 3?", id=new_id)

        assert (await other.describe()).status == WorkflowExecutionStatus.RUNNING
        await other.terminate()


async def test_closed_port_is_an_unreachable_server() -> None:
    """With the address and a suggestion."""
    address = f"127.0.0.1:{free_port()}"

    with pytest.raises(errors.ServerUnreachableError, match="perdure dev") as caught:
        await AgentClient.connect(address)

    assert address in caught.value.message
    assert caught.value.context == {"address": address}


async def test_port_that_does_not_speak_is_an_unreachable_server() -> None:
    """The client gives up on a server that accepts the connection and does not answer, after ten
    seconds unless another time is given.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(errors.ServerUnreachableError, match=address):
            await connect(address, timeout_s=0.5)

    assert TIMEOUT_S == 10


# --- the end


@pytest.mark.slow
async def test_result_needs_no_worker_once_the_turn_is_over(
    runtime: Runtime, perdure_server: str, new_id: str
) -> None:
    """A client that has only the id reads the whole report after every worker has stopped."""
    async with runtime(
        ADDER, model=ScriptedModel(calls(call("add", a=2, b=3)), says("five"))
    ) as client:
        report = await client.run(ADDER, "2 + 3?", id=new_id)

    later = await AgentClient.connect(perdure_server)
    found = later.turn(new_id)

    assert await found.result() == report


@pytest.mark.slow
@pytest.mark.accepts("O6")
async def test_on_step_is_called_with_every_step_in_order(runtime: Runtime) -> None:
    """Including the last step, each with its results; with sync and async functions."""
    script = (calls(call("add", a=1, b=1)), calls(call("add", a=2, b=2)), says("done"))
    seen: list[Step] = []
    awaited: list[Step] = []

    async def later(step: Step) -> None:
        await asyncio.sleep(0)
        awaited.append(step)

    async with runtime(ADDER, model=ScriptedModel(*script, *script)) as client:
        first = await client.run(ADDER, "go", on_step=seen.append)
        second = await client.run(ADDER, "go", on_step=later)

    assert tuple(seen) == first.steps
    assert tuple(awaited) == second.steps
    assert [[result.content for result in step.results] for step in seen] == [["2"], ["4"], []]


@pytest.mark.slow
@pytest.mark.accepts("O6")
async def test_on_step_that_raises_changes_nothing(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """It is called again for the next step, the error is logged, and the report is complete."""
    seen: list[int] = []

    def broken(step: Step) -> None:
        seen.append(step.number)
        raise RuntimeError("observer is broken")

    async with runtime(
        ADDER, model=ScriptedModel(calls(call("add", a=1, b=1)), says("done"))
    ) as client:
        report = await client.run(ADDER, "go", on_step=broken)

    assert (report.output, seen) == ("done", [1, 2])
    assert [record.message for record in caplog.records if record.exc_info] == [
        "on_step failed; the turn goes on"
    ] * 2


@pytest.mark.accepts("E4")
async def test_cancelled_turn_says_why_and_keeps_what_it_did(
    runtime: Runtime, gate: Gate, new_id: str
) -> None:
    """The reason is in the error and in lists; both calls have a result, and that of the second
    says that it was stopped.
    """
    model = ScriptedModel(calls(call("add", a=2, b=3)), calls(call("wait")), says("never"))
    agent = replace(gate.agent, tools=[*gate.agent.tools, add])

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go", id=new_id)
        await gate.until_entered()
        await turn.cancel("the customer has left")
        with pytest.raises(errors.TurnCancelledError, match="the customer has left") as caught:
            await turn.result()
        described = await client.temporal.get_workflow_handle(new_id).describe()
        memo = (await described.memo())["perdure"]

    report = caught.value.report
    assert report is not None
    assert (report.outcome, report.model_calls, report.unstopped) == (Outcome.CANCELLED, 2, ())
    assert [(result.name, result.is_error) for step in report.steps for result in step.results] == [
        ("add", False),
        ("wait", True),
    ]
    assert described.status == WorkflowExecutionStatus.CANCELED
    assert (memo["outcome"], memo["reason"], memo["steps"]) == (
        "cancelled",
        "the customer has left",
        2,
    )


@pytest.mark.slow
@pytest.mark.accepts("E4")
async def test_cancel_without_a_reason_is_a_cancel(runtime: Runtime, gate: Gate) -> None:
    """The error has its default message."""
    async with runtime(gate.agent, model=ScriptedModel(calls(call("wait")))) as client:
        turn = await client.start(gate.agent, "go")
        await gate.until_entered()
        await turn.cancel()

        with pytest.raises(errors.TurnCancelledError):
            await turn.result()


async def test_cancel_of_a_finished_turn_does_nothing(runtime: Runtime) -> None:
    """The report does not change."""
    async with runtime(ADDER, model=ScriptedModel(says("five"))) as client:
        turn = await client.start(ADDER, "2 + 3?")
        before = await turn.result()
        asked = await turn.cancel("too late")

        assert not asked
        assert await turn.result() == before


@pytest.mark.slow
@pytest.mark.accepts("U12")
async def test_report_of_a_terminated_turn_is_folded_from_history(
    runtime: Runtime, gate: Gate, new_id: str
) -> None:
    """No workflow code ran at the end, and the report still has the steps, the messages and what
    was in flight.
    """
    model = ScriptedModel(calls(call("add", call_id="c1", a=2, b=3)), calls(call("wait")))
    agent = replace(gate.agent, tools=[*gate.agent.tools, add])

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go", id=new_id)
        await gate.until_entered()
        await client.temporal.get_workflow_handle(new_id).terminate(reason="out of patience")
        with pytest.raises(errors.TurnTerminatedError, match="out of patience") as caught:
            await turn.result()

    report = caught.value.report
    assert report is not None
    asked = model.requests[1].messages[1]
    assert isinstance(asked, AssistantMessage)
    assert report.outcome == Outcome.TERMINATED
    assert report.messages[:3] == (UserMessage.of("go"), asked, ToolMessage.of(asked.calls[0], "5"))
    assert (len(report.steps), report.model_calls, report.tool_calls, report.unstopped) == (
        1,
        2,
        1,
        ("step-2.call-1",),
    )


@pytest.mark.slow
@pytest.mark.accepts("U12")
async def test_turn_whose_workflow_times_out_is_a_timeout_with_its_report(
    runtime: Runtime, gate: Gate, new_id: str
) -> None:
    """The server's own timeout, set by the starter, runs no workflow code either."""
    async with runtime(
        gate.agent, model=ScriptedModel(calls(call("wait"), text="one moment"))
    ) as client:
        request = {"agent": "adder", "task": "go"}
        await client.temporal.start_workflow(
            "AgentTurn",
            request,
            id=new_id,
            task_queue=client.task_queue,
            execution_timeout=timedelta(seconds=2),
        )
        turn = client.turn(new_id)
        with pytest.raises(errors.TurnTimeoutError) as caught:
            await turn.result()

    report = caught.value.report
    assert report is not None
    assert (report.outcome, report.output, report.last_text, report.unstopped) == (
        Outcome.TIMED_OUT,
        None,
        "one moment",
        ("step-1.call-1",),
    )


# --- other ways in


@pytest.mark.accepts("E12")
async def test_turn_started_with_temporals_own_command_line_runs(
    runtime: Runtime, perdure_server: str, new_id: str
) -> None:
    """Plain JSON, without any Perdure code; the client reads it like any other turn."""
    model = ScriptedModel(calls(call("add", a=2, b=3)), says("five"))

    async with runtime(ADDER, model=model) as client:
        await temporal_cli(
            *(
                "workflow",
                "start",
                "--address",
                perdure_server,
                "--type",
                "AgentTurn",
                "--task-queue",
                client.task_queue,
            ),
            *(
                "--workflow-id",
                new_id,
                "--input",
                '{"agent": "adder", "task": "2 + 3?", "context": {"memory": "small"}}',
            ),
        )
        turn = client.turn(new_id)
        report = await turn.result()
        again = await client.run(ADDER, "2 + 3?", id=new_id, context={"memory": "small"})

    assert (report.output, report.agent, report.turn_id) == ("five", "adder", new_id)
    assert model.requests[0].messages == (
        UserMessage(parts=(Text(text="<memory>\nsmall\n</memory>\n\n"), Text(text="2 + 3?"))),
    )
    assert again == report


@pytest.mark.slow
@pytest.mark.accepts("U10")
async def test_turn_started_with_the_wrong_json_fails_with_the_reason(
    runtime: Runtime, perdure_server: str, new_id: str
) -> None:
    """The error of a manual start names what is missing."""
    async with runtime(ADDER, model=ScriptedModel()) as client:
        await temporal_cli(
            *(
                "workflow",
                "start",
                "--address",
                perdure_server,
                "--type",
                "AgentTurn",
                "--task-queue",
                client.task_queue,
            ),
            *("--workflow-id", new_id, "--input", '{"agent": "adder", "tusk": "2 + 3?"}'),
        )
        turn = client.turn(new_id)

        with pytest.raises(errors.InvalidRequestError, match="task: Field required"):
            await turn.result()


async def temporal_cli(*arguments: str) -> None:
    """Run the `temporal` binary next to this interpreter."""
    binary = f"{sys.executable.rpartition('/')[0]}/temporal"
    done = await asyncio.to_thread(
        subprocess.run, [binary, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


class Squeezed(PayloadCodec):
    """A codec that makes everything unreadable, as encryption does."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(
                metadata={"encoding": b"binary/squeezed"},
                data=zlib.compress(item.SerializeToString()),
            )
            for item in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload.FromString(zlib.decompress(item.data))
            if item.metadata.get("encoding") == b"binary/squeezed"
            else item
            for item in payloads
        ]


SQUEEZED = DataConverter(
    payload_codec=Squeezed(), failure_converter_class=DefaultFailureConverterWithEncodedAttributes
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "converter", [pydantic_data_converter, SQUEEZED], ids=["pydantic", "codec"]
)
async def test_turn_runs_with_the_data_converter_of_ones_own_client(
    perdure_server: str, new_id: str, converter: DataConverter
) -> None:
    """A turn with tools, an attach, and a failed turn; worker and caller share only the
    converter.
    """
    model = ScriptedModel(
        calls(call("add", a=2, b=3)),
        says("five it is"),
        fails(errors.LLMInvalidRequestError("a secret reason")),
    )
    queue = f"test-{secrets.token_hex(6)}"
    app = AgentWorker(ADDER, task_queue=queue, providers={"scripted": model})
    at_work, at_home = await asyncio.gather(
        *(Client.connect(perdure_server, data_converter=converter) for _ in range(2))
    )

    async with app.running(at_work):
        caller = RecordingClient(at_home, queue)
        report = await caller.run(
            ADDER, "how much is 2 + 3?", id=new_id, context={"memory": "numbers are small"}
        )
        attached = await caller.run(
            ADDER, "how much is 2 + 3?", id=new_id, context={"memory": "numbers are small"}
        )
        with pytest.raises(errors.LLMInvalidRequestError, match="a secret reason") as caught:
            await caller.run(ADDER, "and now?", history=report.messages)
        history = await caller.history(caller.turn(new_id))

    assert (report.output, report.tool_calls, len(report.messages)) == ("five it is", 1, 4)
    assert attached == report
    assert caught.value.report is not None
    assert (caught.value.report.outcome, len(caught.value.report.messages)) == (Outcome.FAILED, 5)
    readable = [
        word
        for word in ("how much", "numbers are small", "five it is")
        if word.encode() in history_bytes(history.events)
    ]
    assert readable == (
        [] if converter is SQUEEZED else ["how much", "numbers are small", "five it is"]
    )


def history_bytes(events: Sequence[Any]) -> bytes:
    return b"".join(event.SerializeToString() for event in events)


@pytest.mark.accepts("O13")
async def test_queue_that_nobody_polls_is_said_within_ten_seconds(
    perdure_server: str, new_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning with the queue's name and the command to run; the turn waits, and runs when a
    worker starts.
    """
    queue = f"test-{secrets.token_hex(6)}"
    client = await AgentClient.connect(perdure_server, task_queue=queue)

    def warnings() -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if record.name == "perdure" and record.levelno == logging.WARNING
        ]

    turn = await client.start(ADDER, "2 + 3?", id=new_id)
    waiting = asyncio.create_task(turn.result())
    await eventually(lambda: bool(warnings()), "the warning")
    app = AgentWorker(ADDER, task_queue=queue, providers={"scripted": ScriptedModel(says("five"))})
    async with app.running(await connect_local(perdure_server)):
        report = await waiting

    [said] = warnings()
    assert queue in said
    assert new_id in said
    assert "perdure worker" in said
    assert report.output == "five"


Start = Callable[[AgentClient], Awaitable[object]]


@pytest.mark.parametrize(
    "act",
    [lambda client: client.start(ADDER, "go"), lambda client: client.turn("any").status()],
    ids=["start", "status"],
)
async def test_namespace_that_does_not_exist_is_said_in_the_error(
    perdure_server: str, act: Start
) -> None:
    """Every method raises one of our errors with the namespace."""
    client = await AgentClient.connect(perdure_server, namespace="nowhere")

    with pytest.raises(errors.PerdureError, match="nowhere"):
        await act(client)


@pytest.mark.slow
async def test_report_holds_the_answer_as_parts_and_as_text(runtime: Runtime) -> None:
    """Thinking is in the message, but not in the output."""
    async with runtime(ADDER, model=ScriptedModel(says("five", thinking="2 and 3"))) as client:
        report = await client.run(ADDER, "2 + 3?")

    message = report.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert report.output == "five"
    assert message.parts[-1] == Text(text="five")


@pytest.mark.accepts("U6")
@pytest.mark.parametrize("address", ["foo bar", "http://x:y:z"])
async def test_address_that_is_none_is_a_configuration_error(address: str) -> None:
    """It quotes the address and gives an example."""
    with pytest.raises(
        errors.ConfigurationError,
        match=r"is not an address of a Temporal server, such as localhost:7233",
    ):
        await AgentClient.connect(address)
