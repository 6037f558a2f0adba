"""Problems of a worker's configuration that can be detected without running anything."""

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, MCPServer, Tool, ToolContext, tool
from perdure.activities.providers import OpenAIChat
from perdure.values.tasks import TurnInfo
from perdure.worker import AgentWorker
from perdure.worker.setup_checks import Finding, found


@tool
def refund(order, amount: int):  # type: ignore[no-untyped-def]
    """Pay money back."""


@tool
def look(ctx: ToolContext[Any], order: str):  # type: ignore[no-untyped-def]
    return ctx.deps[order]


@tool
def fine(ctx: ToolContext[Any], order: str) -> str:
    """Say which attempt this is."""
    return f"{order} {ctx.attempt}"


def described(order, /) -> str:  # type: ignore[no-untyped-def]
    """Take the arguments of a schema."""
    return str(order)


STATED = Tool.from_schema(
    described,
    name="stated",
    description="Look.",
    parameters={"type": "object", "properties": {"order": {"type": "string"}}},
)


def writer(info: TurnInfo) -> Agent:
    """Write."""
    return Agent(name="writer", model="main")


@asynccontextmanager
async def lifespan() -> Any:
    """Give nothing."""
    yield {}


def problems(app: AgentWorker) -> list[str]:
    """The suggested fixes."""
    return [f"{finding.state} {finding}" for finding in found(app) if finding.is_problem]


@pytest.mark.accepts("O24")
def test_every_part_that_cannot_work_is_found_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Even if two agents have it."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    servers = [
        MCPServer.stdio("docs", ["no-such-program"], env=["NO_SUCH_VARIABLE"]),
        MCPServer.stdio("here", ["./no-such-program"], cwd=str(tmp_path)),
        MCPServer.stdio("shell", ["sh"]),
    ]
    agents = [
        Agent(
            name=name,
            model="main",
            tools=[refund, look, fine, STATED],
            toolboxes=servers,
            skills=[tmp_path / "nowhere"],
        )
        for name in ("one", "two")
    ]
    app = AgentWorker([*agents, writer], models={"main": "openai:gpt-5-mini"})
    wrong = AgentWorker([Agent(name="lost", model="main")])

    assert problems(app) == [
        (
            "failed model openai:gpt-5-mini: the environment variable OPENAI_API_KEY is not set;"
            " the worker needs it"
        ),
        (
            "warning tool refund: its parameter order has no annotation, so a model may send any"
            " JSON for it"
        ),
        "warning tool look: it has no docstring, so a model knows only its name",
        "warning tool look: it uses ctx.deps, which is None, because this worker has no lifespan",
        (
            "failed MCP server docs: the environment variable NO_SUCH_VARIABLE is not set; the"
            " server needs it"
        ),
        "failed MCP server docs: there is no program 'no-such-program' on the PATH of this worker",
        "failed MCP server here: there is no program './no-such-program'",
        f"failed skills {tmp_path / 'nowhere'}: there is no folder {tmp_path / 'nowhere'}",
    ]
    assert Finding("agent writer", "skipped", "created by a factory for each turn") in set(
        found(app)
    )
    assert problems(wrong) == [
        (
            "failed agent lost: model 'main' has no provider before a colon and is not an alias"
            " of this worker (aliases: none)"
        )
    ]


@pytest.mark.accepts("D52")
def test_delegates_and_handoffs_of_unknown_agents_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With both names; an agent of a factory is known."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    agents = [
        Agent(name="one", model="openai:m", handoffs=["nobody", "writer"]),
        Agent(name="two", model="openai:m", delegates=["nobody"]),
        Agent(name="three", model="openai:m", handoffs=["writer"], delegates=["one"]),
    ]

    assert problems(AgentWorker([*agents, writer])) == [
        (
            "failed agent one: agent one hands over to 'nobody', which this worker does not know;"
            " it knows one, three, two, writer"
        ),
        (
            "failed agent two: agent two delegates to 'nobody', which this worker does not know;"
            " it knows one, three, two, writer"
        ),
    ]


def test_worker_that_is_set_up_has_no_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configured key is enough; an invalid base URL is not."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    app = AgentWorker(
        Agent(name="one", model="openai:m", tools=[look.renamed("look_up"), fine]),
        lifespan=lifespan,
    )
    elsewhere = AgentWorker(
        Agent(name="one", model="own:m"),
        providers={"own": OpenAIChat(base_url="nowhere", name="own")},
    )

    assert problems(app) == [
        "warning tool look_up: it has no docstring, so a model knows only its name"
    ]
    assert problems(elsewhere) == [
        "failed model own:m: own: the base URL is not a valid http or https address"
    ]
