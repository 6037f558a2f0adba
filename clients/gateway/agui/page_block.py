"""What the user interface says beside a message, as its model reads it: a block before the text."""

from __future__ import annotations

from typing import Any

from ag_ui.core import RunAgentInput
from pydantic_core import to_json

from perdure.clients.gateway import subjects

_BEGIN, _END = "<user_interface>\n", "\n</user_interface>\n\n"


def block_of(run: RunAgentInput) -> str:
    """Return the context, the state and the properties of a run, as JSON; empty without any."""
    given: dict[str, Any] = {
        "context": [
            item.model_dump(include={"description", "value"}) for item in run.context or ()
        ],
        "state": run.state,
        "forwardedProps": _forwarded(run.forwarded_props),
    }
    present = {name: value for name, value in given.items() if value}
    return f"{_BEGIN}{to_json(present).decode()}{_END}" if present else ""


def subject_of(run: RunAgentInput) -> object:
    """Return what the properties of a run have as its data subject; None without one."""
    properties = run.forwarded_props
    return properties.get(subjects.FIELD) if isinstance(properties, dict) else None


def _forwarded(properties: Any) -> Any:
    """Return the properties that the model reads, without the data subject."""
    return subjects.labels_in(properties) if isinstance(properties, dict) else properties


def without_block(text: str) -> str:
    """Return a message as the user wrote it."""
    if not text.startswith(_BEGIN):
        return text
    return text.partition(_END)[2] or text
