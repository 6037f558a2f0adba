"""What other systems deliver to the hooks of a simulated gateway, as the promises look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SentDelivery:
    """A delivery, however often it is sent.

    Attributes:
        starts: What it is to start.
        id: The id of the turn or of the message that it starts.
        text: The task or the message.
        is_signed: Whether its sender knows the secret of the hook.
        is_answered: Whether the gateway has said that it is recorded.
    """

    starts: Literal["turn", "message", "result"]
    id: str
    text: str
    is_signed: bool
    is_answered: bool = False
