"""The toolbox with which an agent waits, and is reminded."""

from __future__ import annotations

from datetime import timedelta

from perdure import limits, validation
from perdure.activities.toolboxes.reminders import reminder_tools
from perdure.agents.tools import Toolbox
from perdure.agents.waiting import wait_tools


def waiting(*, longest: timedelta = limits.LONGEST_WAIT) -> Toolbox:
    """Return a toolbox named "waiting" with the tools `wait` and `wait_for`.

    The turn itself waits: no worker holds the call. The time counts towards the time budget of the
    turn. In a session there are `remind`, `reminders` and `forget_reminder` as well.

    Args:
        longest: The longest wait of a call; the default is a day.

    Raises:
        ConfigurationError: `longest` is not a time, or longer than ten years.
    """
    validation.check("waiting", {"longest": longest}, {"longest": validation.Time})
    return Toolbox("waiting", [*wait_tools(longest), *reminder_tools()])
