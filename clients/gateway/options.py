"""The parts of bodies and queries that several operations share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from perdure import limits
from perdure.base import Value
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.inputs import Body, Query
from perdure.values.budgets import Budget, Iterations
from perdure.values.content import parts_after
from perdure.values.messages import UserParts
from perdure.values.model_retry import ModelRetryPolicy
from perdure.values.options import RequestOptions
from perdure.values.tasks import Task


class ModelOptions(Body):
    """The options of requests to models; each overrides the agent's."""

    temperature: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    max_output_tokens: Annotated[int, Field(gt=0, le=10**9)] | None = None
    stop_sequences: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    tool_choice: str | None = None

    @property
    def options(self) -> RequestOptions:
        """The same as a value of Perdure."""
        return RequestOptions(**dict(self))


def _not_too_often(policy: ModelRetryPolicy) -> ModelRetryPolicy:
    if policy.initial_interval < limits.HTTP_MODEL_RETRY:
        seconds = limits.HTTP_MODEL_RETRY.total_seconds()
        raise ValueError(
            f"initial_interval is {policy.initial_interval}; name at least {seconds} s"
        )
    return policy


ModelRetry = Annotated[ModelRetryPolicy, AfterValidator(_not_too_often)]
"""The retries while a provider is unavailable."""


class CommonOptions(Body):
    """What every operation takes that starts turns of an agent.

    Attributes:
        labels: Labels that turns can be found by.
        budget: The limits of what a turn may spend; each overrides the agent's. It needs the
            permission `budget`.
        max_iterations: The largest number of steps; it needs the permission `budget`.
        options: Temperature and the like; `max_output_tokens` needs the permission `budget`.
        model_retry: The retries while a provider is unavailable, instead of those of the agent; it
            needs the permission `budget`.
        allowed_tools: The only tools that are offered; null for every tool.
    """

    labels: dict[str, str] = {}
    budget: Budget | None = None
    max_iterations: Iterations | None = None
    options: ModelOptions | None = None
    model_retry: ModelRetry | None = None
    allowed_tools: tuple[str, ...] | None = None

    def common(self) -> dict[str, Any]:
        """Return the options as arguments of the client."""
        return {
            "labels": self.labels,
            "budget": self.budget,
            "max_iterations": self.max_iterations,
            "options": self.options and self.options.options,
            "model_retry": self.model_retry,
            "allowed_tools": self.allowed_tools,
        }


class Limit(Query):
    """The query of a list."""

    limit: Annotated[int, Field(ge=1, le=limits.HTTP_LIST)] = 50


class Paged(Limit):
    """The query of a list with pages. `after` is the cursor `next` of the page before."""

    after: Annotated[str, Field(max_length=1_000)] | None = None


class Labelled(Limit):
    """The query of a list with filters. `label` is `NAME=VALUE`, and may be repeated."""

    agent: str | None = None
    label: tuple[Annotated[str, Field(pattern="^[^=]+=")], ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """The labels as a mapping."""
        pairs = (label.partition("=") for label in self.label)
        return {name: value for name, _, value in pairs}


class LabelledPages(Labelled, Paged):
    """The query of a list with filters and pages."""


Seconds = Annotated[float, Field(ge=0, le=limits.HTTP_WAIT.total_seconds(), allow_inf_nan=False)]


class Reason(Body):
    """The reason for a request, for people."""

    reason: str = ""


class AddBudget(Body):
    """What to add to the budget of a session, a batch or a schedule."""

    budget: Budget


class Cancelled(Value):
    """Whether there was something to cancel: false for what is over already."""

    cancelled: bool


class Reference(Value):
    """The complete id of what was started, or the id of a message that was accepted."""

    id: str


def content_of(text: str, parts: UserParts) -> str | UserParts:
    """Return the content of a message: the text, and then the parts."""
    return parts_after(text, parts) or text


def check_limits(
    caller: Caller,
    budget: Budget | None,
    max_iterations: int | None = None,
    task: str | Task | None = None,
    options: ModelOptions | RequestOptions | None = None,
    model_retry: ModelRetryPolicy | None = None,
) -> None:
    """Refuse limits from a caller that may not set them, because they override those of the agent.

    Raises:
        RefusedError: The caller lacks the permission `budget`.
    """
    of_task = task.budget if isinstance(task, Task) else None
    of_answers = options.max_output_tokens if options else None
    if any(
        limit is not None for limit in (budget, max_iterations, of_task, of_answers, model_retry)
    ):
        caller.require("budget")
