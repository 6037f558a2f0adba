"""The images and files of a transcript as a model gets them. Pure; the transcript stays whole.

A model may not take a medium, and a provider refuses requests of more than some megabytes. For tool
results, and for messages to a running turn or a session, neither ends a turn: a sentence is in the
place of what is not sent. What a turn begins with is sent, or another model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from perdure import limits
from perdure.values.messages import (
    Media,
    Message,
    Text,
    ToolMessage,
    ToolResult,
    UserMessage,
    canonical,
    in_brief,
    without_some,
)
from perdure.values.profiles import Sizes, lack_of

TOO_MANY = "left out, because newer ones fill the request"
OLD = "left out, because newer messages fill the session"
REJECTED = "the provider of this model rejected the request with it"


def for_model(
    messages: Sequence[Message], sizes: Sizes | None, most_bytes: int = limits.MEDIA_BYTES
) -> tuple[Message, ...]:
    """Return `messages` with the media that a model takes.

    Args:
        messages: The messages to send.
        sizes: The limits of the model; None if they are unknown, and then everything is sent.
        most_bytes: The most base64 in one request, of tool results and of messages to the running
            turn. Above that, the oldest are left out until half of it remains, so that many
            requests begin the same way.
    """
    if not any(map(_media_of, messages)):
        return tuple(messages)
    taken = tuple(_without(message, lambda media: _lack(media, sizes)) for message in messages)
    dropped = iter(range(_old(taken, most_bytes)))
    return tuple(
        _without(message, lambda _: TOO_MANY if next(dropped, None) is not None else "")
        if _came_later(message)
        else message
        for message in taken
    )


def without_rejected(
    messages: Sequence[Message], required: Collection[Media] = ()
) -> tuple[Message, ...]:
    """Return `messages` without the media that a provider may have rejected.

    `required` are those that the turn was given as its task, which are sent or the turn fails.
    """

    def of_a_user(media: Media) -> str:
        return "" if media in required else REJECTED

    return tuple(
        _without(message, of_a_user if isinstance(message, UserMessage) else lambda _: REJECTED)
        for message in messages
    )


def without_oldest(
    messages: Sequence[Message], most_bytes: int, *, only_users: bool = False
) -> tuple[Message, ...]:
    """Return `messages` of at most `most_bytes`, if that is possible without their oldest media.

    Media with an address stay, and with `only_users` those of tool results.
    """
    sizes = [len(canonical(message)) for message in messages]
    out, total = list(messages), sum(sizes)
    for index, message in enumerate(messages):
        if total <= most_bytes:
            break
        if only_users and not isinstance(message, UserMessage):
            continue
        out[index] = _without(message, lambda media: OLD if media.data else "")
        total += len(canonical(out[index])) - sizes[index]
    return tuple(out)


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
        if _came_later(message)
        for media in _media_of(message)
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


def _came_later(message: Message) -> bool:
    """Return whether a message came while its turn ran: a tool result, or one of the user."""
    return isinstance(message, ToolMessage) or (
        isinstance(message, UserMessage) and message.id is not None
    )


def _media_of(message: Message) -> tuple[Media, ...]:
    return message.media if isinstance(message, ToolMessage | UserMessage) else ()


def _without(message: Message, why: Callable[[Media], str]) -> Message:
    """Return a message without the media for which `why` has a reason."""
    if not _media_of(message):
        return message
    match message:
        case ToolMessage():
            return message.map(lambda result: _result_without(result, why))
        case UserMessage():
            return message.model_copy(
                update={"parts": tuple(_part_without(part, why) for part in message.parts)}
            )
        case _:
            return message


def _result_without(result: ToolResult, why: Callable[[Media], str]) -> ToolResult:
    content, media = without_some(result.content, result.media, why)
    return result.model_copy(update={"content": content, "media": media})


def _part_without(part: Text | Media, why: Callable[[Media], str]) -> Text | Media:
    reason = why(part) if isinstance(part, Media) else ""
    return Text(text=in_brief(part, reason)) if reason and isinstance(part, Media) else part
