"""Calls of the public API as users write them. This file is type-checked and never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type

from pydantic import BaseModel
from temporalio.client import Client
from temporalio.worker import Worker

from perdure import (
    Agent,
    AgentReport,
    AssistantMessage,
    Context,
    Handoff,
    MCPServer,
    Media,
    Message,
    MessagesTypeAdapter,
    Outcome,
    Registry,
    Step,
    Task,
    Text,
    Thinking,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolMessage,
    ToolResult,
    TurnInfo,
    Usage,
    UserMessage,
    errors,
    tool,
)
from perdure.activities.provider import ModelRequest, Provider
from perdure.activities.providers import OpenAIChat, PydanticAI, connect
from perdure.clients import (
    AgentClient,
    Batch,
    BatchEntry,
    Entry,
    Event,
    Handle,
    Schedule,
    ScheduleEntry,
    ScheduleStatus,
    Sent,
    Session,
    SessionEntry,
    State,
    Status,
    TextBegins,
    TextVoid,
    Turn,
    TurnEntry,
)
from perdure.testing import Runtime, ScriptedModel, call, calls, fails, local_runtime, says
from perdure.turn.facts import ModelAnswered, ToolReturned, TurnEnded
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker, PerdurePlugin
from perdure.workflows import run_turn


@dataclass
class Deps:
    """What the tools of these agents need."""

    pages: dict[str, str]


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(timeout=timedelta(seconds=20), read_only=True)
async def search(ctx: ToolContext[Deps], query: str, limit: int = 5) -> list[str]:
    """Find pages."""
    ctx.heartbeat("looking", {"query": query})
    assert_type(ctx.deps, Deps)
    assert_type(ctx.secret("SEARCH_KEY"), str)
    assert_type(ctx.idempotency_key, str)
    return [name for name in ctx.deps.pages if query in name][:limit]


def plain(name: str) -> str:
    """A function without a decorator."""
    return name


class Desk:
    """A thing with a tool."""

    @tool(name="ask_desk", idempotent=True)
    def ask(self, question: str) -> str:
        """Ask the desk."""
        return question


assert_type(add(1, b=2), int)
assert_type(add.name, str)
unknown_option = tool(read_onli=True)  # type: ignore[call-overload]
wrong_option = Tool(plain, timeout=20)  # type: ignore[arg-type]
stated = Tool.from_schema(plain, name="plain", description="Plain.", parameters={}, idempotent=True)
assert_type(stated(), str)
MCPServer.stdio("time", ["mcp-server-time"], env=["TZ"], trusted=True, digest=None)
MCPServer.http("docs", "https://example.com/mcp", timeout=20)  # type: ignore[arg-type]
MCPServer.http("docs", "https://example.com/mcp", env=["TZ"])  # type: ignore[call-arg]
unknown_argument = add(1, c=2)  # type: ignore[call-arg]
wrong_type = add("1")  # type: ignore[arg-type]

researcher = Agent(
    name="researcher",
    description="Finds facts",
    instructions="Answer from the pages.",
    model="openai:gpt-5-mini",
    tools=[search, plain, Desk().ask],
    toolboxes=[Toolbox("sums", [add])],
    max_iterations="unlimited",
)
assert_type(researcher.tools, tuple[Tool, ...])
assert_type(researcher.max_depth, int)
from_a_generator = Agent(
    name="researcher", model="openai:gpt-5-mini", tools=(item for item in [search])
)
wrong_tool = Agent(name="researcher", model="openai:gpt-5-mini", tools=[5])  # type: ignore[list-item]
without_model = Agent(name="nobody")  # type: ignore[call-arg]
handing_over = Agent(name="desk", model="main", handoffs=["legal", Handoff("billing", keep="last")])
wrong_keep = Handoff("billing", keep="some")  # type: ignore[arg-type]
by_position = Agent("researcher", "openai:gpt-5-mini")  # type: ignore[call-arg]


def made_for(info: TurnInfo) -> Agent:
    """An agent for each turn."""
    return Agent(
        name=info.agent, model="main", instructions=f"Help {info.labels.get('customer', 'them')}."
    )


registry = Registry([researcher, made_for])
registry.add(made_for, replace=True)
assert_type(registry.list(), tuple[str, ...])


@asynccontextmanager
async def lifespan() -> AsyncIterator[Deps]:
    """Open what the tools need."""
    yield Deps(pages={})


class Echo:
    """A provider of one's own."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Say the last message again."""
        raise errors.LLMUnavailableError(f"{request.model} is away")

    async def close(self) -> None:
        """Nothing to close."""


echo: Provider = Echo()
app = AgentWorker(
    registry,
    lifespan=lifespan,
    task_queue="research",
    models={"main": "vllm:qwen3"},
    providers={
        "vllm": OpenAIChat(base_url="http://127.0.0.1:8000/v1", api_key_env="VLLM_KEY"),
        "echo": echo,
        "gemini": PydanticAI("google"),
    },
)
AgentWorker(researcher)
AgentWorker([researcher, made_for])


async def backend() -> None:
    """What a backend does."""
    client = await AgentClient.connect("localhost:7233", namespace="default", task_queue="research")
    turn = await client.start(
        researcher,
        Task(
            content=(Text(text="What is this?"), Media(media_type="image/png", data="aGVsbG8=")),
            type="question",
        ),
        id="ticket-4711",
        context={"memory": "They like it short."},
        labels={"customer": "4711"},
        if_exists="restart",
    )
    assert_type(turn, Turn)
    assert_type(client.turn("ticket-4711"), Turn[Any])
    await client.start("researcher", "Why?", if_exists="maybe")  # type: ignore[arg-type]
    await client.run("researcher", "Why?", if_exists="maybe")  # type: ignore[arg-type]
    await client.start("researcher", "Why?", budget="0.50")  # type: ignore[arg-type]
    await client.run("researcher", "Why?", max_iterations="few")  # type: ignore[arg-type]
    await client.run("researcher", "Why?", bugdet=None)  # type: ignore[call-arg]
    await run_turn("researcher", "Why?", live=True)  # type: ignore[call-arg]
    daily = await client.create_schedule(
        "daily", researcher, "Why?", cron="0 7 * * *", timezone="UTC", max_iterations=3
    )
    assert_type(daily, Schedule)
    await client.create_schedule("daily", researcher, "Why?", cron="0 7 * * *")  # type: ignore[call-arg]
    await daily.change(if_running="maybe")  # type: ignore[arg-type]
    await daily.change(task="Why not?", jitter=None, crom="0 7 * * *")  # type: ignore[call-arg]
    assert_type(await daily.status(), ScheduleStatus)
    shared: dict[str, Any] = {"labels": {"customer": "4711"}}
    await client.run(researcher, "Why?", max_iterations=5, **shared)
    assert_type((await client.run("researcher", "Why?", output=Deps, priority=1)).output, Deps)
    await client.start("researcher", "Why?", delay=timedelta(hours=2), deadline=datetime.now(UTC))
    await client.run("researcher", "Why?", fairness="tenant-7", weight=2)
    await client.start("researcher", "Why?", deadline="tomorrow")  # type: ignore[arg-type]
    await run_turn("researcher", "Why?", deadline=timedelta(hours=2), fairness="tenant-7")
    await client.turn("ticket-4711").add_budget(iterations=10)
    batch = await client.start_batch(
        "nightly", researcher, ["Why?", Task(content="How?")], at_once=2
    )
    assert_type(batch, Batch[str])
    assert_type([one.output async for one in batch.results()], list[str | None])
    assert_type(client.batch("nightly"), Batch[Any])
    await client.start_batch("nightly", "researcher", [3])  # type: ignore[list-item]
    cursor: str | None = None
    async for event in turn.events(after=cursor):
        assert_type(event, Event)
        cursor = event.cursor
        match event.fact:
            case ModelAnswered(key, answer):
                assert_type(answer, ModelAnswer)
                print(key.step, answer.message.text)
            case ToolReturned(key, output):
                print(key, output.content, output.is_error)
            case TurnEnded(outcome):
                assert_type(outcome, Outcome)
            case _:
                pass
    async for said in turn.text():
        assert_type(said, str | TextBegins | TextVoid)
    await turn.cancel("no longer needed")
    try:
        report = await turn.result(on_step=print)
    except errors.LLMRateLimitError as error:
        assert_type(error.report, AgentReport[Any] | None)
        raise
    assert_type(report, AgentReport)
    follow_up = await client.run(
        "researcher",
        "And now?",
        history=report.messages,
        context=Context(blocks={}),
        on_step=on_step,
    )
    read(follow_up)


async def on_step(step: Step) -> None:
    """Look at a step."""
    print(step.number, step.model, step.message.text)


def read(report: AgentReport) -> None:
    """Everything a report holds."""
    assert_type(report.output, str)
    assert_type(report.outcome, Outcome)
    assert_type(report.risk, str | None)
    assert_type(report.steps, tuple[Step, ...])
    assert_type(report.messages, tuple[Message, ...])
    assert_type(report.usage, Usage)
    assert_type(report.cost, Decimal | None)
    assert_type(report.duration, timedelta)
    for message in report.messages:
        match message:
            case UserMessage(parts=parts):
                assert_type(parts, tuple[Text | Media, ...])
            case AssistantMessage(parts=said):
                assert_type(said, tuple[Text | Thinking | ToolCall, ...])
            case ToolMessage(results=results):
                assert_type(results, tuple[ToolResult, ...])


async def own_worker(client: Client) -> None:
    """Perdure in a user's own worker."""
    worker = Worker(client, task_queue="mixed", plugins=[PerdurePlugin(app)])
    assert_type(AgentClient.from_temporal(client, task_queue="mixed"), AgentClient)
    async with app.running(client) as running:
        assert_type(running, Worker)
    await worker.run()
    await app.run("localhost:7233")


async def tested() -> None:
    """A user's own test."""
    model = ScriptedModel(
        calls(call("search", query="notice", limit=2), text="Let me see."),
        fails(errors.LLMUnavailableError("down"), delay=timedelta(seconds=1)),
        says("30 days", usage=Usage(input_tokens=10)),
        "plain text is an answer too",
    )
    async with local_runtime(app, model={"researcher": model}, deps=Deps(pages={})) as client:
        assert_type(await client.run("researcher", "How long?"), AgentReport[Any])
    assert_type(model.requests[1].messages[-1], Message)
    assert_type(model.call_count, int)
    model.assert_finished()


class Invoice(BaseModel):
    """An unpaid invoice."""

    number: str
    total: Decimal


clerk = Agent(name="clerk", model="main", output=Invoice)
lister = Agent(name="lister", model="main", output=list[Invoice])
assert_type(researcher, Agent)
assert_type(researcher, Agent[str])
assert_type(clerk, Agent[Invoice])
assert_type(lister, Agent[list[Invoice]])
assert_type(clerk.with_toolboxes(Toolbox("sums", [add])), Agent[Invoice])
Agent(name="clerk", model="main", output=5)  # type: ignore[arg-type]
Registry([researcher, clerk, lister, made_for])
AgentWorker(clerk)


async def typed(client: AgentClient) -> str:
    """The result types with an agent, with a name and a type, and with a name alone."""
    assert_type(await client.run(clerk, "…"), AgentReport[Invoice])
    assert_type(await client.run("clerk", "…", output=Invoice), AgentReport[Invoice])
    assert_type(await client.run("clerk", "…"), AgentReport[Any])
    assert_type(await client.run(researcher, "…"), AgentReport[str])
    assert_type((await client.run(lister, "…")).output[0].total, Decimal)
    turn = await client.start(clerk, "…")
    assert_type(turn, Turn[Invoice])
    assert_type((await turn.result()).output, Invoice)
    assert_type(await client.start("clerk", "…", output=list[int]), Turn[list[int]])
    assert_type(client.turn("ticket-4711").typed(Invoice), Turn[Invoice])
    assert_type(client.session("chat-1", clerk), Session[Invoice])
    assert_type(client.session("chat-1", "clerk", output=Invoice), Session[Invoice])
    assert_type(client.session("chat-1", output=Invoice), Session[Invoice])
    assert_type(client.session("chat-1", "clerk"), Session[Any])
    assert_type(client.session("chat-1"), Session[Any])
    assert_type(client.session("chat-1", researcher), Session[str])
    client.session("chat-1", researcher, labels={"customer": "4711"}, on_done="https://…")
    client.session("chat-1", researcher, labels=[])  # type: ignore[arg-type]
    client.session("chat-1", researcher, delay=None)  # type: ignore[call-arg]
    session = client.session("chat-1", clerk)
    sent = await session.say("…")
    await session.say([Text(text="…"), Media(media_type="image/png", url="…")])
    assert_type(sent, Sent[Invoice])
    assert_type(await sent.turn(), Turn[Invoice])
    assert_type(await sent.result(), AgentReport[Invoice])
    assert_type(await session.say("…", agent="lister"), Sent[Any])
    assert_type(await session.fork(id="chat-2"), Session[Invoice])
    assert_type(await client.generate("main", "…", Invoice), Invoice)
    assert_type(await client.generate("main", "…", list[int]), list[int])
    print((await client.run(clerk, "…")).output.missing)  # type: ignore[attr-defined]
    return await client.generate("main", "…", str)


async def direct() -> None:
    """A model without Temporal."""
    async with connect(
        "anthropic:claude-sonnet-4-5", providers={"echo": echo}, timeout=timedelta(minutes=1)
    ) as model:
        assert_type(await model.complete("…", system="…", tools=[add, search]), ModelAnswer)
        async with model.stream([UserMessage.of("…")]) as stream:
            async for words in stream:
                assert_type(words, str)
            assert_type(await stream.answer(), ModelAnswer)


any_tool: Tool[..., int] = add

from_schema = Tool.from_schema(
    len,
    name="count",
    description="Count.",
    parameters={"type": "object"},
    timeout=timedelta(seconds=5),
    read_only=True,
)
assert_type(from_schema, Tool[..., int])


async def test_of_a_user(perdure_runtime: Runtime) -> None:
    """The fixture of a user's test."""
    async with perdure_runtime(
        Agent(name="greeter", model="main"), model=ScriptedModel("Hi.")
    ) as client:
        report = await client.run("greeter", "Hi.")
        stored = MessagesTypeAdapter.dump_json(report.messages)
        await client.run("greeter", "Again.", history=MessagesTypeAdapter.validate_json(stored))


def all_handles(
    turn: Turn[str], session: Session[str], batch: Batch[str], schedule: Schedule
) -> list[Handle[Status]]:
    """The four handles satisfy one protocol."""
    return [turn, session, batch, schedule]


def all_entries(
    turn: TurnEntry, session: SessionEntry, batch: BatchEntry, schedule: ScheduleEntry
) -> list[Entry]:
    """So do the entries of lists."""
    return [turn, session, batch, schedule]


async def with_any_handle(handle: Handle[Status], name: str) -> None:
    """What can be done with each of them."""
    status = await handle.wait(timeout=timedelta(minutes=1))
    assert_type(status.state, State)
    assert_type(await handle.cancel("enough", by=name), bool)
    if status.spent.usd is not None and status.budget is not None:
        await handle.add_budget(status.budget, by=name)
