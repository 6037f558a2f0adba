"""Every turn leaves records in the worker's log: five kinds of events, one line each."""

import asyncio
import json
import logging
import re
import secrets
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import WorkflowTaskFailedCause as Cause
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker import Worker

from perdure import (
    Agent,
    Allow,
    Budget,
    Deny,
    ProposedCall,
    RequestOptions,
    RequireApproval,
    Task,
    errors,
    tool,
)
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.turn.facts import Scheduled, WaitBegan
from perdure.values.reports import StopReason, Usage
from perdure.worker import AgentWorker
from perdure.worker.plugin import PerdurePlugin

from ...conftest import Runtime
from ...support.spending import Queue, app, ended, queue, until, usage
from ...support.telemetry import Traces, attributes, run_in_a_process


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a < 0:
        raise ValueError("no")
    return a + b


AGENT = Agent(name="adder", model="scripted:adder", tools=[add])
USAGE = Usage(input_tokens=10, output_tokens=5)


def said(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The fields of the records, without those that differ between runs."""
    records = [dict(record.perdure) for record in caplog.records if record.name == "perdure.turns"]  # type: ignore[attr-defined]
    for record in records:
        record["event_id"] = str(record["event_id"]).partition("/")[2]
        if record.get("duration_ms"):
            record["duration_ms"] = 1
    return records


@pytest.mark.accepts("O1", "O5", "O3")
async def test_success_is_a_start_each_call_and_an_end(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """With agent, task, model, tool, tokens, cost and outcome; a failed tool has the outcome
    error.
    """
    caplog.set_level(logging.INFO, "perdure")
    model = ScriptedModel(
        calls(call("add", a=1, b=2), call("add", a=-1, b=2), call("nothing")),
        says("3", usage=USAGE),
    )
    async with runtime(AGENT, model=model) as client:
        await client.run("adder", "go", id="sum-1", labels={"team": "blue"})

    who = {"agent": "adder", "task": "sum-1", "label.team": "blue"}
    records = said(caplog)
    assert [
        (record["event"], record["event_id"], record.get("tool"), record.get("outcome"))
        for record in records
    ] == [
        ("turn_started", "turn_started/start", None, None),
        ("llm_call", "llm_call/step-1", None, "tool_calls"),
        ("tool_call", "tool_call/step-1.call-3", "nothing", "error"),
        ("tool_call", "tool_call/step-1.call-1", "add", "ok"),
        ("tool_call", "tool_call/step-1.call-2", "add", "error"),
        ("llm_call", "llm_call/step-2", None, "end"),
        ("turn_completed", "turn_completed/end", None, "completed"),
    ]
    assert all(who.items() <= record.items() for record in records)
    assert (records[-2]["tokens"], records[-2]["model"]) == (15, "scripted")
    assert {"llm_calls": 2, "tool_calls": 3, "duration_ms": 1, "cost_usd": 0}.items() <= records[
        -1
    ].items()


FIELDS = {
    "turn_started": ["agent", "task", "task_type", "tier"],
    "llm_call": ["agent", "task", "model", "duration_ms", "tokens", "cost_usd", "outcome"],
    "tool_call": ["agent", "task", "tool", "duration_ms", "outcome"],
    "turn_failed": [
        "agent",
        "task",
        "duration_ms",
        "llm_calls",
        "tool_calls",
        "error_class",
        "error",
    ],
    "turn_completed": [
        "agent",
        "task",
        "duration_ms",
        "llm_calls",
        "tool_calls",
        "cost_usd",
        "outcome",
    ],
}
"""The fields of every record of an event, besides its event and its id."""


@pytest.mark.accepts("O1", "O2", "O3", "O5", "P53")
async def test_each_event_has_its_fields_and_no_others(
    perdure_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    """For successful and failed calls: the tier is the agent's name for its model, a failed tool
    has its duration, and the line has every field.
    """
    caplog.set_level(logging.INFO, "perdure")

    @tool
    async def fail() -> None:
        """Fail after a while."""
        await asyncio.sleep(0.05)
        raise ValueError("no")

    worker = AgentWorker(
        Agent(name="adder", model="gold", tools=[add, fail]), models={"gold": "scripted:adder"}
    )
    model = ScriptedModel(
        calls(call("add", a=1, b=2), call("fail"), usage=USAGE),
        fails(errors.LLMAuthError("bad key")),
    )
    async with queue(perdure_server) as work, work.worker(worker, model):
        await ended(await work.client.start("adder", Task(content="go", type="sum"), id="sum-2"))

    records = said(caplog)
    assert [(record["event"], list(record)[1:]) for record in records] == [
        ("turn_started", ["event_id", *FIELDS["turn_started"]]),
        ("llm_call", ["event_id", *FIELDS["llm_call"]]),
        ("tool_call", ["event_id", *FIELDS["tool_call"]]),
        ("tool_call", ["event_id", *FIELDS["tool_call"], "error"]),
        ("llm_call", ["event_id", *FIELDS["llm_call"], "error"]),
        ("turn_failed", ["event_id", *FIELDS["turn_failed"]]),
        ("turn_completed", ["event_id", *FIELDS["turn_completed"]]),
    ]
    assert [record["error"] for record in records if "error" in record] == [
        "fail failed: ValueError: no",
        "bad key",
        "bad key",
    ]
    assert (records[0]["task_type"], records[0]["tier"]) == ("sum", "gold")
    levels = [record.levelname for record in caplog.records if record.name == "perdure.turns"]
    assert levels == ["INFO"] * 4 + ["WARNING", "CRITICAL", "INFO"]
    [line] = [
        record.getMessage() for record in caplog.records if "tool=fail" in record.getMessage()
    ]
    written = re.fullmatch(
        r"tool_call event_id=\S+/tool_call/step-1\.call-2 agent=adder task=sum-2 tool=fail"
        r" duration_ms=(\d+) outcome=error error=.*",
        line,
    )
    assert written is not None
    assert 50 <= int(written[1]) < 5_000


@pytest.mark.accepts("O1", "O5")
@pytest.mark.slow
async def test_worker_writes_json_if_it_is_asked_to(perdure_server: str) -> None:
    """A process with `PERDURE_LOG_FORMAT=json`: each record is an object with its id, and the last
    one agrees with the report.
    """
    outcome, said_by_it = await run_in_a_process(perdure_server, PERDURE_LOG_FORMAT="json")

    greeting, *lines = [json.loads(line) for line in said_by_it.splitlines()]
    assert greeting["message"].startswith("worker for librarian")
    turn = [line for line in lines if line["logger"] == "perdure.turns"]
    assert {tuple(line)[:4] for line in lines} == {("time", "level", "logger", "message")}
    assert {line["event"] for line in turn} == {
        "turn_started",
        "llm_call",
        "tool_call",
        "turn_completed",
    }
    assert [[name for name in list(line)[4:] if name != "error"] for line in turn] == [
        ["event", "event_id", *FIELDS[line["event"]]] for line in turn
    ]
    assert len({line["event_id"] for line in turn}) == len(turn)
    assert (turn[-1]["outcome"], turn[-1]["agent"], turn[-1]["level"]) == (
        outcome,
        "librarian",
        "info",
    )


@pytest.mark.accepts("O2")
async def test_failure_is_said_once_with_its_class(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """`turn_failed` with the class of the error, then `turn_completed`."""
    caplog.set_level(logging.INFO, "perdure")
    async with runtime(AGENT, model=ScriptedModel(fails(errors.LLMAuthError("bad key")))) as client:
        with pytest.raises(errors.LLMAuthError):
            await client.run("adder", "go")

    records = said(caplog)
    assert [record["event"] for record in records] == [
        "turn_started",
        "llm_call",
        "turn_failed",
        "turn_completed",
    ]
    assert (records[1]["outcome"], records[2]["error_class"], records[3]["outcome"]) == (
        "LLM_AUTH",
        "LLMAuthError",
        "failed",
    )
    assert [record.levelname for record in caplog.records if record.name == "perdure.turns"][
        2
    ] == "CRITICAL"


@pytest.mark.accepts("O2")
async def test_turn_of_an_unknown_agent_has_its_record_too(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if nothing ran."""
    caplog.set_level(logging.INFO, "perdure")
    async with runtime(AGENT, model=ScriptedModel()) as client:
        with pytest.raises(errors.UnknownAgentError):
            await client.run("nobody", "go")

    assert [record["event"] for record in said(caplog)] == [
        "turn_started",
        "turn_failed",
        "turn_completed",
    ]


@pytest.mark.accepts("O1", "O3")
async def test_what_a_model_or_a_caller_names_can_neither_forge_a_line_nor_move_the_cursor(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Names and values of labels are quoted in the line, with visible escapes, and unchanged in the
    record.
    """
    caplog.set_level(logging.INFO, "perdure")
    labels = {
        "a\nturn_failed event_id=1": "x",
        "b outcome": "completed",
        "c": "\x1b[2J\u202e",
        "d\x9b2J": "is fine",
    }
    async with runtime(
        AGENT, model=ScriptedModel(calls(call("\x1b[2Jevil"), call("add\x9b2J")), says("3"))
    ) as client:
        await client.run("adder", "go", id="sum-3", labels=labels)

    lines = [record.getMessage() for record in caplog.records if record.name == "perdure.turns"]
    written = (
        r' "label.a\nturn_failed event_id=1"=x "label.b outcome"=completed'
        r' label.c="\u001b[2J\u202e" "label.d\u009b2J"="is fine"'
    )
    assert [line for line in lines if not line.isprintable() or written not in line] == []
    assert [
        re.search(r"tool=(\S+)", line)[1]  # type: ignore[index]
        for line in lines
        if line.startswith("tool_call ")
    ] == [
        r'"\u001b[2Jevil"',
        r'"add\u009b2J"',
    ]
    assert [record["tool"] for record in said(caplog) if record["event"] == "tool_call"] == [
        "\x1b[2Jevil",
        "add\x9b2J",
    ]
    assert {f"label.{name}": value for name, value in labels.items()}.items() <= said(caplog)[
        0
    ].items()


@pytest.mark.accepts("O4")
async def test_replay_logs_nothing(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """The histories of all tests are replayed, and a cancelled turn still has each of its records
    once.
    """
    caplog.set_level(logging.INFO, "perdure")
    async with runtime(
        AGENT, model=ScriptedModel(says("late", delay=timedelta(seconds=30)))
    ) as client:
        turn = await client.start("adder", "go")
        async for event in turn.events():
            if "ModelCall" in str(event) or "step=1" in str(event.fact):
                break
        await turn.cancel("enough")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
    before = len(said(caplog))

    assert before == len({record["event_id"] for record in said(caplog)})
    assert [record["event"] for record in said(caplog)] == [
        "turn_started",
        "llm_call",
        "turn_failed",
        "turn_completed",
    ]


@pytest.mark.slow
@pytest.mark.accepts("O2", "O5")
async def test_turn_over_budget_is_a_warning_that_tells_every_cost(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the cost of every call, including an attempt without an answer, at its reservation;
    their sum is the cost of the turn.
    """
    caplog.set_level(logging.INFO, "perdure")
    late = errors.LLMTimeoutError("too slow", context={"retry_after_s": 0.01})
    model = ScriptedModel(fails(late), calls(call("look"), usage=usage(900)))
    async with runtime(app(options=RequestOptions(max_output_tokens=100)), model=model) as client:
        error = await ended(await client.start("spender", "go", budget=Budget(usd="4.5")))

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.report is not None
    records = said(caplog)
    assert [(record["event_id"], record.get("outcome")) for record in records] == [
        ("turn_started/start", None),
        ("llm_call/step-1", "LLM_TIMEOUT"),
        ("llm_call/step-1.try-2", "tool_calls"),
        ("tool_call/step-1.call-1", "ok"),
        ("turn_failed/end", None),
        ("turn_completed/end", "budget_exhausted"),
    ]
    costs = [record["cost_usd"] for record in records if record["event"] == "llm_call"]
    assert costs == [error.report.spent.usd - Decimal("0.9"), Decimal("0.9")]
    assert (records[-2]["error_class"], records[-1]["cost_usd"], records[-1]["llm_calls"]) == (
        "TurnBudgetExceededError",
        error.report.cost,
        2,
    )
    assert [record.levelname for record in caplog.records if record.name == "perdure.turns"][
        -2:
    ] == ["WARNING", "INFO"]


@pytest.mark.accepts("O4", "B10")
async def test_turn_that_went_on_with_another_worker_is_written_down_once(
    perdure_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It waited for budget while its worker was stopped; the next one replays it and repeats no
    line.
    """
    caplog.set_level(logging.INFO, "perdure")
    model = ScriptedModel(calls(call("look"), usage=usage(900)), says("done", usage=usage(100)))
    pauses = app(on_exhausted="pause")
    async with queue(perdure_server) as work:
        async with work.worker(pauses, model):
            turn = await work.client.start("spender", "go", budget=Budget(usd="2.5"))
            await until(turn, WaitBegan)
        async with work.worker(pauses, model):
            await turn.add_budget(Budget(usd="2"))
            await ended(turn)

    assert [record["event_id"] for record in said(caplog)] == [
        *("turn_started/start", "llm_call/step-1", "tool_call/step-1.call-1"),
        *("llm_call/step-2", "turn_completed/end"),
    ]


class Interrupting(PayloadCodec):
    """An interceptor that changes nothing.

    Before the first task that closes a turn reaches the server, the turn is cancelled, so the
    server refuses that task.
    """

    def __init__(self, address: str, word: bytes) -> None:
        self._address = address
        self._word = word
        self.turn_id = ""
        self.times = 0

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if (
            self.turn_id
            and not self.times
            and any(
                b'"outcome"' in payload.data and self._word in payload.data for payload in payloads
            )
        ):
            self.times = 1
            await (await Client.connect(self._address)).get_workflow_handle(self.turn_id).cancel()
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


@pytest.mark.table(1)
@pytest.mark.accepts("O16")
@pytest.mark.parametrize("cached", [0, 100])
async def test_end_is_told_once_and_as_the_server_has_it(
    perdure_server: str, caplog: pytest.LogCaptureFixture, cached: int
) -> None:
    """Even if the server refused a task with another end: in log, span and metrics."""
    caplog.set_level(logging.INFO, "perdure")
    codec, traces = Interrupting(perdure_server, b"THE ANSWER"), Traces()
    temporal = await Client.connect(
        perdure_server, data_converter=DataConverter(payload_codec=codec)
    )
    work = Queue(temporal)
    codec.turn_id = turn_id = f"told-once-{secrets.token_hex(4)}"
    app = AgentWorker(
        AGENT,
        telemetry=traces.telemetry(),
        providers={"scripted": ScriptedModel("THE ANSWER", "never")},
    )
    async with Worker(
        temporal,
        task_queue=work.client.task_queue,
        plugins=[PerdurePlugin(app)],
        max_cached_workflows=cached,
    ):
        turn = await work.client.start("adder", "go", id=turn_id)
        await ended(turn)
        history = await work.client.history(turn)
    described = await temporal.get_workflow_handle(turn_id).describe()

    assert codec.times == 1
    refused = [
        event for event in history.events if event.HasField("workflow_task_failed_event_attributes")
    ]
    assert [event.workflow_task_failed_event_attributes.cause for event in refused] == [
        Cause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
    ]
    committed = (await described.memo_value("perdure"))["outcome"]
    records = [record for record in said(caplog) if record["task"] == turn_id]
    assert [
        record["event"]
        for record in records
        if record["event"] in ("turn_started", "turn_completed")
    ] == ["turn_started", "turn_completed"]
    assert [record["outcome"] for record in records if record["event"] == "turn_completed"] == [
        committed
    ]
    assert len({record["event_id"] for record in records}) == len(records)
    assert attributes(traces.named("invoke_agent adder"))["perdure.outcome"] == committed
    assert [
        (counted["perdure.outcome"], count) for counted, count in traces.measured("perdure.turns")
    ] == [(committed, 1)]


@tool
def pay() -> str:
    """Never runs."""
    raise AssertionError


@tool(timeout=timedelta(seconds=1))
async def doze() -> str:
    """Takes too long."""
    await asyncio.sleep(60)
    return "awake"


@tool(timeout=timedelta(seconds=60))
async def sleep() -> str:
    """Takes long."""
    await asyncio.sleep(60)
    return "awake"


def rule(proposed: ProposedCall) -> Allow | Deny | RequireApproval:
    """Nothing is paid, and the first sum waits for a person who does not come."""
    if proposed.tool == "pay":
        return Deny(reason="no")
    return RequireApproval(expires=timedelta(seconds=1)) if proposed.tool == "add" else Allow()


@pytest.mark.accepts("O18")
async def test_every_call_has_its_line_whatever_became_of_it(
    perdure_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls that were denied, expired, timed out, were cancelled, cut off or not allowed, and those
    that were not reached.
    """
    caplog.set_level(logging.INFO, "perdure")
    worker = Agent(name="worker", model="scripted:x", tools=[add, pay, doze, sleep], policy=rule)
    batch = calls(call("pay"), call("add", a=1, b=2), call("doze"))
    scripts = {
        "stopped": ScriptedModel(batch, "done"),
        "cancelled": ScriptedModel(calls(call("sleep"), call("doze"))),
        "cut-off": ScriptedModel(calls(call("doze"), stop=StopReason.MAX_TOKENS)),
        "boundary": ScriptedModel(calls(call("sleep"), call("doze"))),
    }
    async with queue(perdure_server) as work, work.worker(AgentWorker(worker), ByTask(scripts)):
        turns = {
            name: await work.client.start(
                "worker", name, allowed_tools=["sleep"] if name == "boundary" else None
            )
            for name in scripts
        }
        await until(turns["cancelled"], Scheduled, times=4)
        await turns["cancelled"].cancel()
        for turn in turns.values():
            await ended(turn)

    lines = [record for record in said(caplog) if record["event"] == "tool_call"]
    told = {
        name: [(record["tool"], record["outcome"]) for record in lines if record["task"] == turn.id]
        for name, turn in turns.items()
    }
    assert told == {
        "stopped": [("pay", "denied"), ("add", "expired"), ("doze", "timed_out")],
        "cancelled": [("sleep", "cancelled"), ("doze", "not_run")],
        "cut-off": [("doze", "not_run")],
        "boundary": [("sleep", "not_run"), ("doze", "not_run")],
    }
    assert all(isinstance(record["duration_ms"], int) for record in lines)
    assert {
        record["duration_ms"] for record in lines if record["outcome"] in ("timed_out", "cancelled")
    } == {1}
