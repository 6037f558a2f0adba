"""What a tool does that waits for its turn, as a turn is pinned to it."""

from __future__ import annotations

from typing import Literal

from perdure.base import Wire

Action = Literal["wait", "wait_for"]


class PinnedWait(Wire):
    """What the turn itself does for a call of a tool.

    Attributes:
        action: `wait` for a time, or `wait_for` an event.
        longest_s: The longest wait of a call, in seconds.
    """

    action: Action
    longest_s: float
