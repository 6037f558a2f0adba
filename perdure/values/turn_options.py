"""The options of a turn, common to all functions that start a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from perdure.values.budgets import Budget
from perdure.values.messages import Message
from perdure.values.model_retry import ModelRetryPolicy
from perdure.values.moments import Moment
from perdure.values.options import RequestOptions
from perdure.values.tasks import Context


class TurnOptions(TypedDict, total=False):
    """The options of a turn, which `AgentClient.start` describes.

    Each is a field of the same name of `TurnRequest`.
    """

    context: Context | Mapping[str, str] | None
    history: Sequence[Message]
    labels: Mapping[str, str] | None
    budget: Budget | None
    max_iterations: int | None
    options: RequestOptions | None
    model_retry: ModelRetryPolicy | None
    allowed_tools: Sequence[str] | None
    delay: Moment | None
    deadline: Moment | None
    on_done: str | None
