"""The job on LangGraph, with `create_agent` and a checkpointer on SQLite.

- `defaults`: the durability is `async`, tools send no key, and nothing looks for threads that a
  crash has cut off: a person continues each by hand.
- `best`: the durability is `sync`, tools send the id of the call as a key, and a process that
  starts continues every thread that is not at its end. These six lines are ours.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.peers.matrix.tools import CLERK, MODEL, PROMPT, effect


def _job(runtime: ToolRuntime[Any, Any]) -> str:
    return str(runtime.config["configurable"]["thread_id"])


async def look(what: str, runtime: ToolRuntime) -> str:  # type: ignore[type-arg,unused-ignore]
    """Look at something."""
    return await asyncio.to_thread(effect, _job(runtime), "look", what)


async def book(what: str, runtime: ToolRuntime) -> str:  # type: ignore[type-arg,unused-ignore]
    """Book something."""
    return await asyncio.to_thread(effect, _job(runtime), "book", what)


async def charge(what: str, runtime: ToolRuntime) -> str:  # type: ignore[type-arg,unused-ignore]
    """Charge something."""
    return await asyncio.to_thread(effect, _job(runtime), "charge", what)


async def book_by_key(what: str, runtime: ToolRuntime) -> str:  # type: ignore[type-arg,unused-ignore]
    """Book something."""
    key = runtime.tool_call_id or ""
    return await asyncio.to_thread(effect, _job(runtime), "book", what, key)


book_by_key.__name__ = "book"


class Turns:
    """Threads of one graph."""

    def __init__(self, graph: Any, saver: Any, variant: str) -> None:
        self._graph, self._saver, self._is_best = graph, saver, variant == "best"

    async def run(self, turn_id: str, task: str) -> str:
        return await self._invoke(turn_id, {"messages": [{"role": "user", "content": task}]})

    async def again(self, turn_id: str) -> str:
        """Invoking a thread without an input continues it."""
        return await self._invoke(turn_id, None)

    async def recover(self) -> list[str]:
        """Return the threads that are not at their end."""
        if not self._is_best:
            return []
        found = [one async for one in self._saver.alist(None)]
        threads = {one.config["configurable"]["thread_id"] for one in found}
        states = {name: await self._graph.aget_state(_config(name)) for name in threads}
        return [name for name, state in states.items() if state.next]

    async def _invoke(self, turn_id: str, given: Any) -> str:
        durability = "sync" if self._is_best else "async"
        state = await self._graph.ainvoke(given, _config(turn_id), durability=durability)
        return str(state["messages"][-1].content)


def _config(turn_id: str) -> Any:
    return {"configurable": {"thread_id": turn_id}}


@asynccontextmanager
async def opened(url: str, variant: str) -> AsyncIterator[Turns]:
    """An agent whose state is stored at `url`."""
    async with AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
        tools: list[Any] = [look, book_by_key if variant == "best" else book, charge]
        model = ChatOpenAI(model=CLERK, base_url=os.environ[MODEL], api_key="none")  # type: ignore[arg-type,unused-ignore]
        graph = create_agent(model, tools, system_prompt=PROMPT, checkpointer=saver)
        yield Turns(graph, saver, variant)
