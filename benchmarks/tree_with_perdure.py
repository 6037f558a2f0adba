"""The job of a tree on Perdure: a parent that delegates to the agent of `with_perdure`, with
`spawn_agents` if there are several at once.

`ParentOfTurns` is a hand-written parent with the same turns as its children: the difference between
the two is the cost of delegation itself.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.worker import Replayer, Worker

from benchmarks import with_perdure
from benchmarks.errands import next_errands
from benchmarks.handwritten_tree import ask_and_delegate, ask_parent
from benchmarks.job import PROMPT
from perdure import Agent, AssistantMessage, Delegate, Text, UserMessage
from perdure.activities.provider import ModelRequest, Provider
from perdure.temporal import search_attributes
from perdure.temporal.payloads import unpack
from perdure.testing import call
from perdure.turn.wire import Summary
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker, PerdurePlugin
from perdure.workflows import AgentTurn


class ParentModel:
    """Makes the delegations of the task, then answers."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        opening = request.messages[0]
        assert isinstance(opening, UserMessage)
        asked = sum(message.role == "assistant" for message in request.messages)
        errands = await next_errands(opening.text, asked)
        if errands is None:
            return ModelAnswer(
                message=AssistantMessage(parts=(Text(text="done"),)),
                stop=StopReason.END,
                model="job",
            )
        tasks = [{"agent": "job", "task": task} for task in errands]
        made = (
            call("delegate_to_agent", **tasks[0])
            if len(tasks) == 1
            else call("spawn_agents", tasks=tasks)
        )
        named = made.model_copy(update={"id": f"call_{asked}"})
        return ModelAnswer(
            message=AssistantMessage(parts=(named,)), stop=StopReason.TOOL_CALLS, model="job"
        )

    async def close(self) -> None:
        pass


PARENT = Agent(
    name="parent",
    model="parent:job",
    instructions=PROMPT,
    delegates=[Delegate("job", inherit=False)],
    max_iterations="unlimited",
    max_children=1_000,
    max_descendants=1_000,
    on_loop="ignore",
)


async def connect(address: str) -> Client:
    return await Client.connect(address)


@workflow.defn(sandboxed=False)
class ParentOfTurns:
    """A hand-written parent of Perdure's turns."""

    @workflow.run
    async def run(self, task: str) -> str:
        return await ask_and_delegate(task, _turn)


async def _turn(task: str, child: str) -> str:
    ended = await workflow.execute_child_workflow(
        "AgentTurn",
        {"agent": "job", "task": task},
        id=child,
        result_type=RawValue,
        search_attributes=search_attributes.at_start("job", {}),
    )
    return unpack(ended, Summary).output


def worker(client: Client, queue: str) -> Worker:
    providers: dict[str, Provider] = {"parent": ParentModel(), "job": with_perdure.JobModel()}
    plugin = PerdurePlugin(AgentWorker([PARENT, with_perdure.AGENT], providers=providers))
    return Worker(
        client,
        task_queue=queue,
        workflows=[ParentOfTurns],
        activities=[ask_parent],
        plugins=[plugin],
    )


def replayer() -> Replayer:
    return Replayer(workflows=[AgentTurn])
