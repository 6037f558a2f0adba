"""The job as a turn and as the turns of a session: each message is a job."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from benchmarks.job import PROMPT, next_call
from benchmarks.with_perdure import fetch
from perdure import Agent, AssistantMessage, Text, ToolCall, UserMessage
from perdure.activities.provider import ModelRequest
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn


class ChatModel:
    """Makes the tool calls of the last message, then answers."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        place = max(
            place
            for place, message in enumerate(request.messages)
            if isinstance(message, UserMessage)
        )
        task, since = request.messages[place], request.messages[place + 1 :]
        assert isinstance(task, UserMessage)
        asked = len(since) // 2  # an answer and its results for each step
        arguments = await next_call(task.text, asked)
        if arguments is None:
            done = AssistantMessage(parts=(Text(text="done"),))
            return ModelAnswer(message=done, stop=StopReason.END, model="job")
        call = ToolCall(id=f"call_{len(request.messages)}", name="fetch", arguments=arguments)
        message = AssistantMessage(parts=(call,))
        return ModelAnswer(message=message, stop=StopReason.TOOL_CALLS, model="job")

    async def close(self) -> None:
        pass


AGENT = Agent(
    name="chat", model="job:job", instructions=PROMPT, tools=[fetch], max_iterations="unlimited"
)


async def connect(address: str) -> Client:
    return await Client.connect(address)


def worker(client: Client, queue: str) -> Worker:
    return AgentWorker(AGENT, providers={"job": ChatModel()}, task_queue=queue).build(client)


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTurn])
