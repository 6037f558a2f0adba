"""Estimates of the number of tokens in a request. Pure.

`perdure.values.prices` bounds them by a token for each byte. That is several times too much for
checking whether a request fits a model's window, so this is an estimate: three bytes of text for a
token, and then what the provider counted the last time. Because it is an estimate, only
`limits.WINDOW_SHARE` of a window is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perdure.text import size
from perdure.values.messages import (
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
)

Part = Text | Thinking | Media | ToolCall | ToolResult

BYTES_A_TOKEN = 3
"""Of text: about 4 in English prose, 3 in code and in Chinese, 2 in numbers.

A token has at least one.
"""
MOST_BYTES_A_TOKEN = 6
"""A provider that counts fewer tokens has not counted all: some omit cached tokens."""
MEDIA_TOKENS = 1_600
"""For an image or a file. Vendors make 85 to 4,784 of an image, and any number of a file."""
MESSAGE_TOKENS = 4
"""The markers around a message."""


def tokens(message: Message) -> int:
    """About so many tokens a message has, by its bytes alone."""
    return MESSAGE_TOKENS + sum(
        MEDIA_TOKENS if isinstance(part, Media) else weight(part) // BYTES_A_TOKEN
        for part in parts(message)
    )


def parts(message: Message) -> Sequence[Part]:
    """What a message is made of."""
    return message.results if isinstance(message, ToolMessage) else message.parts


def weight(part: Part) -> int:
    """Bytes of the text in a part; of a medium there are none."""
    match part:
        case Text():
            return size(part.text)
        case Thinking():
            return size(part.text) + size(part.signature or "") + size(part.redacted or "")
        case ToolCall():
            return size(part.name) + size(part.arguments)
        case ToolResult():
            return size(part.content)
        case Media():
            return 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the next request of a turn would have if nothing were left out.

    Sums that grow with the transcript, so that asking costs nothing.

    Attributes:
        base: Tokens of what stands before the messages, by its bytes: instructions, tools, the
            schema of the answer.
        messages: Tokens of all messages, by their bytes.
        told: What the provider counted for the last request; 0 where it has not said.
        told_of: What that request was by its bytes.
    """

    base: int = 0
    messages: int = 0
    told: int = 0
    told_of: int = 0

    def on(self, base_bytes: int) -> Estimate:
        """With so many bytes before the messages."""
        return replace(self, base=base_bytes // BYTES_A_TOKEN)

    def plus(self, message: Message) -> Estimate:
        """With one more message in the transcript."""
        return replace(self, messages=self.messages + tokens(message))

    def counted(self, input_tokens: int, saved: int = 0) -> Estimate:
        """Return the estimate with a provider's count for all of this except `saved` tokens.

        `input_tokens` is 0 if the provider reports none.
        """
        return (
            replace(self, told=input_tokens, told_of=max(self._plain(saved), 1))
            if input_tokens > 0
            else self
        )

    def tokens(self, saved: int = 0) -> int:
        """Return the approximate number of tokens of the request without `saved` of them.

        `saved` is estimated by bytes.

        What has changed since the provider counted counts at the rate that it counted at. Text has
        no more than a token for each byte, so what it counted above that is something else, such as
        a file, and stays.
        """
        plain = self._plain(saved)
        if not self.told:
            return plain
        told = max(self.told, self.told_of * BYTES_A_TOKEN // MOST_BYTES_A_TOKEN)
        rate = min(told / self.told_of, BYTES_A_TOKEN)
        return told + round(rate * (plain - self.told_of))

    def _plain(self, saved: int) -> int:
        return self.base + self.messages - saved
