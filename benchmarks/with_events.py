"""The worker of `benchmarks.events`: an agent that waits for an event by the key in its task."""

from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from perdure import Agent
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, says
from perdure.toolboxes import waiting
from perdure.values.messages import ToolMessage, UserMessage
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn


def reply(request: ModelRequest) -> Reply:
    """Wait for the event, then answer."""
    first, last = request.messages[0], request.messages[-1]
    if isinstance(last, ToolMessage):
        return says("done")
    assert isinstance(first, UserMessage)
    return calls(call("wait_for", event="built", key=first.text, note="the build"))


AGENT = Agent(name="watcher", model="scripted:watcher", toolboxes=[waiting()])


async def connect(address: str) -> Client:
    return await Client.connect(address)


def worker(client: Client, queue: str) -> Worker:
    providers = {"scripted": FunctionModel(reply)}
    return AgentWorker(AGENT, providers=providers, task_queue=queue).build(client)


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTurn])
