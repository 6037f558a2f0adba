"""The worker under load: `perdure worker benchmarks.load.app:make`, as users run theirs.

A task is `NAME STEPS TOOLS SECONDS`: a turn of so many steps, each but the last with so many tool
calls, and the time of each model call, as real models take it. The answer says of each call whether
its result was `done`. Each line of the file `LOAD_LINES` is written before anything else happens.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.job import PROMPT
from perdure import Agent, AssistantMessage, Text, ToolCall, ToolContext, UserMessage, tool
from perdure.activities.provider import ModelRequest
from perdure.values.answers import ModelAnswer
from perdure.values.messages import Message, ToolMessage
from perdure.worker import AgentWorker

LINES = "LOAD_LINES"
"""The variable with the name of the file."""
RESULT_BYTES = 1_000
PROMPT_BYTES = 2_000
DONE = "done"
BY_KEY, ONCE = "book", "order"
"""A tool that may run again, by its key, and one that may not."""


@dataclass(frozen=True)
class Job:
    """What a turn does.

    Attributes:
        steps: Model calls.
        tools: Tool calls of each step but the last.
        seconds: The time of a model call.
    """

    steps: int
    tools: int
    seconds: float

    def task(self, name: str) -> str:
        """The task of the turn of this name."""
        return f"{name} {self.steps} {self.tools} {self.seconds}"

    def calls_of(self, step: int) -> list[tuple[str, str]]:
        """The ids of the calls of a step, from 1, with their tools, which alternate."""
        if step >= self.steps:
            return []
        return [
            (f"{step}.{number}", (BY_KEY, ONCE)[(step + number) % 2])
            for number in range(1, self.tools + 1)
        ]

    def calls(self) -> Iterator[tuple[str, str]]:
        """The calls of all steps."""
        for step in range(1, self.steps):
            yield from self.calls_of(step)


def read(task: str) -> tuple[str, Job]:
    """The name and the job of a task."""
    name, steps, tools, seconds = task.split()
    return name, Job(int(steps), int(tools), float(seconds))


@functools.cache
def _file() -> int:
    return os.open(os.environ[LINES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(kind: str, turn: str, call: str, **more: str) -> None:
    """Write a line, at once and whole: other processes write to the same file."""
    line = {"kind": kind, "turn": turn, "call": call, "at": time.time(), **more}
    os.write(_file(), json.dumps(line).encode() + b"\n")


@tool(idempotent=True)
async def book(ctx: ToolContext[None], turn: str, call: str) -> str:
    """Have an effect, once for each key."""
    return _effect(BY_KEY, turn, call, ctx.idempotency_key)


@tool
async def order(ctx: ToolContext[None], turn: str, call: str) -> str:
    """Have an effect. It may not be repeated."""
    return _effect(ONCE, turn, call, ctx.idempotency_key)


def _effect(kind: str, turn: str, call: str, key: str) -> str:
    note(kind, turn, call, key=key)
    return f"{DONE} {'x' * RESULT_BYTES}"


class LoadModel:
    """Makes the calls of the last task, then says what became of them."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        task, since = _last_task(request.messages)
        name, job = read(task)
        step = 1 + sum(isinstance(message, AssistantMessage) for message in since)
        note("asked", name, str(step))
        await asyncio.sleep(job.seconds)
        parts = [
            ToolCall(
                id=f"{name}:{call}",  # those of a session are all different
                name=kind,
                arguments=json.dumps({"turn": name, "call": call}),
            )
            for call, kind in job.calls_of(step)
        ]
        answer = AssistantMessage(parts=tuple(parts) or (Text(text=_report(since)),))
        note("answered", name, str(step))
        return ModelAnswer(message=answer, model="load")

    async def close(self) -> None:
        pass


def _last_task(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The last message of the user, which is a message of a session or a task, and what follows."""
    place = max(n for n, message in enumerate(messages) if isinstance(message, UserMessage))
    task = messages[place]
    assert isinstance(task, UserMessage)
    return task.text, messages[place + 1 :]


def _report(since: Sequence[Message]) -> str:
    results = [one for each in since if isinstance(each, ToolMessage) for one in each.results]
    return json.dumps(
        {one.call_id.rpartition(":")[2]: one.content.startswith(DONE) for one in results}
    )


def make() -> AgentWorker:
    """The worker."""
    agent = Agent(
        name="load",
        model="load:load",
        instructions=PROMPT[:PROMPT_BYTES],
        tools=[book, order],
        max_iterations="unlimited",
    )
    return AgentWorker(agent, providers={"load": LoadModel()})
