"""Handoffs: the agents to which an agent may hand its turn over, and the tool for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from perdure import errors, validation
from perdure.base import Wire

HAND_OVER = "hand_over"
"""A reserved name: no other tool may have it."""

Keep = Literal["all", "last", "task"]
"""What the next agent is sent of the conversation."""

_DESCRIPTION = (
    "Hand this conversation over to another agent, which goes on in your place and answers the"
    " user. Call this tool alone, and only if you do not answer yourself. To announce a handover in"
    " your answer does not hand over.\nThe agents:\n{agents}"
)


@dataclass(frozen=True)
class Handoff:
    """An agent to which another agent may hand its turn over, with options.

    Attributes:
        name: The agent's name.
        keep: What the agent is sent of the conversation so far: `all` of it; the task and the
            `last` exchange, which is the answer that handed over; or the `task` and the message of
            the agent that handed over. Later messages of users are always sent.

    Raises:
        ConfigurationError: A value is not valid.
    """

    name: validation.Text
    keep: Keep = "all"

    def __post_init__(self) -> None:
        validation.check("handoff", {"name": self.name}, {"name": validation.Text})
        validation.check_fields(Handoff, f"handoff {self.name}", self)


class PinnedHandoff(Wire):
    """A handoff as a turn is pinned to it.

    If a factory makes the agent, `description` is that of the factory.
    """

    name: str
    description: str = ""
    keep: Keep = "all"


def check_known(handoffs: Sequence[Handoff], agent: str, known: Iterable[str]) -> None:
    """Refuse a handoff to an agent that is not among the `known` ones.

    Raises:
        UnknownAgentError: The agent has such a handoff.
    """
    names = set(known)
    for item in handoffs:
        if item.name not in names:
            raise errors.UnknownAgentError(
                f"agent {agent} hands over to {item.name!r}, which this worker does not know; it"
                f" knows {', '.join(sorted(names))}",
                context={"agent": item.name},
            )


def tool(handoffs: Sequence[PinnedHandoff]) -> tuple[str, dict[str, JsonValue]]:
    """Return the description and the schema of the tool that handoffs add."""
    lines = (
        f"- {item.name}: {item.description}" if item.description else f"- {item.name}"
        for item in handoffs
    )
    name: dict[str, JsonValue] = {"type": "string", "description": "The agent's name."}
    if handoffs:  # providers refuse an empty enum
        name["enum"] = [item.name for item in handoffs]
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {
            "agent": name,
            "message": {
                "type": "string",
                "description": "What the agent has to know: what is asked for, and what is done.",
            },
        },
        "required": ["agent", "message"],
        "additionalProperties": False,
    }
    return _DESCRIPTION.format(agents="\n".join(lines)), schema
