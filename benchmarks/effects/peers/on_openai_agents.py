"""The jobs on the OpenAI Agents SDK with Temporal's plugin.

- `defaults`: tools are activities by `activity_as_tool`, as in the example of its documentation,
  and an error of one is tried again by Temporal without end.
- Other settings: the tool that makes effects is a tool of the workflow that makes its activity
  itself, so that the attempts end, and the model reads the error.

Tracing is off: it would send to a service that is not reached here.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agents import (
    Agent,
    Model,
    ModelProvider,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    function_tool,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from temporalio import workflow
from temporalio.client import Client
from temporalio.openai_agents import OpenAIAgentsPlugin
from temporalio.openai_agents.workflow import activity_as_tool
from temporalio.worker import Worker

from benchmarks.effects.peers import jobs, temporal
from benchmarks.effects.peers.jobs import WRITE_TOOL, Move, Seen, job_of


class JobModel(Model):
    """Does what the behaviour of its job says."""

    async def get_response(self, *_: Any, **request: Any) -> ModelResponse:
        given: str | list[Any] = request["input"]
        items = [{"content": given}] if isinstance(given, str) else given
        move = await job_of(items[0]["content"]).next_move([*_seen(items)])
        return ModelResponse(
            output=[_called(move) if move.tool else _said(move)], usage=Usage(), response_id=None
        )

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def _seen(items: Sequence[Any]) -> Iterator[Seen]:
    names = {item["call_id"]: item["name"] for item in items if _is(item, "function_call")}
    for item in items:
        if _is(item, "function_call_output"):
            call_id = item["call_id"]
            yield Seen(call_id, names[call_id], str(item["output"]))


def _is(item: Any, kind: str) -> bool:
    return bool(item.get("type") == kind)


def _said(move: Move) -> ResponseOutputMessage:
    text = ResponseOutputText(text=move.text, annotations=[], type="output_text")
    return ResponseOutputMessage(
        id="msg", content=[text], role="assistant", status="completed", type="message"
    )


def _called(move: Move) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=f"fc_{move.call_id}",
        call_id=move.call_id,
        name=move.tool,
        arguments=move.arguments,
        type="function_call",
        status="completed",
    )


class JobProvider(ModelProvider):
    """Has one model."""

    def get_model(self, model_name: str | None) -> Model:
        return JobModel()


@function_tool(name_override=WRITE_TOOL)
async def write_told(records: str) -> str:
    """Make the effects."""
    return await temporal.written(records)


@workflow.defn(sandboxed=False)
class Answer:
    """A run of the agent with the setting of its job."""

    @workflow.run
    async def run(self, name: str) -> str:
        is_default = job_of(name).setting is jobs.DEFAULTS
        timeout = {"start_to_close_timeout": temporal.TIMEOUT}
        writes = activity_as_tool(temporal.write, **timeout) if is_default else write_told
        finds = activity_as_tool(temporal.find, **timeout)
        agent = Agent(name="job", tools=[writes, finds])
        config = RunConfig(tracing_disabled=True)
        return str((await Runner.run(agent, name, run_config=config)).final_output)


async def connect(address: str, variant: str) -> Client:
    """A client for workers."""
    plugin = OpenAIAgentsPlugin(model_provider=JobProvider())
    return await Client.connect(address, plugins=[plugin])


def worker(client: Client, queue: str, variant: str) -> Worker:
    """A worker for all settings."""
    activities = [temporal.write, temporal.write_once, temporal.find]
    return temporal.worker_of(client, queue, activities, Answer)
