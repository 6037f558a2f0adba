"""The scripted model for pydantic-ai."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from benchmarks.effects.peers.jobs import Seen, job_of


class JobModel(Model):
    """Does what the behaviour of its job says."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse:
        task = next(part.content for part in messages[0].parts if isinstance(part, UserPromptPart))
        move = await job_of(str(task)).next_move([*_seen(messages)])
        part = (
            ToolCallPart(move.tool, move.arguments, tool_call_id=move.call_id)
            if move.tool
            else TextPart(move.text)
        )
        return ModelResponse(parts=[part], model_name="job")

    @property
    def model_name(self) -> str:
        return "job"

    @property
    def system(self) -> str:
        return "job"


def _seen(messages: list[ModelMessage]) -> Iterator[Seen]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                yield Seen(part.tool_call_id, part.tool_name, str(part.content))
