"""The job on Perdure."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from benchmarks.job import PROMPT, next_call
from perdure import Agent, AssistantMessage, Text, ToolCall, UserMessage, tool
from perdure.activities.provider import ModelRequest
from perdure.temporal import connect as temporal
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn


@tool(read_only=True)
def fetch(number: int, size: int) -> str:
    """Fetch so many bytes."""
    return "x" * size


class JobModel:
    """Makes the tool calls of the task, then answers."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        opening = request.messages[0]
        assert isinstance(opening, UserMessage)
        asked = len(request.messages) // 2  # the task, then an answer and its results for each step
        arguments = await next_call(opening.text, asked)
        if arguments is None:
            return ModelAnswer(
                message=AssistantMessage(parts=(Text(text="done"),)),
                stop=StopReason.END,
                model="job",
            )
        call = ToolCall(id=f"call_{asked}", name="fetch", arguments=arguments)
        return ModelAnswer(
            message=AssistantMessage(parts=(call,)), stop=StopReason.TOOL_CALLS, model="job"
        )

    async def close(self) -> None:
        pass


AGENT = Agent(
    name="job", model="job:job", instructions=PROMPT, tools=[fetch], max_iterations="unlimited"
)


def make() -> AgentWorker:
    """The worker for `perdure worker`."""
    return AgentWorker(AGENT, providers={"job": JobModel()})


async def connect(address: str) -> Client:
    return await temporal.connect(address)


def worker(client: Client, queue: str) -> Worker:
    return AgentWorker(AGENT, providers={"job": JobModel()}, task_queue=queue).build(client)


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTurn])
