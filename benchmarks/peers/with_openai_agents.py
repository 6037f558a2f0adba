"""The job on the OpenAI Agents SDK, by Temporal's plugin `temporalio-openai-agents`.

- The worker follows the plugin's own documentation: the agent in the workflow, its tool an activity
  by `activity_as_tool`, the plugin in the client.
- Tracing is off: it would send to a service that is not reached here.
- Workflows run in the sandbox, as by default; `JobUnsandboxed` shows what that costs.
- `max_turns` is 10 by default, and lifted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.openai_agents import OpenAIAgentsPlugin
from temporalio.openai_agents.workflow import activity_as_tool
from temporalio.worker import Replayer, Worker

from benchmarks.job import PROMPT, next_call
from benchmarks.peers.effects import effect


class JobModel(Model):
    """Makes the tool calls of the task, then answers."""

    async def get_response(self, *_: Any, **request: Any) -> ModelResponse:
        given: str | list[Any] = request["input"]
        items = [{"content": given}] if isinstance(given, str) else given
        asked = sum(item.get("type") == "function_call" for item in items)
        arguments = await next_call(items[0]["content"], asked)
        return ModelResponse(
            output=[said() if arguments is None else called(asked, arguments)],
            usage=Usage(),
            response_id=None,
        )

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def said() -> ResponseOutputMessage:
    text = ResponseOutputText(text="done", annotations=[], type="output_text")
    return ResponseOutputMessage(
        id="msg", content=[text], role="assistant", status="completed", type="message"
    )


def called(asked: int, arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=f"fc_{asked}",
        call_id=f"call_{asked}",
        name="fetch",
        arguments=arguments,
        type="function_call",
        status="completed",
    )


class JobProvider(ModelProvider):
    """Has one model."""

    def get_model(self, model_name: str | None) -> Model:
        return JobModel()


@activity.defn
def fetch(number: int, size: int) -> str:
    """Fetch so many bytes."""
    return effect(number, size)


async def answer(task: str) -> str:
    tools = [activity_as_tool(fetch, start_to_close_timeout=timedelta(minutes=1))]
    agent = Agent(name="job", instructions=PROMPT, tools=tools)
    return str(
        (
            await Runner.run(
                agent, task, max_turns=None, run_config=RunConfig(tracing_disabled=True)
            )
        ).final_output
    )


@workflow.defn
class Job:
    """The job."""

    @workflow.run
    async def run(self, task: str) -> str:
        return await answer(task)


@workflow.defn(sandboxed=False)
class JobUnsandboxed:
    """The same without the sandbox."""

    @workflow.run
    async def run(self, task: str) -> str:
        return await answer(task)


def plugin() -> OpenAIAgentsPlugin:
    return OpenAIAgentsPlugin(model_provider=JobProvider())


async def connect(address: str) -> Client:
    return await Client.connect(address, plugins=[plugin()])


def worker(client: Client, queue: str) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        workflows=[Job, JobUnsandboxed],
        activities=[fetch],
        activity_executor=ThreadPoolExecutor(100),
    )


def replayer() -> Replayer:
    return Replayer(workflows=[Job], plugins=[plugin()])
