"""MCP servers and the rest of a worker: the dynamic activity, agents of factories, delegates,
policies, spans, and parallel calls.
"""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure import Agent, Deny, MCPServer, ProposedCall, Registry, TurnInfo, errors
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker, PerdurePlugin
from perdure.worker.telemetry import Telemetry

from ...conftest import Run, Runtime
from ...support.mcp.processes import pids

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

RAW = str(Path(__file__).parents[2] / "support/mcp/raw_server.py")


def notes(folder: Path, **options: Any) -> MCPServer:
    """The hand-written server."""
    return MCPServer.stdio("notes", [sys.executable, "-S", RAW, str(folder)], **options)


@activity.defn(dynamic=True)
async def anything(args: Sequence[RawValue]) -> str:
    """A user's dynamic activity."""
    return f"{len(args)}"


@workflow.defn
class Ask:
    """A user's workflow whose activity is not deployed yet."""

    @workflow.run
    async def run(self, name: str) -> str:
        once = RetryPolicy(maximum_attempts=1)
        return str(
            await workflow.execute_activity(
                name, start_to_close_timeout=timedelta(seconds=10), retry_policy=once
            )
        )


@pytest.mark.slow
async def test_worker_with_a_dynamic_activity_of_its_own_is_refused(
    perdure_server: str, tmp_path: Path
) -> None:
    """There can be only one; agents without MCP servers do not need Perdure's."""
    client = await Client.connect(perdure_server)
    with_servers = AgentWorker(
        Agent(name="a", model="offline:librarian", toolboxes=[notes(tmp_path)])
    )
    without = AgentWorker(Agent(name="a", model="offline:librarian"))

    with pytest.raises(
        errors.ConfigurationError,
        match=(
            "which is already 'anything'; run the agents with MCP servers in a worker of their own"
        ),
    ):
        Worker(client, task_queue="q", activities=[anything], plugins=[PerdurePlugin(with_servers)])
    Worker(client, task_queue="q", activities=[anything], plugins=[PerdurePlugin(without)])


@pytest.mark.parametrize("name", ["ship", "notes__echo"])
async def test_activity_of_other_people_that_is_not_deployed_is_not_swallowed(
    perdure_server: str, tmp_path: Path, name: str
) -> None:
    """It fails as it would without Perdure, so a worker that has it may run the next attempt."""
    client, queue = await Client.connect(perdure_server), f"mcp-{secrets.token_hex(4)}"
    app = AgentWorker(Agent(name="a", model="offline:librarian", toolboxes=[notes(tmp_path)]))

    async with Worker(
        client,
        task_queue=queue,
        workflows=[Ask],
        plugins=[PerdurePlugin(app)],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        with pytest.raises(WorkflowFailureError) as raised:
            await client.execute_workflow(
                Ask.run, name, id=f"ask-{secrets.token_hex(4)}", task_queue=queue
            )

    assert isinstance(raised.value.cause, ActivityError)
    assert isinstance(raised.value.cause.cause, ApplicationError)
    assert (raised.value.cause.cause.type, raised.value.cause.cause.non_retryable) == (
        "NotFoundError",
        False,
    )


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_agent_that_a_factory_makes_has_its_servers_too(
    runtime: Runtime, tmp_path: Path
) -> None:
    """No activity was registered for its tools, so the dynamic one runs them."""

    def clerk(info: TurnInfo) -> Agent[Any]:
        return Agent(name="clerk", model="scripted:x", toolboxes=[notes(tmp_path)])

    async with runtime(
        Registry([clerk]),
        model=ScriptedModel(calls(call("notes__echo", text="hello")), says("done")),
    ) as client:
        turn = await client.start("clerk", "go")
        report = await turn.result()
        history = (await client.history(turn)).to_json()

    assert [result.content for result in report.steps[0].results] == ["hello"]
    assert "perdure.call_tool" in history


@pytest.mark.slow
async def test_delegate_inherits_the_tools_of_a_server(runtime: Runtime, tmp_path: Path) -> None:
    """The child's turn pins them separately, and both use one process."""
    writer = Agent(name="writer", model="scripted:writer")
    boss = Agent(
        name="boss", model="scripted:boss", toolboxes=[notes(tmp_path)], delegates=["writer"]
    )
    models = {
        "boss": ScriptedModel(
            calls(call("delegate_to_agent", agent="writer", task="write")), says("done")
        ),
        "writer": ScriptedModel(calls(call("notes__echo", text="inherited")), says("written")),
    }

    async with runtime(Registry([boss, writer]), model=models) as client:
        report = await client.run("boss", "go")

    assert report.output == "done"
    assert models["writer"].requests[1].messages[-1].results[0].content == "inherited"  # type: ignore[union-attr]
    assert len(pids(tmp_path)) == 1


@pytest.mark.slow
async def test_policy_is_asked_about_a_tool_of_a_server(run: Run, tmp_path: Path) -> None:
    """With the name that the model uses; a hint of the server makes no tool read-only."""
    asked: list[ProposedCall] = []

    def policy(proposed: ProposedCall) -> Deny:
        asked.append(proposed)
        return Deny(reason="not today")

    report = await run(
        ScriptedModel(calls(call("notes__echo", text="a")), says("done")),
        toolboxes=[notes(tmp_path)],
        policy=policy,
    )

    assert [(item.tool, item.read_only) for item in asked] == [("notes__echo", False)]
    assert "not today" in report.steps[0].results[0].content


@pytest.mark.slow
async def test_turns_of_ten_agents_share_one_process(runtime: Runtime, tmp_path: Path) -> None:
    """The first one opens the connection; each gets the results of its own calls."""
    agents = [
        Agent(name=f"a{n}", model="scripted:x", toolboxes=[notes(tmp_path)], parallel_tools=True)
        for n in range(10)
    ]
    models = {
        agent.name: ScriptedModel(
            calls(*(call("notes__echo", text=f"{agent.name}-{n}") for n in range(5))), says("done")
        )
        for agent in agents
    }

    async with runtime(Registry(agents), model=models) as client:
        reports = await asyncio.gather(*(client.run(agent, "go") for agent in agents))

    said = [[result.content for result in report.steps[0].results] for report in reports]
    assert said == [[f"{agent.name}-{n}" for n in range(5)] for agent in agents]
    assert len(pids(tmp_path)) == 1


@pytest.mark.slow
async def test_call_has_a_span(runtime: Runtime, tmp_path: Path) -> None:
    """Even though the activity's name is not known in advance."""
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    agent = Agent(name="clerk", model="scripted:x", toolboxes=[notes(tmp_path)])

    async with runtime(
        AgentWorker(agent, telemetry=Telemetry(tracer_provider=provider)),
        model=ScriptedModel(calls(call("notes__echo", text="a")), says("done")),
    ) as client:
        await client.run(agent, "go")

    assert "execute_tool notes__echo" in [span.name for span in spans.get_finished_spans()]


@pytest.mark.slow
def test_missing_package_is_named() -> None:
    """Before anything is started, with the extra to install."""
    code = (
        "import sys; sys.modules['mcp'] = None\n"
        "from perdure.activities.mcp.toolboxes import Servers\n"
        "try: Servers()._opened()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert (
        done.stdout
        == "ConfigurationError MCP servers need the package mcp: pip install 'perdure[mcp]'\n"
    )
