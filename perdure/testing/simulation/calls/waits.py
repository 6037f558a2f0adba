"""Calls in a simulation that wait for a time or for an event."""

from __future__ import annotations

from datetime import timedelta

from perdure.agents.waiting import wait_tools
from perdure.testing.simulation.choices import Choices
from perdure.values.messages import ToolCall

WAITS = wait_tools(timedelta(days=40))
MONTH_S = 30 * 24 * 3600

_EVENTS = ("built", "tested")
_WAITS = {
    "wait": ("5", "0.2", "60", str(MONTH_S), "-1", "NaN", "9999999999"),
    "wait_for": ("5", "0.2", "60", str(MONTH_S), "null"),
}


def some_wait(choices: Choices) -> ToolCall:
    """Return a call that waits, some of them for what cannot be."""
    name = ("wait", "wait_for")[choices.about_waits(2)]
    some = _WAITS[name]
    seconds = some[choices.about_waits(len(some))]
    event = _EVENTS[choices.about_waits(len(_EVENTS))]
    values = f'"seconds": {seconds}' if name == "wait" else f'"event": "{event}"'
    timeout = f', "timeout": {seconds}' if name == "wait_for" else ""
    return ToolCall(id="", name=name, arguments=f'{{{values}{timeout}, "note": "n"}}')
