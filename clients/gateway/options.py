"""The parts of bodies and queries that several operations share."""

from __future__ import annotations

import functools
import inspect
from typing import Annotated, Any

import docstring_parser
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from perdure import limits
from perdure.base import Value
from perdure.clients.client import AgentClient
from perdure.clients.gateway import subjects
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.inputs import Body, Query
from perdure.temporal.priorities import LAST_PRIORITY
from perdure.values.budgets import Budget
from perdure.values.content import parts_after
from perdure.values.messages import UserParts
from perdure.values.model_retry import ModelRetryPolicy
from perdure.values.options import RequestOptions
from perdure.values.tasks import Task
from perdure.values.turn_options import OptionMark, StoredOptions, marked


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


@functools.cache
def _descriptions() -> dict[str, str]:
    """Return the descriptions of the options, from the docstring of `AgentClient.start`."""
    docstring = docstring_parser.parse(inspect.getdoc(AgentClient.start) or "")
    texts = {item.arg_name: " ".join((item.description or "").split()) for item in docstring.params}
    needs = dict.fromkeys(marked(OptionMark.LIMIT), " It needs the permission `budget`.")
    needs["version"] = " It needs the permission `override`."
    return {name: texts.get(name, "") + needs.get(name, "") for name in StoredOptions.model_fields}


def _describe(schema: dict[str, Any], body: type[BaseModel]) -> None:
    """Add the descriptions to the schema of a body, unless its docstring has another one."""
    for name, text in _descriptions().items():
        if f" {name}: " not in (body.__doc__ or ""):
            schema["properties"][name].setdefault("description", text)


class CommonOptions(StoredOptions, Body):
    """What every operation takes that starts turns of an agent."""

    model_config = ConfigDict(json_schema_extra=_describe)

    options: ModelOptions | None = Field(  # type: ignore[assignment]  # without `extra`
        default=None,
        description="Temperature and the like; `max_output_tokens` needs the permission `budget`.",
    )
    model_retry: ModelRetry | None = None
    priority: Annotated[int, Field(ge=1, le=LAST_PRIORITY)] | None = Field(
        default=None,
        description="From 1, the first, to 5, the last, where work waits for workers; 3 by default."
        " It needs the permission `override`.",
    )

    def common(self, caller: Caller) -> dict[str, Any]:
        """Return the options as arguments of the client. A data subject is one of the tenant's."""
        options = self.options and self.options.options
        return {
            **self.passed_on(),
            "options": options,
            "priority": self.priority,
            "subject": subjects.own(caller, self.subject),
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


def check_limits(caller: Caller, body: BaseModel, *budgets: Budget | None) -> None:
    """Refuse limits from a caller that may not set them, because they override those of the agent.

    Args:
        caller: The caller.
        body: The body of the request. Its fields of the names of limits count, and the output limit
            in its `options`.
        budgets: Other budgets in it.

    Raises:
        RefusedError: The caller lacks the permission `budget`, or `override` for a priority or a
            version.
    """
    if any(getattr(body, name, None) is not None for name in ("priority", "version")):
        caller.require("override")
    options = getattr(body, "options", None)
    limits_ = (getattr(body, name, None) for name in marked(OptionMark.LIMIT))
    tokens = options.max_output_tokens if options else None
    if any(limit is not None for limit in (*limits_, *budgets, tokens)):
        caller.require("budget")


def budget_of(task: str | Task) -> Budget | None:
    """Return the budget that a task has itself."""
    return task.budget if isinstance(task, Task) else None
