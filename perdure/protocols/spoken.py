"""Renders a transcript as text: calls as the model would write them, results as user messages.

The user and the model alternate, because some small models' chat templates reject anything else.
Several calls of one answer, which may be another model's, are rendered in order. The result only
grows at its end as the transcript grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from perdure.values.messages import (
    AssistantMessage,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)


@dataclass(frozen=True, slots=True)
class Words:
    """The templates of a protocol: a call and an answer, each with its thought, and a result.

    `objection` is the beginning of the message to a model whose answer was neither: such an answer
    is sent as it was written.
    """

    call: Callable[[str, ToolCall], str]
    answer: Callable[[str, str], str]
    result: Callable[[ToolResult], str]
    objection: str


def in_words(messages: Sequence[Message], phrases: Words) -> tuple[Message, ...]:
    """Return `messages` without calls and results."""
    return tuple(_alternating(_rendered(messages, phrases)))


def reasoning(message: AssistantMessage) -> tuple[Thinking, ...]:
    """Return the thinking of a message."""
    return tuple(part for part in message.parts if isinstance(part, Thinking))


def _rendered(messages: Sequence[Message], phrases: Words) -> Iterator[Message]:
    for message, after in zip_longest(messages, messages[1:]):
        if isinstance(message, UserMessage):
            yield message
        elif isinstance(message, AssistantMessage) and message.calls:
            yield from _rendered_calls(
                message, after.results if isinstance(after, ToolMessage) else (), phrases
            )
        elif isinstance(message, AssistantMessage):
            is_raw = isinstance(after, UserMessage) and after.text.startswith(phrases.objection)
            yield _message(
                message, message.text if is_raw else phrases.answer(_thought(message), message.text)
            )


def _rendered_calls(
    message: AssistantMessage, results: Sequence[ToolResult], phrases: Words
) -> Iterator[Message]:
    for index, call in enumerate(message.calls):
        text = phrases.call("" if index else _thought(message), call)
        yield AssistantMessage(parts=(Text(text=text),)) if index else _message(message, text)
        if index < len(results):
            text_part = Text(text=phrases.result(results[index]))
            yield UserMessage(parts=(text_part, *results[index].media))


def _message(message: AssistantMessage, text: str) -> AssistantMessage:
    """Return a message with this text, after thinking that its provider requires unchanged."""
    return AssistantMessage(
        parts=(
            *(part for part in reasoning(message) if part.signature or part.redacted),
            Text(text=text),
        )
    )


def _thought(message: AssistantMessage) -> str:
    """Return the last unsigned thinking, followed by the text beside a call."""
    thoughts = [
        part.text for part in reasoning(message) if not part.signature and not part.redacted
    ]
    return "\n".join(
        text for text in (*thoughts[-1:], message.text if message.calls else "") if text
    )


def _alternating(messages: Iterable[Message]) -> Iterator[Message]:
    pending: UserMessage | None = None
    for message in messages:
        if isinstance(message, UserMessage):
            pending = message if pending is None else _joined(pending, message)
        else:
            yield from () if pending is None else (pending,)
            yield message
            pending = None
    if pending is not None:
        yield pending


def _joined(first: UserMessage, then: UserMessage) -> UserMessage:
    match first.parts[-1:] + then.parts[:1]:
        case (Text(text=end), Text(text=begin)):
            return UserMessage(
                parts=(*first.parts[:-1], Text(text=f"{end}\n\n{begin}"), *then.parts[1:])
            )
        case _:
            return UserMessage(parts=(*first.parts, *then.parts))
