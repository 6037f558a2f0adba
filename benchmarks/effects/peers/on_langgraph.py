"""The jobs on LangGraph, with `create_agent` and a checkpointer on SQLite.

- `defaults`: an error of a tool ends the run; what is saved is the durability `async`.
- Other settings: `ToolRetryMiddleware`, whose last error is what the model reads, and the
  durability `sync`. The tool itself tells of a refusal, which is not to be repeated: an error that
  the middleware does not repeat would end the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain.tools import ToolRuntime
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.effects.peers.jobs import (
    BY_SLUG,
    DEFAULTS,
    FIRST_PAUSE_S,
    WRITE_TOOL,
    Seen,
    Setting,
    failure,
    job_of,
    may_repeat,
)
from benchmarks.effects.tools import ServiceRefused


class JobModel(BaseChatModel):
    """Does what the behaviour of its job says."""

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        task = next(str(message.content) for message in messages if message.type == "human")
        move = await job_of(task).next_move([*_seen(messages)])
        message = AIMessage(move.text)
        if move.tool:
            call = {"name": move.tool, "args": {"records": move.records}, "id": move.call_id}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    def bind_tools(self, *_: Any, **__: Any) -> JobModel:
        return self

    @property
    def _llm_type(self) -> str:
        return "job"


def _seen(messages: Sequence[BaseMessage]) -> Iterator[Seen]:
    for message in messages:
        if isinstance(message, ToolMessage):
            yield Seen(message.tool_call_id, str(message.name), str(message.content))


def _thread(runtime: ToolRuntime[Any, Any]) -> str:
    return str(runtime.config["configurable"]["thread_id"])


async def write(records: str, runtime: ToolRuntime) -> str:  # type: ignore[type-arg,unused-ignore]
    """Make the effects."""
    thread = _thread(runtime)
    job = job_of(thread)
    key = f"{thread}/{runtime.tool_call_id}" if job.setting.sends_key else ""
    try:
        return await job.write(records, key)
    except ServiceRefused as error:
        if job.setting is DEFAULTS or may_repeat(error):
            raise
        return failure(type(error).__name__, str(error))


async def find(records: str, runtime: ToolRuntime) -> str:  # type: ignore[type-arg,unused-ignore]
    """Read back which effects were made."""
    return await job_of(_thread(runtime)).find(records)


def _retrying(setting: Setting) -> ToolRetryMiddleware:
    return ToolRetryMiddleware(
        max_retries=setting.attempts - 1,
        tools=[WRITE_TOOL],
        on_failure=lambda error: failure(type(error).__name__, str(error)),
        initial_delay=FIRST_PAUSE_S,
        jitter=False,
    )


class Turns:
    """Threads of one graph."""

    def __init__(self, graph: Any, setting: Setting) -> None:
        self._graph = graph
        self._durability = "async" if setting is DEFAULTS else "sync"

    async def run(self, turn_id: str, task: str) -> str:
        return await self._invoke(turn_id, {"messages": [{"role": "user", "content": task}]})

    async def again(self, turn_id: str) -> str:
        """Invoking a thread without an input continues it from its last checkpoint."""
        return await self._invoke(turn_id, None)

    async def recover(self) -> list[str]:
        """Return nothing: nothing looks for threads that a crash has cut off."""
        return []

    async def _invoke(self, turn_id: str, given: Any) -> str:
        config = {"configurable": {"thread_id": turn_id}}
        state = await self._graph.ainvoke(given, config, durability=self._durability)
        return str(state["messages"][-1].content)


@contextlib.asynccontextmanager
async def opened(url: str, variant: str) -> AsyncIterator[Turns]:
    """An agent whose state is stored at `url`."""
    setting = BY_SLUG[variant]
    async with AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
        graph: Any = create_agent(
            JobModel(),
            [write, find],
            middleware=[] if setting is DEFAULTS else [_retrying(setting)],
            checkpointer=saver,
        )
        yield Turns(graph, setting)
