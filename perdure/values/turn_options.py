"""The options of a turn, common to everything that starts a turn.

A new option is written in five places: here twice, as callers give it and as it is stored; in the
docstring of `AgentClient.start`; and as an option of the command line and an argument of the tool
`start_turn` of MCP (`clients/cli/options.py`, `clients/gateway/mcp/options.py`). The inputs of
turns and sessions, the bodies over HTTP and the functions of the client take it from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, TypedDict

from pydantic import AfterValidator, BaseModel, Field, JsonValue

from perdure import limits
from perdure.validation import Must, is_visible_line
from perdure.values.budgets import Budget, Iterations
from perdure.values.client_tools import ClientTool
from perdure.values.messages import Message
from perdure.values.model_retry import ModelRetryPolicy
from perdure.values.moments import Moment
from perdure.values.options import RequestOptions
from perdure.values.tasks import Context
from perdure.values.webhooks import WebhookUrl


def _one_line(subject: str) -> str:
    if not is_visible_line(subject, limits.SUBJECT_CHARACTERS) or subject != subject.strip():
        raise ValueError("it is not one line")
    return subject


Version = Annotated[
    str,
    Field(pattern=rf"^[A-Za-z0-9_-]{{1,{limits.NAME_CHARACTERS}}}$"),
    Must(f"1 to {limits.NAME_CHARACTERS} of A-Z, a-z, 0-9, _ and -"),
]
"""The name of a version of an agent as an argument or in JSON."""
Subject = Annotated[
    str,
    Field(min_length=1, max_length=limits.SUBJECT_CHARACTERS),
    AfterValidator(_one_line),
    Must(
        f"one line of 1 to {limits.SUBJECT_CHARACTERS} visible characters, without spaces around it"
    ),
]
"""The name of a data subject: the person or customer whose data it is."""


class SharedOptions(TypedDict, total=False):
    """The options that a session takes as well, for each of its turns."""

    labels: Mapping[str, str] | None
    budget: Budget | None
    max_iterations: int | None
    options: RequestOptions | None
    model_retry: ModelRetryPolicy | None
    allowed_tools: Sequence[str] | None
    instructions: str | None
    output_schema: Mapping[str, JsonValue] | None
    on_done: str | None
    on_wait: str | None
    version: str | None
    subject: str | None


class TurnOptions(SharedOptions, total=False):
    """The options of a turn, which `AgentClient.start` describes.

    Each is a field of the same name of `TurnRequest`.
    """

    context: Context | Mapping[str, str] | None
    history: Sequence[Message]
    delay: Moment | None
    deadline: Moment | None
    client_tools: Sequence[ClientTool]
    shared_state: Mapping[str, JsonValue]


class OptionMark(Enum):
    """What else holds for an option, in the annotation of its field.

    `LIMIT`: it overrides a limit of the agent, so callers of a gateway need a permission for it.
    `DELEGATED`: the turns of delegates have it as well.
    """

    LIMIT = "limit"
    DELEGATED = "delegated"


class StoredOptions(BaseModel):
    """The fields of `SharedOptions` in the inputs of turns and sessions, and in bodies over HTTP.

    Sessions, schedules and batches pass all of them on to their turns, and a fork keeps them. They
    are not part of the digest of a turn, except for `allowed_tools` and `instructions`.
    """

    labels: Annotated[dict[str, str], OptionMark.DELEGATED] = {}
    budget: Annotated[Budget | None, OptionMark.LIMIT] = None
    max_iterations: Annotated[Iterations | None, OptionMark.LIMIT] = None
    options: RequestOptions | None = None
    model_retry: Annotated[ModelRetryPolicy | None, OptionMark.LIMIT, OptionMark.DELEGATED] = None
    allowed_tools: tuple[str, ...] | None = None
    instructions: str | None = None
    output_schema: dict[str, JsonValue] | None = None
    on_done: WebhookUrl | None = None
    on_wait: Annotated[WebhookUrl | None, OptionMark.DELEGATED] = None
    version: Version | None = None
    subject: Annotated[Subject | None, OptionMark.DELEGATED] = None

    def passed_on(self, mark: OptionMark | None = None) -> dict[str, Any]:
        """Return the options by their names: all of them, or those with a mark."""
        names = StoredOptions.model_fields if mark is None else marked(mark)
        return {name: getattr(self, name) for name in names}


def marked(mark: OptionMark) -> list[str]:
    """Return the names of the options with a mark."""
    fields = StoredOptions.model_fields
    return [name for name, field in fields.items() if mark in field.metadata]
