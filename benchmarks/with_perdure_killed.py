"""The worker whose processes are killed by `benchmarks.recovery`.

A task is the name of the turn and what is slow in it: `model`, `tool` or `nothing`. Each call is
written to a file, with the process that makes it, before it does anything else.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from perdure import Agent, AssistantMessage, Text, ToolCall, ToolContext, UserMessage, tool
from perdure.activities.provider import ModelRequest
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker

CALLS = "BENCH_CALLS"
"""The variable with the name of the file."""
_SLOW_S = 60.0
_LOOK_S = 0.02


def note(turn: str, what: str) -> None:
    """Write down a call."""
    line = {"turn": turn, "what": what, "pid": os.getpid(), "at": time.time()}
    with Path(os.environ[CALLS]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def released(turn: str) -> Path:
    """The file that ends a slow tool."""
    return Path(f"{os.environ[CALLS]}.{turn}")


@tool(read_only=True)
async def hold(ctx: ToolContext[None], turn: str, slow: str) -> str:
    """Take long, the first time, if that is the task."""
    note(turn, "tool")
    until = time.monotonic() + (_SLOW_S if slow == "tool" and ctx.attempt == 1 else 0)
    while time.monotonic() < until and not released(turn).exists():  # noqa: ASYNC110 - a file
        await asyncio.sleep(_LOOK_S)
    return "held"


class SlowModel:
    """Calls the tool, then answers. A slow first call is slow once."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        opening = request.messages[0]
        assert isinstance(opening, UserMessage)
        turn, slow = opening.text.split()
        is_first = len(request.messages) == 1
        was_called = _was_called(turn)
        note(turn, "model" if is_first else "answer")
        if slow == "model" and is_first and not was_called:
            await asyncio.sleep(_SLOW_S)
        if not is_first:
            said = AssistantMessage(parts=(Text(text="done"),))
            return ModelAnswer(message=said, stop=StopReason.END, model="job")
        call = ToolCall(id="c", name="hold", arguments=json.dumps({"turn": turn, "slow": slow}))
        said = AssistantMessage(parts=(call,))
        return ModelAnswer(message=said, stop=StopReason.TOOL_CALLS, model="job")

    async def close(self) -> None:
        pass


def _was_called(turn: str) -> bool:
    file = Path(os.environ[CALLS])
    return file.exists() and f'"turn": "{turn}"' in file.read_text(encoding="utf-8")


def make() -> AgentWorker:
    """The worker."""
    return AgentWorker(
        Agent(name="job", model="job:job", tools=[hold]), providers={"job": SlowModel()}
    )
