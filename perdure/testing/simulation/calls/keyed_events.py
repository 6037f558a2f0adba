"""Calls in a simulation that wait for events by key, and the events that are sent."""

from __future__ import annotations

import json

from perdure.testing.simulation.calls.waits import MONTH_S
from perdure.testing.simulation.choices import Choices
from perdure.values.messages import ToolCall

KEYED = "keyed events"
"""The feature of events by key, and the sequence of all that has to do with them."""

PLACES = (("built", "1"), ("built", "2"), ("tested", "1"))
"""The names and keys of the events that there are."""

_TIMEOUTS_S = (60, None, 600, None, 7200, MONTH_S, 0.2)


def some_keyed_wait(choices: Choices) -> ToolCall:
    """Return a call that waits for an event by key."""
    event, key = choices.pick(PLACES, beside=KEYED)
    arguments = {
        "event": event,
        "key": key,
        "timeout": choices.pick(_TIMEOUTS_S, beside=KEYED),
        "note": "n",
    }
    return ToolCall(id="", name="wait_for", arguments=json.dumps(arguments))
