"""Telemetry of a tree of agents: one trace, metrics that count nothing twice, and labels
everywhere.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from perdure import Agent, ToolContext, errors, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, local_runtime, says
from perdure.worker import AgentWorker
from perdure.worker.dev.server import DevServer

from ...conftest import Runtime, check_history
from ...support.delegating import PRICED, delegate, editor, researcher, spawn, used, writer
from ...support.listing import eventually_listed
from ...support.telemetry import Traces, attributes, ids, status, trace_ids

TURNS = {name: f"invoke_agent {name}" for name in ("editor", "researcher", "writer")}


@tool(read_only=True)
def look() -> str:
    """Look somewhere."""
    return "seen"


def three_levels(traces: Traces, **fields: Any) -> AgentWorker:
    """An editor delegates to a researcher, which delegates to a writer, which has a tool."""
    agents = [
        editor(delegates=["researcher"], **fields),
        researcher(delegates=["writer"]),
        writer(tools=[look]),
    ]
    return AgentWorker(agents, telemetry=traces.telemetry(), prices=PRICED)


def play(times: int = 1) -> ByTask:
    """The answers of each, with their usage."""
    go = [delegate("researcher", "find", usage=used(100)), says("done", usage=used(100))]
    find = [delegate("writer", "write", usage=used(200)), says("found", usage=used(200))]
    write = [calls(call("look"), usage=used(300)), says("text", usage=used(300))]
    return ByTask(
        {
            task: ScriptedModel(*replies * times)
            for task, replies in (("go", go), ("find", find), ("write", write))
        }
    )


@pytest.fixture
def traces() -> Traces:
    """Exported spans and metrics."""
    return Traces()


# --- one trace


@pytest.mark.slow
@pytest.mark.accepts("O8")
async def test_tree_is_one_trace_in_which_each_turn_is_below_the_one_that_delegated(
    runtime: Runtime, traces: Traces
) -> None:
    """Three levels: the spans of calls are below their own turn, and a turn is below its parent;
    the replay adds none.
    """
    async with runtime(three_levels(traces), model=play()) as client:
        await client.run("editor", "go", id="traced-tree")

    assert traces.tree() == [
        ("chat editor", TURNS["editor"]),
        ("chat researcher", TURNS["researcher"]),
        ("chat writer", TURNS["writer"]),
        ("execute_tool look", TURNS["writer"]),
        ("chat writer", TURNS["writer"]),
        (TURNS["writer"], TURNS["researcher"]),
        ("chat researcher", TURNS["researcher"]),
        (TURNS["researcher"], TURNS["editor"]),
        ("chat editor", TURNS["editor"]),
        (TURNS["editor"], None),
    ]
    assert len(trace_ids(traces.spans)) == 1
    turns = [attributes(traces.named(name)) for name in TURNS.values()]
    assert [turn["gen_ai.conversation.id"] for turn in turns] == [
        "traced-tree",
        "traced-tree/researcher-1",
        "traced-tree/researcher-1/writer-1",
    ]
    assert [turn["perdure.cost_usd"] for turn in turns] == [
        pytest.approx(1.2),
        pytest.approx(1.0),
        pytest.approx(0.6),
    ]


@pytest.mark.slow
@pytest.mark.accepts("O8")
async def test_tree_goes_on_in_the_trace_of_the_caller(runtime: Runtime, traces: Traces) -> None:
    """At every depth."""
    tracer = trace.get_tracer("caller", tracer_provider=traces.provider)
    async with runtime(three_levels(traces), model=play()) as client:
        with tracer.start_as_current_span("POST /ask"):
            turn = await client.start("editor", "go")
        await turn.result()

    found = dict(traces.tree())
    assert {name: found[name] for name in TURNS.values()} == {
        TURNS["editor"]: "POST /ask",
        TURNS["researcher"]: TURNS["editor"],
        TURNS["writer"]: TURNS["researcher"],
    }
    assert len(trace_ids(traces.spans)) == 1


@pytest.mark.slow
@pytest.mark.accepts("O8")
async def test_tree_of_a_caller_that_is_not_sampled_has_no_span(runtime: Runtime) -> None:
    """There is one decision for the whole tree; the other tree is sampled."""
    traces = Traces(ParentBased(ALWAYS_OFF))
    parent = trace.SpanContext(
        1, 2, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
    )
    async with runtime(three_levels(traces), model=play(2)) as client:
        await client.run("editor", "go")
        unsampled = traces.spans
        with trace.use_span(trace.NonRecordingSpan(parent)):
            turn = await client.start("editor", "go")
        await turn.result()

    assert unsampled == ()
    assert (len(traces.spans), trace_ids(traces.spans)) == (10, {1})


@pytest.mark.slow
@pytest.mark.accepts("O8")
async def test_spawned_agents_are_side_by_side_and_each_says_how_it_ended(
    runtime: Runtime, traces: Traces
) -> None:
    """Two of the same agent, of which one fails and the other one is therefore cancelled, below the
    turn that spawned them.
    """
    script = {
        "go": ScriptedModel(spawn(("writer", "slow"), ("writer", "broken")), says("done")),
        "slow": ScriptedModel(calls(call("look")), says("text", delay=timedelta(seconds=60))),
        "broken": ScriptedModel(fails(errors.LLMAuthError("no key"), delay=timedelta(seconds=1))),
    }
    agents = [editor(delegates=["writer"]), writer(tools=[look])]
    async with runtime(
        AgentWorker(agents, telemetry=traces.telemetry(), prices=PRICED), model=ByTask(script)
    ) as client:
        await client.run("editor", "go", id="traced-batch")

    root = ids(traces.named(TURNS["editor"]))
    turns = [span for span in traces.spans if span.name == TURNS["writer"]]
    assert {span.parent.span_id for span in turns if span.parent} == {root.span_id}
    assert {attributes(span)["gen_ai.conversation.id"]: status(span) for span in turns} == {
        "traced-batch/writer-1": ("ERROR", "TURN_CANCELLED", "TURN_CANCELLED"),
        "traced-batch/writer-2": ("ERROR", "LLM_AUTH", "LLM_AUTH"),
    }
    assert len(trace_ids(traces.spans)) == 1


@pytest.mark.slow
@pytest.mark.accepts("O8")
async def test_inherited_tool_has_its_span_in_the_turn_that_called_it(
    runtime: Runtime, traces: Traces
) -> None:
    """It is counted for its owner, whose code runs."""
    script = {
        "go": ScriptedModel(delegate("writer", "write"), says("done")),
        "write": ScriptedModel(calls(call("look")), says("text")),
    }
    agents = [editor(delegates=["writer"], tools=[look]), writer()]
    async with runtime(
        AgentWorker(agents, telemetry=traces.telemetry(), prices=PRICED), model=ByTask(script)
    ) as client:
        await client.run("editor", "go", id="traced-inherited")

    ran = attributes(traces.named("execute_tool look"))
    assert ("execute_tool look", TURNS["writer"]) in traces.tree()
    assert (ran["gen_ai.conversation.id"], ran["gen_ai.agent.name"]) == (
        "traced-inherited/writer-1",
        "editor",
    )


# --- metrics


@pytest.mark.slow
@pytest.mark.accepts("O9")
async def test_metrics_of_a_tree_count_each_agent_by_itself(
    runtime: Runtime, traces: Traces
) -> None:
    """Turns, steps, tokens and money of each; their sum is the cost of the whole tree."""
    async with runtime(three_levels(traces), model=play()) as client:
        report = await client.run("editor", "go")

    def by_agent(metric: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for labels, value in traces.measured(metric):
            found[labels["gen_ai.agent.name"]] = found.get(labels["gen_ai.agent.name"], 0) + value
        return found

    assert by_agent("perdure.turns") == {"editor": 1, "researcher": 1, "writer": 1}
    assert by_agent("perdure.turn.steps") == {"editor": 2, "researcher": 2, "writer": 2}
    assert by_agent("gen_ai.client.token.usage") == {
        "editor": 200,
        "researcher": 400,
        "writer": 600,
    }
    costs = by_agent("perdure.turn.cost")
    assert costs == {
        "editor": pytest.approx(0.2),
        "researcher": pytest.approx(0.4),
        "writer": pytest.approx(0.6),
    }
    assert sum(costs.values()) == pytest.approx(float(report.cost or 0))


# --- labels


@pytest.mark.accepts("E11")
async def test_labels_are_on_all_of_a_tree(
    runtime: Runtime, traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    """On the records and the span of each turn, in the context of its tools and in the list, at
    every depth.
    """
    caplog.set_level(logging.INFO, "perdure")
    seen: list[dict[str, str]] = []

    @tool(name="look")
    def remembers(ctx: ToolContext[Any]) -> str:
        """Look at the labels."""
        seen.append(dict(ctx.labels))
        return "seen"

    labels = {"team": "blue", "test": secrets.token_hex(4)}
    app = three_levels(traces)
    agents = [
        replace(agent, tools=[remembers]) if agent.name == "writer" else agent
        for agent in _agents(app)
    ]
    async with runtime(replace(app, agents=agents), model=play()) as client:
        root = f"labelled-{labels['test']}"
        await client.run("editor", "go", id=root, labels=labels)
        tree = [root, f"{root}/researcher-1", f"{root}/researcher-1/writer-1"]
        await eventually_listed(client, tree, labels=labels)
        await eventually_listed(
            client, tree[1:2], labels=labels, agent="researcher", state="ended", outcome="completed"
        )
        await eventually_listed(client, [], labels={**labels, "team": "red"})

    assert seen == [labels]
    marks = {f"label.{name}": value for name, value in labels.items()}
    records = [dict(record.perdure) for record in caplog.records if record.name == "perdure.turns"]  # type: ignore[attr-defined]
    assert {record["task"] for record in records} == set(tree)
    assert all(marks.items() <= record.items() for record in records)
    spans = [attributes(traces.named(name)) for name in TURNS.values()]
    assert [
        {f"perdure.{name}": value for name, value in marks.items()}.items() <= span.items()
        for span in spans
    ] == [True] * 3


def _agents(app: AgentWorker) -> list[Agent]:
    entries = [app.registry.entry(name) for name in app.registry.list()]
    return [entry for entry in entries if isinstance(entry, Agent)]


async def test_list_finds_the_turns_that_a_turn_delegated_to(
    runtime: Runtime, traces: Traces
) -> None:
    """Its own children, not those further down."""
    root = f"parent-{secrets.token_hex(4)}"
    async with runtime(three_levels(traces), model=play()) as client:
        await client.run("editor", "go", id=root)
        await eventually_listed(client, [f"{root}/researcher-1"], parent=root, state="ended")
        await eventually_listed(
            client, [f"{root}/researcher-1/writer-1"], parent=f"{root}/researcher-1"
        )
        [child] = [entry async for entry in client.turns(parent=root)]

    assert (child.agent, child.task, child.parent) == ("researcher", "find", root)


@pytest.mark.slow
async def test_tree_runs_in_a_namespace_without_search_attributes(traces: Traces) -> None:
    """No child is started with attributes that the server would refuse."""
    async with (
        DevServer(folder=None, port=0, ui=False, search_attributes={}) as server,
        local_runtime(three_levels(traces), model=play(), address=server.address.address) as client,
    ):
        report = await client.run("editor", "go", labels={"team": "blue"})
        await check_history(client.temporal, report.turn_id, None)

    assert (report.output, len(trace_ids(traces.spans))) == ("done", 1)
