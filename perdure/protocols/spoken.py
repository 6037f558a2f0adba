"""A transcript in words.

Calls as what a model without tool calls would have written, results as messages of the user.

Users and the model take turns in it, because the chat templates of some small models refuse
anything else. Several calls of one answer, which another model may have made, are written as one
after the other. What is sent only grows at its end when the transcript does.
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
    """How things are said: a call and an answer, each with the thought before it, and a result.

    `objection` is how the words to a model begin whose answer was neither: that answer is sent as
    it was written.
    """

    call: Callable[[str, ToolCall], str]
    answer: Callable[[str, str], str]
    result: Callable[[ToolResult], str]
    objection: str


def in_words(messages: Sequence[Message], words: Words) -> tuple[Message, ...]:
    """`messages` without calls and results."""
    return tuple(_taking_turns(_said(messages, words)))


def reasoning(message: AssistantMessage) -> tuple[Thinking, ...]:
    """The thinking that a provider gave or wants back, which is no Thought of ours."""
    return tuple(part for part in message.parts if isinstance(part, Thinking))


def _said(messages: Sequence[Message], words: Words) -> Iterator[Message]:
    for message, after in zip_longest(messages, messages[1:]):
        if isinstance(message, UserMessage):
            yield message
        elif isinstance(message, AssistantMessage) and message.calls:
            yield from _acted(
                message, after.results if isinstance(after, ToolMessage) else (), words
            )
        elif isinstance(message, AssistantMessage):
            is_raw = isinstance(after, UserMessage) and after.text.startswith(words.objection)
            yield _message(
                message, message.text if is_raw else words.answer(_thought(message), message.text)
            )


def _acted(
    message: AssistantMessage, results: Sequence[ToolResult], words: Words
) -> Iterator[Message]:
    for index, call in enumerate(message.calls):
        text = words.call("" if index else _thought(message), call)
        yield AssistantMessage(parts=(Text(text=text),)) if index else _message(message, text)
        if index < len(results):
            yield UserMessage.of(words.result(results[index]))


def _message(message: AssistantMessage, text: str) -> AssistantMessage:
    """The words, after the thinking that its provider wants back unchanged."""
    return AssistantMessage(
        parts=(
            *(part for part in reasoning(message) if part.signature or part.redacted),
            Text(text=text),
        )
    )


def _thought(message: AssistantMessage) -> str:
    """The last thinking that is nobody's but ours, and the words beside a call."""
    thoughts = [
        part.text for part in reasoning(message) if not part.signature and not part.redacted
    ]
    return "\n".join(
        text for text in (*thoughts[-1:], message.text if message.calls else "") if text
    )


def _taking_turns(messages: Iterable[Message]) -> Iterator[Message]:
    asked: UserMessage | None = None
    for message in messages:
        if isinstance(message, UserMessage):
            asked = message if asked is None else _joined(asked, message)
        else:
            yield from () if asked is None else (asked,)
            yield message
            asked = None
    if asked is not None:
        yield asked


def _joined(first: UserMessage, then: UserMessage) -> UserMessage:
    match first.parts[-1:] + then.parts[:1]:
        case (Text(text=end), Text(text=begin)):
            return UserMessage(
                parts=(*first.parts[:-1], Text(text=f"{end}\n\n{begin}"), *then.parts[1:])
            )
        case _:
            return UserMessage(parts=(*first.parts, *then.parts))
