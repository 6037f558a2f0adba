"""The job on pydantic-ai, by its capability `TemporalDurability` and its plugin.

- Its worker follows the first example of its documentation on Temporal: agent and workflow in one
  file, the plugin in the client. Importing the agent from a module that passes through the
  sandbox makes no turn cheaper.
- The prompt is a `system_prompt`, which is in the first message. As `instructions`, which the
  documentation prefers, it is in every message of the transcript; `JobByInstructions` shows the
  size of that.
- The model is a custom `Model`: `FunctionModel` would count the words of the whole transcript
  in each call.
- Workflows run in the sandbox, as by default; `JobUnsandboxed` shows what that costs.
- A documented way to continue from a long history is not used here:
  `TemporalDurability(continue_as_new=…)` with a custom function.
"""

from __future__ import annotations

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.durable_exec.temporal import (
    PydanticAIPlugin,
    PydanticAIWorkflow,
    TemporalDurability,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from benchmarks.job import PROMPT, next_call
from benchmarks.peers.effects import effect


class JobModel(Model):
    """Makes the tool calls of the task, then answers."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse:
        task = next(part.content for part in messages[0].parts if isinstance(part, UserPromptPart))
        asked = sum(isinstance(message, ModelResponse) for message in messages)
        arguments = await next_call(str(task), asked)
        part = (
            TextPart("done")
            if arguments is None
            else ToolCallPart("fetch", arguments, tool_call_id=f"call_{asked}")
        )
        return ModelResponse(parts=[part], model_name="job")

    @property
    def model_name(self) -> str:
        return "job"

    @property
    def system(self) -> str:
        return "job"


def fetch(number: int, size: int) -> str:
    """Fetch so many bytes."""
    return effect(number, size)


NO_LIMIT = UsageLimits(request_limit=None)
AGENT = Agent(
    JobModel(), name="job", system_prompt=PROMPT, tools=[fetch], capabilities=[TemporalDurability()]
)
BY_INSTRUCTIONS = Agent(
    JobModel(),
    name="job_by_instructions",
    instructions=PROMPT,
    tools=[fetch],
    capabilities=[TemporalDurability()],
)


@workflow.defn
class Job(PydanticAIWorkflow):
    """The job."""

    __pydantic_ai_agents__ = [AGENT]

    @workflow.run
    async def run(self, task: str) -> str:
        return str((await AGENT.run(task, usage_limits=NO_LIMIT)).output)


@workflow.defn(sandboxed=False)
class JobUnsandboxed(PydanticAIWorkflow):
    """The same without the sandbox."""

    __pydantic_ai_agents__ = [AGENT]

    @workflow.run
    async def run(self, task: str) -> str:
        return str((await AGENT.run(task, usage_limits=NO_LIMIT)).output)


@workflow.defn
class JobByInstructions(PydanticAIWorkflow):
    """The same with the prompt as instructions."""

    __pydantic_ai_agents__ = [BY_INSTRUCTIONS]

    @workflow.run
    async def run(self, task: str) -> str:
        return str((await BY_INSTRUCTIONS.run(task, usage_limits=NO_LIMIT)).output)


async def connect(address: str) -> Client:
    return await Client.connect(address, plugins=[PydanticAIPlugin()])


def worker(client: Client, queue: str) -> Worker:
    return Worker(client, task_queue=queue, workflows=[Job, JobUnsandboxed, JobByInstructions])


def replayer() -> Replayer:
    return Replayer(workflows=[Job], plugins=[PydanticAIPlugin()])
