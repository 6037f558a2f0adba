"""The case of `benchmarks.trees` on LangGraph and on DBOS: `.venv-peers/bin/python -m
benchmarks.peers.trees_libraries`, a few seconds.

A parent limited to five model calls and 3,000 tokens, a delegate that would make twenty calls. On
DBOS the agents are pydantic-ai's, with its limits, as in `benchmarks.peers.trees`; the delegate
runs in the parent's workflow. On LangGraph the delegate is an agent called from a tool, as its
documentation on subagents shows; the limits are `ModelCallLimitMiddleware` and `recursion_limit`,
and there is none of tokens. The models keep the bill.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from dbos import DBOS, DBOSConfig
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from pydantic_ai import Agent, RunContext, UsageLimits
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.usage import RunUsage

from benchmarks.peers.trees import BILLS, LIMITS, TOKENS, WOULD_MAKE, Billing, look

CALLS = 5


class BillingChat(BaseChatModel):
    """Makes this number of tool calls, then answers, and keeps the bill."""

    tool: str
    times: int
    arguments: dict[str, Any] = {}

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        BILLS.append(TOKENS)
        asked = sum(message.type == "ai" for message in messages)
        calls = (
            [{"name": self.tool, "args": self.arguments, "id": f"call_{asked}"}]
            if asked < self.times
            else []
        )
        return ChatResult(
            generations=[
                ChatGeneration(message=AIMessage("" if calls else "done", tool_calls=calls))
            ]
        )

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    def bind_tools(self, *_: Any, **__: Any) -> BillingChat:
        return self

    @property
    def _llm_type(self) -> str:
        return "billing"


def limit() -> ModelCallLimitMiddleware[Any, Any]:
    return ModelCallLimitMiddleware(run_limit=CALLS)


def graph(workers_limits: Sequence[Any], worker_checkpoints: Any = None) -> Any:
    """A parent with a limit, and a worker with or without one."""
    chat = BillingChat(tool="look", times=WOULD_MAKE - 1)
    worker = create_agent(chat, [look], middleware=workers_limits, checkpointer=worker_checkpoints)

    async def delegate(task: str) -> str:
        """Give a task to the worker."""
        state = await worker.ainvoke({"messages": [{"role": "user", "content": task}]})
        return str(state["messages"][-1].content)

    parent = BillingChat(tool="delegate", times=1, arguments={"task": "work"})
    return create_agent(parent, [delegate], middleware=[limit()], checkpointer=InMemorySaver())


async def on_langgraph(agent: Any, **config: Any) -> str:
    """The end, and the results: of the worker as its parent gets it, and of the parent."""
    given = {"messages": [{"role": "user", "content": "go"}]}
    try:
        state = await agent.ainvoke(given, {"configurable": {"thread_id": "1"}, **config})
    except GraphRecursionError as error:
        return f"GraphRecursionError: {str(error).partition('. ')[0].splitlines()[0][:90]}"
    return "; ".join(
        f"{message.type}: {message.content}"
        for message in state["messages"]
        if message.content and message.type != "human"
    )


WORKER = Agent(
    Billing("look", WOULD_MAKE - 1), name="worker", tools=[look], capabilities=[DBOSDurability()]
)


async def with_usage(ctx: RunContext[None], task: str) -> str:
    """Give a task to the worker."""
    return str((await WORKER.run(task, usage=ctx.usage)).output)


async def without_usage(ctx: RunContext[None], task: str) -> str:
    """Give a task to the worker."""
    return str((await WORKER.run(task)).output)


async def with_limits(ctx: RunContext[None], task: str) -> str:
    """Give a task to the worker, and the limits too."""
    return str((await WORKER.run(task, usage=ctx.usage, usage_limits=LIMITS)).output)


def parent(tool: Callable[..., Any]) -> Agent[None, str]:
    return Agent(
        Billing(tool.__name__, 1, task="work"),
        name=tool.__name__,
        tools=[tool],
        capabilities=[DBOSDurability()],
    )


PARENTS = {tool.__name__: parent(tool) for tool in (with_usage, without_usage, with_limits)}


@DBOS.workflow()
async def run(name: str, limits: UsageLimits) -> str:
    """A run in a workflow: its end, and its count."""
    usage = RunUsage()
    try:
        ended = str((await PARENTS[name].run("go", usage=usage, usage_limits=limits)).output)
    except UsageLimitExceeded as error:
        ended = f"UsageLimitExceeded: {str(error).partition('. ')[0]}"
    return f"counted {usage.requests} and {usage.total_tokens}; {ended}"


async def main() -> None:
    """Print the table."""
    print(f"{'':<44} {'billed':>7} {'tokens':>7}  end")
    _print("langgraph, limit of the parent", await on_langgraph(graph([])))
    _print("langgraph, limit of each", await on_langgraph(graph([limit()])))
    _print(
        "langgraph, recursion_limit 10 of the parent",
        await on_langgraph(graph([]), recursion_limit=2 * CALLS),
    )
    with tempfile.TemporaryDirectory() as folder:
        DBOS(
            config=DBOSConfig(
                name="trees",
                system_database_url=f"sqlite:///{folder}/trees.db",
                log_level="CRITICAL",
            )
        )
        DBOS.launch()
        for name in PARENTS:
            _print(f"dbos with pydantic-ai, {name}", await run(name, LIMITS))
        DBOS.destroy()


def _print(name: str, ended: str) -> None:
    print(f"{name:<44} {len(BILLS):>7} {sum(bill.total_tokens for bill in BILLS):>7}  {ended}")
    BILLS.clear()


if __name__ == "__main__":
    asyncio.run(main())
