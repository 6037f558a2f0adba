"""How much of a session the next turn begins with. Pure."""

from __future__ import annotations

from perdure import limits
from perdure.turn.media import without_oldest
from perdure.values.messages import Message, canonical


def bounded(
    messages: tuple[Message, ...], starts: tuple[int, ...]
) -> tuple[tuple[Message, ...], tuple[int, ...], int]:
    """Leave out the oldest turns, so that the messages have at most `SESSION_BYTES`.

    Before a turn is left out, sentences take the place of the images and files in messages of the
    user. The last turn stays as it is. Returns the number of turns left out as well.
    """
    sizes = [len(canonical(message)) for message in messages]
    total, dropped = sum(sizes), 0
    if total > limits.SESSION_BYTES and starts:
        room = limits.SESSION_BYTES - sum(sizes[starts[-1] :])
        messages = (
            *without_oldest(messages[: starts[-1]], room, only_users=True),
            *messages[starts[-1] :],
        )
        sizes = [len(canonical(message)) for message in messages]
        total = sum(sizes)
    while total > limits.SESSION_BYTES and dropped + 1 < len(starts):
        total -= sum(sizes[starts[dropped] : starts[dropped + 1]])
        dropped += 1
    if not dropped:
        return messages, starts, 0
    first = starts[dropped]
    return messages[first:], tuple(start - first for start in starts[dropped:]), dropped
