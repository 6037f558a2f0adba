"""The images and files of tool results as a model gets them. Pure; the transcript stays whole.

A model may not take a medium, and a provider refuses requests of more than some megabytes. Neither
ends a turn: a sentence is in the place of what is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure import limits
from perdure.values.messages import Media, Message, ToolMessage, ToolResult, without_some
from perdure.values.profiles import Sizes, lack_of

TOO_MANY = "left out, because newer ones fill the request"
REJECTED = "the provider of this model rejected the request with it"


def for_model(
    messages: Sequence[Message], sizes: Sizes | None, most_bytes: int = limits.MEDIA_BYTES
) -> tuple[Message, ...]:
    """Return `messages` with the media of tool results that a model takes.

    Args:
        messages: The messages to send.
        sizes: The limits of the model; None if they are unknown, and then everything is sent.
        most_bytes: The most base64 of results in one request. Above that, the oldest are left out
            until half of it remains, so that many requests begin the same way.
    """
    if not any(_has_media(message) for message in messages):
        return tuple(messages)
    taken = _replaced(messages, lambda media: _lack(media, sizes))
    old = _old(taken, most_bytes)
    dropped = iter(range(old))
    return _replaced(taken, lambda _: TOO_MANY if next(dropped, None) is not None else "")


def without_results_media(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return `messages` without any media of tool results, for a provider that rejected them."""
    return _replaced(messages, lambda _: REJECTED)


def _lack(media: Media, sizes: Sizes | None) -> str:
    lack = lack_of(media, sizes)
    return f"this model {lack}" if lack else ""


def _old(messages: Sequence[Message], most_bytes: int) -> int:
    """Return the number of oldest media to leave out.

    It follows from the beginning of the messages: a longer transcript never sends an old image or
    file again.
    """
    weights = [
        len(media.data or "")
        for message in messages
        if isinstance(message, ToolMessage)
        for media in message.media
    ]
    gone = total = 0
    for position, weight in enumerate(weights):
        total += weight
        if total <= most_bytes:
            continue
        while gone < position and total > most_bytes // 2:
            total -= weights[gone]
            gone += 1
    return gone


def _replaced(messages: Sequence[Message], why: Callable[[Media], str]) -> tuple[Message, ...]:
    return tuple(
        message.map(lambda result: _without(result, why))
        if isinstance(message, ToolMessage) and _has_media(message)
        else message
        for message in messages
    )


def _without(result: ToolResult, why: Callable[[Media], str]) -> ToolResult:
    content, media = without_some(result.content, result.media, why)
    return result.model_copy(update={"content": content, "media": media})


def _has_media(message: Message) -> bool:
    return isinstance(message, ToolMessage) and any(result.media for result in message.results)
