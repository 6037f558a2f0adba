"""The agent of `benchmarks.peers.interruptions` on LangGraph: `create_agent` with `ChatOpenAI` and
a checkpointer of SQLite.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain.agents import create_agent
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.peers.weather import INSTRUCTIONS, weather
from benchmarks.peers.with_langgraph import Turns


@asynccontextmanager
async def opened(url: str, variant: str) -> AsyncIterator[Turns]:
    """An agent whose state is stored at `url`."""
    async with AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
        tools: list[Any] = [weather()]
        yield Turns(
            create_agent("openai:gpt-5", tools, system_prompt=INSTRUCTIONS, checkpointer=saver),
            "sync",
        )
