"""The job that both loops do, and the process that works on it: `python -m benchmarks.job perdure|handwritten ADDRESS QUEUE`.

What a turn is to do stands in its task, `STEPS BYTES DELAY`: so many tool calls with results of so many bytes, a model that takes so many seconds.
The worker writes a line for each model call with the time, and answers `cpu` on its input with the CPU seconds it has used.
"""

from __future__ import annotations

import asyncio
import sys
import time

from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.handwritten import PROMPT, Activities, HandwrittenLoop
from perdure import Agent, AssistantMessage, Text, ToolCall, UserMessage, tool
from perdure.activities.models import ModelRequest
from perdure.reports import StopReason
from perdure.wire import ModelAnswer
from perdure.worker import AgentWorker


@tool(read_only=True)
def fetch(number: int, size: int) -> str:
    """Fetch so many bytes."""
    return "x" * size


class JobModel:
    """Asks for the tool as often as the task says, then answers."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        opening = request.messages[0]
        assert isinstance(opening, UserMessage)
        steps, size, delay = opening.text.split()
        asked = sum(message.role == "assistant" for message in request.messages)
        print(f"asked {time.time()}", flush=True)
        await asyncio.sleep(float(delay))
        if asked == int(steps):
            return ModelAnswer(message=AssistantMessage(parts=(Text(text="done"),)), stop=StopReason.END, model="job")
        call = ToolCall(id=f"call_{asked}", name="fetch", arguments=f'{{"number": {asked}, "size": {size}}}')
        return ModelAnswer(message=AssistantMessage(parts=(call,)), stop=StopReason.TOOL_CALLS, model="job")

    async def close(self) -> None:
        pass


def make() -> AgentWorker:
    """The worker that runs the job on Perdure."""
    agent = Agent(name="job", model="job:job", instructions=PROMPT, tools=[fetch], max_iterations="unlimited")
    return AgentWorker(agent, providers={"job": JobModel()})


def worker_of(kind: str, client: Client, queue: str) -> Worker:
    """A worker for one of the loops."""
    if kind == "perdure":
        return AgentWorker(make().registry, providers={"job": JobModel()}, task_queue=queue).build(client)
    activities = Activities()
    return Worker(
        client,
        task_queue=queue,
        workflows=[HandwrittenLoop],
        activities=[activities.ask, activities.fetch],
        activity_executor=activities.threads,
    )


async def main(kind: str, address: str, queue: str) -> None:
    """Work until the input ends."""
    client = await Client.connect(address)
    async with worker_of(kind, client, queue):
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "cpu":
                print(f"cpu {time.process_time()}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
