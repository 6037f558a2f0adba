"""The job on LangGraph: an agent of `langchain.agents.create_agent`, which is a graph, with a
checkpointer.

- Each model call and each tool call is a node; the checkpointer saves the state after each.
- `durability="sync"` saves a step before the next one starts. The default, `"async"`, saves it
  meanwhile: its documentation names a small risk that a checkpoint is missing after a crash. `JOB`
      is the first, the variant `async` the second.
- The checkpointer is PostgreSQL's, which its documentation names for production, or SQLite's, which
  it names for work on one's own machine. Each is made by `from_conn_string`, as in the examples.
- The variant `delta` keeps the messages in a `DeltaChannel`, which stores only new messages and is
  marked as beta.
- The prompt is not part of the state, so it is not stored.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from langchain.agents import AgentState, create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph.message import _messages_delta_reducer

from benchmarks.job import PROMPT, next_call
from benchmarks.peers.effects import effect


class JobModel(BaseChatModel):
    """Makes the tool calls of the task, then answers."""

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        task = next(str(message.content) for message in messages if message.type == "human")
        asked = sum(message.type == "ai" for message in messages)
        arguments = await next_call(task, asked)
        calls = (
            []
            if arguments is None
            else [{"name": "fetch", "args": json.loads(arguments), "id": f"call_{asked}"}]
        )
        return ChatResult(
            generations=[
                ChatGeneration(message=AIMessage("" if calls else "done", tool_calls=calls))
            ]
        )

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    def bind_tools(self, *_: Any, **__: Any) -> JobModel:
        return self

    @property
    def _llm_type(self) -> str:
        return "job"


def fetch(number: int, size: int) -> str:
    """Fetch so many bytes."""
    return effect(number, size)


class DeltaState(AgentState[Any]):
    """Messages that are stored once each."""

    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


class Turns:
    """Threads of one graph."""

    def __init__(self, graph: Any, durability: Literal["sync", "async"]) -> None:
        self._graph, self._durability = graph, durability

    async def run(self, turn_id: str, task: str) -> object:
        return await self._invoke(turn_id, {"messages": [{"role": "user", "content": task}]})

    async def again(self, turn_id: str) -> object:
        """Invoking a thread without an input continues it."""
        return await self._invoke(turn_id, None)

    async def _invoke(self, turn_id: str, given: Any) -> object:
        return await self._graph.ainvoke(
            given, {"configurable": {"thread_id": turn_id}}, durability=self._durability
        )


def saver(url: str) -> Any:
    kind = AsyncPostgresSaver if url.startswith("postgres") else AsyncSqliteSaver
    return kind.from_conn_string(url.removeprefix("sqlite:///"))


@asynccontextmanager
async def opened(url: str, variant: str) -> AsyncIterator[Turns]:
    """An agent whose state is stored at `url`."""
    async with saver(url) as checkpointer:
        await checkpointer.setup()
        schema = DeltaState if variant == "delta" else None
        graph = create_agent(
            JobModel(),
            [fetch],
            system_prompt=PROMPT,
            checkpointer=checkpointer,
            state_schema=schema,
        )
        yield Turns(graph, "async" if variant == "async" else "sync")
