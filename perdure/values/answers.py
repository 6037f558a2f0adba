"""The answer of a model."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pydantic import Field

from perdure.base import Wire
from perdure.values.messages import AssistantMessage
from perdure.values.reports import StopReason, Usage


def _natural_stop(answer: dict[str, Any]) -> StopReason:
    return (
        StopReason.TOOL_CALLS if "message" in answer and answer["message"].calls else StopReason.END
    )


class ModelAnswer(Wire):
    """The answer of a model.

    `model` is the model that answered, as the provider names it, empty if that is the requested
    name; `duration_ms` is the time of the request. `stop` may be omitted if it is the expected
    reason: the tool calls, if there are any, otherwise the natural end. `cost` is in US dollars,
    None if the price is unknown. `objection` is the mistake in the answer, as the model reads it
    when it is asked again.
    """

    message: AssistantMessage
    stop: StopReason = Field(default_factory=_natural_stop)
    usage: Usage = Usage()
    model: str = ""
    duration_ms: int = 0
    cost: Decimal | None = None
    objection: str = ""
