"""The tools with which an agent waits: for a time, or for an event."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NoReturn

from perdure import errors
from perdure.agents.tools import Tool
from perdure.agents.waits import Action, PinnedWait
from perdure.values.moments import period_in_words

_WAIT = (
    "Wait, and go on afterwards: for a number of seconds, or until a moment. Nothing runs and"
    " nothing is paid meanwhile. A message of the user ends the wait early. The longest wait is"
    " {longest}."
)
_WAIT_FOR = (
    "Wait until an event of this name comes from outside, and get what it holds. An event that came"
    " earlier and that nobody has waited for ends the wait at once. A message of the user ends the"
    " wait early, and so does the timeout. The longest wait is {longest}."
)
_NOTE = {
    "type": "string",
    "description": "What you wait for, in one line: people who look at this task read it.",
}
_KEY = {
    "type": "string",
    "description": (
        "Only for an event of the outside world, which is not sent to this task alone: what it is"
        " about, as build_finished with the number of the build. One that came within the last hour"
        " ends the wait at once."
    ),
}


def wait_tools(longest: timedelta) -> tuple[Tool[..., Any], ...]:
    """Return the tools `wait` and `wait_for`, with the longest wait of a call."""
    seconds = {"type": "number", "description": "How long, in seconds."}
    moment = {
        "type": "string",
        "description": "In place of seconds: a date with a time zone, as 2030-12-01T18:00:00Z.",
    }
    event = {"type": "string", "description": "The name of the event, as it is sent."}
    timeout = {
        "type": "number",
        "description": "How long at most, in seconds; as long as possible without it.",
    }
    for_a_time = {"seconds": seconds, "until": moment, "note": _NOTE}
    for_an_event = {"event": event, "key": _KEY, "timeout": timeout, "note": _NOTE}
    return (
        _tool("wait", _WAIT, longest, for_a_time),
        _tool("wait_for", _WAIT_FOR, longest, for_an_event),
    )


def _tool(
    action: Action, description: str, longest: timedelta, properties: dict[str, Any]
) -> Tool[..., Any]:
    """Return a tool that a turn performs itself."""
    required = ["event", "note"] if action == "wait_for" else ["note"]
    made = Tool.from_schema(
        _only_in_a_turn,
        name=action,
        description=description.format(longest=period_in_words(longest)),
        parameters={
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        read_only=True,
    )
    made.wait = PinnedWait(
        action=action, longest_s=longest.total_seconds(), has_keys=action == "wait_for"
    )
    return made


def _only_in_a_turn(**_: Any) -> NoReturn:
    raise errors.ConfigurationError(
        "only a turn can wait: the workflow does so itself, and nobody calls this function"
    )
