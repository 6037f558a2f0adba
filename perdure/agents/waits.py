"""What a tool does that waits for its turn, as a turn is pinned to it."""

from __future__ import annotations

from operator import not_
from typing import Literal

from pydantic import Field

from perdure.base import Wire

Action = Literal["wait", "wait_for"]


class PinnedWait(Wire):
    """What the turn itself does for a call of a tool.

    Attributes:
        action: `wait` for a time, or `wait_for` an event.
        longest_s: The longest wait of a call, in seconds.
        has_keys: Whether it waits for an event by key if a call has one.
    """

    action: Action
    longest_s: float
    has_keys: bool = Field(default=False, exclude_if=not_)
