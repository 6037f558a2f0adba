"""Spans and metrics of turns, as an exporter receives them.

Every history is replayed when the runtime closes, which adds none.
"""

import asyncio
import contextlib
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, Worker

from perdure import Agent, AgentReport, Outcome, Registry, TurnInfo, errors, tool
from perdure.agents.policy import Allow, ProposedCall
from perdure.temporal.data_converter import chosen
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.values.reports import Usage
from perdure.worker import AgentWorker, PerdurePlugin
from perdure.worker.settings import WorkerSettings
from perdure.worker.telemetry import Telemetry, otlp
from perdure.workflows import AgentTurn

from ...conftest import RecordingClient, Runtime, check_history, eventually
from ...support.ports import free_port
from ...support.telemetry import (
    Reversing,
    Traces,
    attributes,
    ids,
    queue,
    run_in_a_process,
    status,
    trace_ids,
)

USAGE = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, cache_write_tokens=1)
SECRET = "the password is swordfish"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a < 0:
        raise ValueError(f"not {a}")
    return a + b


AGENT = Agent(name="adder", model="scripted:adder", tools=[add])


def span_id(span: ReadableSpan) -> int:
    """The id of a span."""
    return ids(span).span_id


@pytest.fixture
def traces() -> Traces:
    """Exported spans and metrics."""
    return Traces()


# --- one trace per turn


@pytest.mark.accepts("O8")
async def test_turn_is_one_trace_with_a_span_for_each_call(
    runtime: Runtime, traces: Traces
) -> None:
    """Two model calls and two tool calls, of which one fails, below the turn; with tokens, cost,
    agent and model.
    """
    model = ScriptedModel(
        calls(
            call("add", call_id="c1", a=1, b=2), call("add", call_id="c2", a=-1, b=2), usage=USAGE
        ),
        says("3", usage=USAGE),
    )
    async with runtime(traces.worker(AGENT), model=model) as client:
        await client.run("adder", "1 + 2?", id="traced-1", labels={"team": "blue"})

    chat, tool_call, turn = "chat adder", "execute_tool add", "invoke_agent adder"
    assert traces.tree() == [
        (chat, turn),
        (tool_call, turn),
        (tool_call, turn),
        (chat, turn),
        (turn, None),
    ]
    assert len(trace_ids(traces.spans)) == 1
    first, ok, failed, last, whole = traces.spans
    assert [status(span) for span in traces.spans] == [("UNSET", None, None)] * 2 + [
        ("ERROR", "tool_error", "tool_error")
    ] + [("UNSET", None, None)] * 2
    assert attributes(first) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.agent.name": "adder",
        "gen_ai.conversation.id": "traced-1",
        "gen_ai.request.model": "adder",
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 1,
        "perdure.cost_usd": 0.015,
        "perdure.step": 1,
        "perdure.attempt": 1,
        "perdure.event_id": "llm_call/step-1",
    }
    assert attributes(ok) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "adder",
        "gen_ai.conversation.id": "traced-1",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "perdure.step": 1,
        "perdure.attempt": 1,
        "perdure.event_id": "tool_call/step-1.call-1",
    }
    assert (attributes(failed)["gen_ai.tool.call.id"], attributes(failed)["perdure.event_id"]) == (
        "c2",
        "tool_call/step-1.call-2",
    )
    assert (
        attributes(last)["gen_ai.response.finish_reasons"],
        attributes(last)["perdure.step"],
    ) == (("stop",), 2)
    assert attributes(whole) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "scripted",
        "gen_ai.agent.name": "adder",
        "gen_ai.request.model": "adder",
        "gen_ai.conversation.id": "traced-1",
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "perdure.outcome": "completed",
        "perdure.steps": 2,
        "perdure.model_calls": 2,
        "perdure.tool_calls": 2,
        "perdure.cost_usd": 0.03,
        "perdure.label.team": "blue",
        "perdure.event_id": "turn_completed/end",
    }
    kinds = trace.SpanKind
    assert [span.kind for span in traces.spans] == [
        kinds.CLIENT,
        kinds.INTERNAL,
        kinds.INTERNAL,
        kinds.CLIENT,
        kinds.INTERNAL,
    ]


@pytest.mark.accepts("O8")
async def test_span_of_a_turn_has_its_times(runtime: Runtime, traces: Traces) -> None:
    """It starts before its first call and ends after its last one; its duration is within that of
    the report.
    """
    async with runtime(
        traces.worker(AGENT), model=ScriptedModel(says("3", delay=timedelta(seconds=0.3)))
    ) as client:
        report = await client.run("adder", "1 + 2?")

    chat, turn = traces.spans
    times = [turn.start_time, chat.start_time, chat.end_time, turn.end_time]
    assert None not in times
    assert times == sorted(times, key=lambda at: at or 0)
    assert (
        0.3
        <= ((turn.end_time or 0) - (turn.start_time or 0)) / 1e9
        <= report.duration.total_seconds()
    )


@pytest.mark.slow
async def test_spans_of_tools_nest_in_the_call(runtime: Runtime, traces: Traces) -> None:
    """For a sync tool in its thread, and an async one on its loop."""
    tracer = traces.provider.get_tracer("mine")

    @tool
    def look() -> str:
        with tracer.start_as_current_span("database"):
            return "seen"

    @tool
    async def fetch() -> str:
        with tracer.start_as_current_span("http"):
            await asyncio.sleep(0)
            return "fetched"

    agent = Agent(name="reader", model="scripted:reader", tools=[look, fetch])
    async with runtime(
        traces.worker(agent), model=ScriptedModel(calls(call("look"), call("fetch")), says("done"))
    ) as client:
        await client.run("reader", "go")

    assert ("database", "execute_tool look") in traces.tree()
    assert ("http", "execute_tool fetch") in traces.tree()
    assert len(trace_ids(traces.spans)) == 1


@pytest.mark.slow
async def test_spans_of_providers_nest_in_the_call(runtime: Runtime, traces: Traces) -> None:
    """So an instrumented HTTP client shows what took the time."""
    tracer = traces.provider.get_tracer("mine")

    class Instrumented(ScriptedModel):
        async def complete(self, request: Any) -> Any:
            with tracer.start_as_current_span("POST"):
                return await super().complete(request)

    async with runtime(traces.worker(AGENT), model=Instrumented(says("3"))) as client:
        await client.run("adder", "go")

    assert traces.tree() == [
        ("POST", "chat adder"),
        ("chat adder", "invoke_agent adder"),
        ("invoke_agent adder", None),
    ]


@pytest.mark.slow
async def test_spans_of_factories_and_policies_nest_in_the_turn(
    runtime: Runtime, traces: Traces
) -> None:
    """They are not calls and have no spans of their own."""
    tracer = traces.provider.get_tracer("mine")

    def policy(_: ProposedCall) -> Allow:
        with tracer.start_as_current_span("rules"):
            return Allow()

    def adder(_: TurnInfo) -> Agent:
        with tracer.start_as_current_span("directory"):
            return Agent(name="adder", model="scripted:adder", tools=[add], policy=policy)

    app = AgentWorker(Registry([adder]), telemetry=traces.telemetry())
    async with runtime(app, model=ScriptedModel(calls(call("add", a=1, b=2)), says("3"))) as client:
        await client.run("adder", "go")

    turn = "invoke_agent adder"
    assert traces.tree() == [
        *(
            (name, turn)
            for name in ("directory", "chat adder", "rules", "execute_tool add", "chat adder")
        ),
        (turn, None),
    ]


@pytest.mark.accepts("O8")
async def test_turn_goes_on_in_the_trace_of_its_caller(runtime: Runtime, traces: Traces) -> None:
    """The current span at the start of the turn becomes its parent; another turn starts its own
    trace.
    """
    tracer = trace.get_tracer("caller", tracer_provider=traces.provider)
    async with runtime(traces.worker(AGENT), model=ScriptedModel(says("1"), says("2"))) as client:
        with tracer.start_as_current_span("POST /ask"):
            turn = await client.start("adder", "first")
        await turn.result()
        await client.run("adder", "second")

    turns = [("chat adder", "invoke_agent adder"), ("invoke_agent adder", "POST /ask")]
    assert traces.tree() == [
        ("POST /ask", None),
        *turns,
        ("chat adder", "invoke_agent adder"),
        ("invoke_agent adder", None),
    ]
    assert (len(trace_ids(traces.spans[:3])), len(trace_ids(traces.spans))) == (1, 2)


async def test_caller_is_found_behind_a_codec(perdure_server: str, traces: Traces) -> None:
    """Workflow and activities both decode the memo."""
    client = await Client.connect(
        perdure_server, data_converter=DataConverter(payload_codec=Reversing())
    )
    app = AgentWorker(
        AGENT,
        telemetry=traces.telemetry(),
        providers={"scripted": ScriptedModel(says("3"))},
        task_queue=queue(),
    )
    async with app.running(client):
        turns = RecordingClient(client, app.task_queue)
        with traces.provider.get_tracer("caller").start_as_current_span("caller"):
            turn = await turns.start("adder", "go")
        await turn.result()

    assert traces.tree() == [
        ("caller", None),
        ("chat adder", "invoke_agent adder"),
        ("invoke_agent adder", "caller"),
    ]


# --- failures


@pytest.mark.slow
async def test_each_attempt_of_a_model_call_has_its_span(runtime: Runtime, traces: Traces) -> None:
    """The failed attempt has its error class."""
    model = ScriptedModel(fails(errors.LLMUnavailableError(SECRET)), says("3"))
    async with runtime(traces.worker(AGENT), model=model) as client:
        await client.run("adder", "go")

    first, second, turn = traces.spans
    assert [status(span) for span in traces.spans] == [
        ("ERROR", "LLM_UNAVAILABLE", "LLM_UNAVAILABLE"),
        *[("UNSET", None, None)] * 2,
    ]
    assert [
        (span.name, attributes(span)["perdure.attempt"], attributes(span)["perdure.event_id"])
        for span in (first, second)
    ] == [("chat adder", 1, "llm_call/step-1"), ("chat adder", 2, "llm_call/step-1.try-2")]
    assert attributes(turn)["perdure.model_calls"] == 2
    assert traces.measured("perdure.retries") == [
        (
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.agent.name": "adder",
                "gen_ai.provider.name": "scripted",
                "gen_ai.request.model": "adder",
            },
            1,
        )
    ]


@pytest.mark.slow
async def test_tool_that_is_stopped_at_its_timeout_says_so(
    runtime: Runtime, traces: Traces
) -> None:
    """For sync and async tools, even though the turn has continued by then."""

    @tool(timeout=timedelta(seconds=1))
    async def later() -> None:
        await asyncio.sleep(30)

    @tool(timeout=timedelta(seconds=1))
    def sync() -> None:
        for _ in range(200):  # the cancel takes effect between two of these
            threading.Event().wait(0.05)

    agent = Agent(name="waiter", model="scripted:waiter", tools=[later, sync])
    async with runtime(
        traces.worker(agent), model=ScriptedModel(calls(call("later"), call("sync")), says("done"))
    ) as client:
        report = await client.run("waiter", "go")
        await eventually(lambda: len(traces.spans) == 5, "every span ends")

    assert report.outcome is Outcome.COMPLETED
    late = [traces.named(f"execute_tool {name}") for name in ("later", "sync")]
    assert [status(span) for span in late] == [("ERROR", "timed_out", "timed_out")] * 2
    assert len(trace_ids(traces.spans)) == 1


@pytest.mark.slow
@pytest.mark.accepts("O8")
async def test_attempts_on_two_workers_are_in_one_trace(perdure_server: str) -> None:
    """The first worker stops during a tool; the second one has no state of it, runs the tool again
    and creates the turn's span.
    """
    client = await Client.connect(perdure_server)
    before, after = Traces(), Traces()
    started = threading.Event()

    @tool(read_only=True)
    async def fetch() -> str:
        if not started.is_set():
            started.set()
            await asyncio.sleep(60)
        return "fetched"

    agent = Agent(name="reader", model="scripted:reader", tools=[fetch])
    model = ScriptedModel(calls(call("fetch")), says("done"))
    name = queue()
    one, two = (
        AgentWorker(
            agent, telemetry=each.telemetry(), providers={"scripted": model}, task_queue=name
        )
        for each in (before, after)
    )
    turns = RecordingClient(client, name)
    async with one.running(client, settings=WorkerSettings(grace=timedelta(seconds=0.2))):
        turn = await turns.start("reader", "go")
        await asyncio.to_thread(started.wait, 20)
    async with two.running(client, settings=WorkerSettings(grace=timedelta(seconds=1))):
        report = await turn.result()
    await check_history(client, turn.id, await turn.first_run())

    assert report.outcome is Outcome.COMPLETED
    assert [(span.name, *status(span)) for span in before.spans] == [
        ("chat reader", "UNSET", None, None),
        ("execute_tool fetch", "ERROR", "PERDURE_WORKER_SHUTDOWN", "PERDURE_WORKER_SHUTDOWN"),
    ]
    whole = after.spans[-1]
    assert [(span.name, attributes(span).get("perdure.attempt")) for span in after.spans] == [
        ("execute_tool fetch", 2),
        ("chat reader", 1),
        ("invoke_agent reader", None),
    ]
    assert {span.parent.span_id for span in (*before.spans, *after.spans[:-1]) if span.parent} == {
        span_id(whole)
    }
    assert len(trace_ids((*before.spans, *after.spans))) == 1
    labels = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "reader",
        "gen_ai.tool.name": "fetch",
        "gen_ai.tool.type": "function",
    }
    assert (before.measured("perdure.retries"), after.measured("perdure.retries")) == (
        [],
        [(labels, 1)],
    )


@pytest.mark.slow
async def test_failed_turn_says_its_error(runtime: Runtime, traces: Traces) -> None:
    """For a turn with a model, and for one that never had an agent."""
    async with runtime(
        traces.worker(AGENT), model=ScriptedModel(fails(errors.LLMAuthError(SECRET)))
    ) as client:
        with pytest.raises(errors.LLMAuthError):
            await client.run("adder", "go")
        with pytest.raises(errors.UnknownAgentError):
            await client.run("nobody", "go")

    assert [(span.name, *status(span)) for span in traces.spans] == [
        ("chat adder", "ERROR", "LLM_AUTH", "LLM_AUTH"),
        ("invoke_agent adder", "ERROR", "LLM_AUTH", "LLM_AUTH"),
        ("invoke_agent nobody", "ERROR", "UNKNOWN_AGENT", "UNKNOWN_AGENT"),
    ]
    failed = {"perdure.outcome": "failed"}
    model = {
        "gen_ai.provider.name": "scripted",
        "gen_ai.agent.name": "adder",
        "gen_ai.request.model": "adder",
    }
    turns = [
        ({**model, **failed, "error.type": "LLM_AUTH"}, 1),
        ({**failed, "error.type": "UNKNOWN_AGENT"}, 1),
    ]
    assert traces.measured("perdure.turns") == turns


@pytest.mark.slow
async def test_cancelled_turn_has_its_span_too(runtime: Runtime, traces: Traces) -> None:
    """And so has the call that was cancelled with it."""
    async with runtime(
        traces.worker(AGENT), model=ScriptedModel(says("late", delay=timedelta(seconds=30)))
    ) as client:
        turn = await client.start("adder", "go")
        async for event in turn.events():
            if "step=1" in str(event.fact):
                break
        await turn.cancel("enough")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()

    assert {(span.name, *status(span)) for span in traces.spans} <= {
        ("chat adder", "ERROR", "cancelled", "cancelled"),
        ("invoke_agent adder", "ERROR", "TURN_CANCELLED", "TURN_CANCELLED"),
    }
    assert attributes(traces.named("invoke_agent adder"))["perdure.outcome"] == "cancelled"


# --- replay


@pytest.mark.accepts("O8", "O9")
async def test_replay_makes_no_span_and_counts_nothing(perdure_server: str, traces: Traces) -> None:
    """A worker without a cache replays the turn at every step, and a replayer with the same
    telemetry replays it again.
    """
    client = await Client.connect(perdure_server)
    model = ScriptedModel(calls(call("add", a=1, b=2)), calls(call("add", a=1, b=3)), says("7"))
    app = AgentWorker(AGENT, telemetry=traces.telemetry(), providers={"scripted": model})
    name = queue()
    async with Worker(
        client, task_queue=name, plugins=[PerdurePlugin(app)], max_cached_workflows=0
    ):
        turn = await RecordingClient(client, name).start("adder", "go")
        await turn.result()
    history = await client.get_workflow_handle(
        turn.id, run_id=await turn.first_run()
    ).fetch_history()
    interceptor = traces.telemetry().interceptor(client, [])
    await Replayer(
        data_converter=chosen(), workflows=[AgentTurn], interceptors=[interceptor]
    ).replay_workflow(history)

    names = [
        "chat adder",
        "execute_tool add",
        "chat adder",
        "execute_tool add",
        "chat adder",
        "invoke_agent adder",
    ]
    assert [span.name for span in traces.spans] == names
    assert [count for _, count in traces.measured("perdure.turns")] == [1]


# --- content


async def test_spans_hold_nothing_of_what_is_said(runtime: Runtime, traces: Traces) -> None:
    """No prompt, no answer, no arguments, no results, no error messages; only names, numbers and
    classes.
    """
    await talk(runtime, AgentWorker(TALKER, telemetry=Telemetry(tracer_provider=traces.provider)))

    assert "swordfish" not in "".join(span.to_json() for span in traces.spans)


@pytest.mark.slow
async def test_what_is_said_is_in_the_spans_if_that_is_wanted(
    runtime: Runtime, traces: Traces
) -> None:
    """As JSON, in the form of the semantic conventions."""
    await talk(runtime, traces.worker(TALKER, content=True))

    first, echo, last = (attributes(traces.spans[index]) for index in (0, 1, 3))
    said = {
        key: json.loads(value)
        for key, value in last.items()
        if isinstance(value, str) and value.startswith("[")
    }
    request = {
        "type": "tool_call",
        "id": "c1",
        "name": "echo",
        "arguments": json.dumps({"text": SECRET}),
    }
    assert said["gen_ai.system_instructions"] == [{"type": "text", "content": SECRET}]
    assert said["gen_ai.output.messages"] == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": SECRET}],
            "finish_reason": "stop",
        }
    ]
    assert [message["role"] for message in said["gen_ai.input.messages"]] == [
        "user",
        "assistant",
        "tool",
    ]
    assert said["gen_ai.input.messages"][1]["parts"][0] == request
    assert said["gen_ai.input.messages"][2]["parts"][0] == {
        "type": "tool_call_response",
        "id": "c1",
        "response": SECRET,
    }
    assert json.loads(first["gen_ai.output.messages"])[0]["parts"][0] == request
    assert (echo["gen_ai.tool.call.arguments"], echo["gen_ai.tool.call.result"]) == (
        request["arguments"],
        SECRET,
    )


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
def fail(text: str) -> str:
    """Refuse."""
    raise ValueError(text)


TALKER = Agent(name="talker", instructions=SECRET, model="scripted:talker", tools=[echo, fail])


async def talk(runtime: Runtime, app: AgentWorker) -> None:
    """A turn with the secret in all of its content."""
    model = ScriptedModel(
        calls(call("echo", call_id="c1", text=SECRET), call("fail", call_id="c2", text=SECRET)),
        says(SECRET),
    )
    async with runtime(app, model=model) as client:
        await client.run("talker", SECRET)


# --- metrics


@pytest.mark.accepts("O9")
async def test_metrics_are_by_agent_and_model(runtime: Runtime, traces: Traces) -> None:
    """Tokens and durations of calls; duration, cost, steps and outcomes of turns."""
    model = ScriptedModel(
        calls(call("add", a=1, b=2), usage=USAGE), says("3", usage=USAGE), says("4", usage=USAGE)
    )
    async with runtime(traces.worker(AGENT), model=model) as client:
        await client.run("adder", "go")
        await client.run("adder", "go")

    turn = {
        "gen_ai.agent.name": "adder",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "adder",
        "perdure.outcome": "completed",
    }
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "adder",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "adder",
        "gen_ai.response.model": "scripted",
    }
    add_call = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "adder",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
    }
    assert traces.measured("gen_ai.client.token.usage") == [
        ({**chat, "gen_ai.token.type": "input"}, 30),
        ({**chat, "gen_ai.token.type": "output"}, 15),
    ]
    assert [labels for labels, _ in traces.measured("gen_ai.client.operation.duration")] == [chat]
    assert [labels for labels, _ in traces.measured("gen_ai.execute_tool.duration")] == [add_call]
    assert traces.measured("perdure.turns") == [(turn, 2)]
    assert traces.measured("perdure.turn.steps") == [(turn, 3)]
    assert traces.measured("perdure.turn.cost") == [(turn, pytest.approx(0.045))]
    assert [
        (labels, seconds > 0) for labels, seconds in traces.measured("perdure.turn.duration")
    ] == [(turn, True)]
    assert traces.measured("perdure.retries") == []


@pytest.mark.slow
async def test_metrics_need_no_spans(runtime: Runtime, traces: Traces) -> None:
    """Nor spans metrics."""
    counting = Telemetry(meter_provider=traces.telemetry().meter_provider)
    async with runtime(
        AgentWorker(AGENT, telemetry=counting), model=ScriptedModel(says("3"))
    ) as client:
        await client.run("adder", "go")
    tracing = Telemetry(tracer_provider=traces.provider)
    async with runtime(
        AgentWorker(AGENT, telemetry=tracing), model=ScriptedModel(says("3"))
    ) as client:
        await client.run("adder", "go")

    assert [count for _, count in traces.measured("perdure.turns")] == [1]
    assert traces.tree() == [("chat adder", "invoke_agent adder"), ("invoke_agent adder", None)]


@pytest.mark.accepts("O35")
async def test_latest_conventions_are_opted_into(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their metrics have the numbers of the present ones, and a failed call has no tokens."""
    usual, opted_in = Traces(), Traces()
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http, gen_ai_latest_experimental")
    latest = opted_in.worker(AGENT)
    monkeypatch.delenv("OTEL_SEMCONV_STABILITY_OPT_IN")
    for worker in (latest, usual.worker(AGENT)):
        model = ScriptedModel(
            *(calls(call("add", a=1, b=2), usage=USAGE), says("3", usage=USAGE)),
            fails(errors.LLMAuthError("no key")),
        )
        async with runtime(worker, model=model) as client:
            await client.run("adder", "go")
            with pytest.raises(errors.LLMAuthError):
                await client.run("adder", "go")

    def total(name: str) -> float:
        return float(sum(count for _, count in opted_in.measured(name)))

    def of_tokens(kind: str) -> float:
        measured = opted_in.measured("gen_ai.client.token.usage")
        return float(
            sum(count for labels, count in measured if labels["gen_ai.token.type"] == kind)
        )

    usage, per_call = "gen_ai.client.inference.usage", "gen_ai.client.inference.operation"
    assert total(f"{usage}.input_tokens") == of_tokens("input") > 0
    assert total(f"{usage}.output_tokens") == of_tokens("output") > 0
    assert total(f"{per_call}.input_tokens") == of_tokens("input")
    assert total("gen_ai.invoke_agent.inference_calls") == 3
    assert total("gen_ai.invoke_agent.tool_calls") == 1
    assert total("gen_ai.client.inference.duration") > 0
    assert [
        labels["gen_ai.token.modality"] for labels, _ in opted_in.measured(f"{usage}.input_tokens")
    ] == ["unknown"] * 2
    renamed = "gen_ai.usage.cache_write.input_tokens"
    assert sum(renamed in (span.attributes or {}) for span in opted_in.spans) == 2
    assert not any(renamed in (span.attributes or {}) for span in usual.spans)
    assert usual.measured("gen_ai.invoke_agent.duration") == []
    assert usual.measured("gen_ai.client.token.usage") != []


# --- sampling


@pytest.mark.slow
async def test_trace_is_sampled_whole_or_not_at_all(runtime: Runtime) -> None:
    """The sampler reads only the trace id, so every process decides in the same way, and a turn has
    all of its spans or none.
    """
    traces = Traces(ParentBased(TraceIdRatioBased(0.5)))
    model = ScriptedModel(
        *[reply for _ in range(8) for reply in (calls(call("add", a=1, b=2)), says("3"))]
    )
    async with runtime(traces.worker(AGENT), model=model) as client:
        for number in range(8):
            await client.run("adder", "go", id=f"{queue()}-{number}")

    whole = ["chat adder", "execute_tool add", "chat adder", "invoke_agent adder"]
    by_trace = [
        [span.name for span in traces.spans if ids(span).trace_id == found]
        for found in trace_ids(traces.spans)
    ]
    assert all(names == whole for names in by_trace)
    assert [count for _, count in traces.measured("perdure.turns")] == [8]


async def test_caller_that_is_not_sampled_has_no_spans_of_its_turns(
    runtime: Runtime, traces: Traces
) -> None:
    """The caller's decision applies to the whole trace."""
    off = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    async with runtime(traces.worker(AGENT), model=ScriptedModel(says("3"))) as client:
        with off.get_tracer("caller").start_as_current_span("caller"):
            turn = await client.start("adder", "go")
        await turn.result()

    assert traces.spans == ()


# --- telemetry changes nothing


@pytest.mark.slow
async def test_worker_without_telemetry_never_imports_opentelemetry(perdure_server: str) -> None:
    """A complete turn, in a fresh process."""
    code = (
        "import asyncio, sys\nfrom perdure import Agent\nfrom perdure.testing import ScriptedModel,"
        " local_runtime, says\nasync def main():\n    agent = Agent(name='adder',"
        " model='scripted:adder')\n    async with local_runtime(agent,"
        " model=ScriptedModel(says('3')), address=sys.argv[1]) as client:\n        print((await"
        " client.run('adder', 'go')).output, 'opentelemetry' in sys.modules, flush=True)\n       "
        " __import__('os')._exit(0)\nasyncio.run(main())\n"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, perdure_server],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.stdout.split() == ["3", "False"], done.stderr


class Raising(SpanExporter):
    """A collector that fails."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("no route to host")


class Hanging(SpanExporter):
    """A collector that does not answer until the test is over."""

    def __init__(self) -> None:
        self.asked, self.over = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.over.wait(60)
        return SpanExportResult.FAILURE


class Broken(SpanProcessor):
    """A processor with a bug."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("bug")

    def on_end(self, span: Any) -> None:
        raise RuntimeError("bug")


def to(processor: SpanProcessor) -> TracerProvider:
    """A provider that sends its spans to this processor."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


async def run_as_ever(runtime: Runtime, telemetry: Telemetry) -> AgentReport:
    """A turn with the same end as without telemetry."""
    model = ScriptedModel(calls(call("add", a=1, b=2)), says("3"))
    async with runtime(AgentWorker(AGENT, telemetry=telemetry), model=model) as client:
        report = await client.run("adder", "go")
    assert (report.outcome, report.output, report.model_calls, report.tool_calls) == (
        Outcome.COMPLETED,
        "3",
        2,
        1,
    )
    return report


@pytest.mark.slow
async def test_collector_that_never_answers_changes_nothing(runtime: Runtime) -> None:
    """The spans stay in the queue, and nothing waits for them."""
    collector = Hanging()
    provider = to(BatchSpanProcessor(collector, schedule_delay_millis=10))
    try:
        report = await run_as_ever(runtime, Telemetry(tracer_provider=provider))

        assert collector.asked.is_set()
        assert report.duration < timedelta(seconds=10)
    finally:
        collector.over.set()
        provider.shutdown()


@pytest.mark.slow
async def test_collector_that_fails_changes_nothing(runtime: Runtime) -> None:
    """The SDK logs it."""
    await run_as_ever(runtime, Telemetry(tracer_provider=to(SimpleSpanProcessor(Raising()))))


@pytest.mark.slow
async def test_broken_telemetry_changes_nothing(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, for each span."""
    await run_as_ever(runtime, Telemetry(tracer_provider=to(Broken())))

    assert {record.message for record in caplog.records if record.name == "perdure"} == {
        "telemetry failed; the turn goes on"
    }


# --- environment variables


@contextlib.contextmanager
def collector() -> Iterator[tuple[str, list[str]]]:
    """An OTLP endpoint over HTTP, and the paths of the requests it received."""
    posted: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            posted.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """No log."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def closed_port() -> str:
    """An endpoint that refuses connections."""
    return f"http://127.0.0.1:{free_port()}"


needs_exporter = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry.exporter") is None,
    reason="perdure[otlp] is not installed: no exporter to test with",
)


@pytest.mark.slow
@needs_exporter
async def test_environment_is_enough_to_export(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an endpoint in the environment, spans and metrics are sent, including the rest when the
    worker stops.
    """
    with collector() as (endpoint, posted):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        async with otlp.from_environment() as telemetry:
            assert telemetry is not None
            await run_as_ever(runtime, telemetry)

        assert set(posted) == {"/v1/traces", "/v1/metrics"}


@needs_exporter
@pytest.mark.slow
async def test_worker_on_the_command_line_exports_by_its_environment(perdure_server: str) -> None:
    """The rest is sent when the worker has drained after SIGTERM."""
    with collector() as (endpoint, posted):
        outcome, _ = await run_in_a_process(perdure_server, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)

        assert (outcome, set(posted)) == ("completed", {"/v1/traces", "/v1/metrics"})


@pytest.mark.slow
async def test_worker_on_the_command_line_runs_without_an_exporter(perdure_server: str) -> None:
    """It names what is missing, and works."""
    outcome, said = await run_in_a_process(
        perdure_server,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
    )

    assert outcome == "completed"
    assert "no spans and metrics: the environment enables OTLP, but No module named" in said
    assert "install perdure[otlp]" in said


@pytest.mark.slow
@needs_exporter
async def test_unreachable_collector_changes_nothing(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, closed_port: str
) -> None:
    """Nothing listens there: the turn ends as usual, and the worker waits five seconds at most when
    it stops.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", closed_port)
    loop = asyncio.get_running_loop()
    async with otlp.from_environment() as telemetry:
        assert telemetry is not None
        report = await run_as_ever(runtime, telemetry)
        stopped = loop.time()

    assert report.duration < timedelta(seconds=10)
    assert loop.time() - stopped < 7


async def test_missing_exporter_is_said_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker runs without telemetry; the log names the extra, or the unknown protocol."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    found = []
    for protocol in ("grpc", "http/json"):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        async with otlp.from_environment() as telemetry:
            found.append(telemetry)

    assert found == [None, None]
    assert "perdure[otlp]" in caplog.messages[0]
    assert "'http/json' is not one of grpc, http/protobuf" in caplog.messages[1]
