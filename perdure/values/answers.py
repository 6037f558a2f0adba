"""What a model answered."""

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
    """What a model answered.

    `model` is the one that served, as the provider names it, empty where that is the name asked
    for; `duration_ms` is the time of the request. `stop` need not be said where it is what one
    expects: after tool calls that they are to be run, else the natural end. `cost` is in US
        dollars, None where nobody knows the price. `objection` is what is wrong with the answer, as
        the model is told when it is asked again.
    """

    message: AssistantMessage
    stop: StopReason = Field(default_factory=_natural_stop)
    usage: Usage = Usage()
    model: str = ""
    duration_ms: int = 0
    cost: Decimal | None = None
    objection: str = ""
