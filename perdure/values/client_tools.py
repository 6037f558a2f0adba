"""Tools that the client of a turn runs itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field, JsonValue

from perdure import limits
from perdure.base import Wire
from perdure.text import size
from perdure.validation import Given, Must


class ClientTool(Given):
    """A tool that a turn is started with, and that its client runs.

    A call of it waits for the client, which sends the result.

    Attributes:
        name: 1 to 64 characters of A-Z, a-z, 0-9, _ and -.
        description: What it does, for the model.
        parameters: The JSON schema of its arguments, of the type `object`.
    """

    name: Annotated[
        str,
        Field(pattern=rf"^[A-Za-z0-9_-]{{1,{limits.NAME_CHARACTERS}}}$"),
        Must("1 to 64 of A-Z, a-z, 0-9, _ and -"),
    ]
    description: str = ""
    parameters: dict[str, JsonValue] = {"type": "object", "properties": {}}


def tools_size(tools: Sequence[ClientTool]) -> int:
    """Return the bytes of tools, as JSON."""
    return sum(size(tool.model_dump_json()) for tool in tools)


class ClientCall(Wire):
    """A call of a tool of the client that waits for its result.

    Attributes:
        call_id: The id of the call in its turn.
        tool: The tool that is called.
        arguments: The arguments, as JSON text, as the model wrote it.
        token: The key to the call, for `AgentClient.finish_call`.
        since: When it began to wait.
        expires_at: When the call is given up.
    """

    call_id: str
    tool: str
    arguments: str
    token: str = Field(repr=False)
    since: datetime
    expires_at: datetime
