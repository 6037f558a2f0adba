"""The jobs on LangGraph, with `create_agent` and a checkpointer on SQLite.

- `defaults`: an error of a tool ends the run; what is saved is the durability `async`.
- Other settings: `ToolRetryMiddleware`, whose last error is what the model reads, and the
  durability `sync`. The tool itself tells of a refusal, which is not to be repeated: an error that
  the middleware does not repeat would end the run.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain.tools import ToolRuntime
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.effects.peers.jobs import (
    DEFAULTS,
    FIRST_PAUSE_S,
    JOBS,
    WRITE_TOOL,
    Runs,
    Seen,
    Setting,
    failure,
    may_repeat,
)
from benchmarks.effects.tools import ServiceRefused


class JobModel(BaseChatModel):
    """Does what the behaviour of its job says."""

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        task = next(str(message.content) for message in messages if message.type == "human")
        move = await JOBS[task].next_move([*_seen(messages)])
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
            yield Seen(message.tool_call_id, str(message.content))


def _thread(runtime: ToolRuntime[Any, Any]) -> str:
    return str(runtime.config["configurable"]["thread_id"])


async def write(records: str, runtime: ToolRuntime) -> str:  # type: ignore[type-arg,unused-ignore]
    """Make the effects."""
    thread = _thread(runtime)
    job = JOBS[thread]
    key = f"{thread}/{runtime.tool_call_id}" if job.setting.sends_key else ""
    try:
        return await job.write(records, key)
    except ServiceRefused as error:
        if job.setting is DEFAULTS or may_repeat(error):
            raise
        return failure(type(error).__name__, str(error))


async def find(records: str, runtime: ToolRuntime) -> str:  # type: ignore[type-arg,unused-ignore]
    """Read back which effects were made."""
    return await JOBS[_thread(runtime)].find(records)


def _retrying(setting: Setting) -> ToolRetryMiddleware:
    return ToolRetryMiddleware(
        max_retries=setting.attempts - 1,
        tools=[WRITE_TOOL],
        on_failure=lambda error: failure(type(error).__name__, str(error)),
        initial_delay=FIRST_PAUSE_S,
        jitter=False,
    )


@contextlib.asynccontextmanager
async def opened(setting: Setting, address: str) -> AsyncIterator[Runs]:
    """An agent with a database, for the duration of the block."""
    is_default = setting is DEFAULTS
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncSqliteSaver.from_conn_string(str(Path(folder) / "threads.db")) as saver:
            graph: Any = create_agent(
                JobModel(),
                [write, find],
                middleware=[] if is_default else [_retrying(setting)],
                checkpointer=saver,
            )

            async def runs(name: str) -> str:
                state = await graph.ainvoke(
                    {"messages": [{"role": "user", "content": name}]},
                    {"configurable": {"thread_id": name}},
                    durability="async" if is_default else "sync",
                )
                return str(state["messages"][-1].content)

            yield runs
