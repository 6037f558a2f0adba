"""Estimates of the number of tokens in a request. Pure.

`perdure.values.prices` bounds them by one token per byte. That is several times too high for
checking whether a request fits into a model's window, so this is an estimate: three bytes of text
per token at first, then the provider's last count. Because it is an estimate, only
`limits.WINDOW_SHARE` of a window is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.base import replace
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
"""The bytes of text per token: about 4 in English prose, 3 in code and in Chinese, 2 in numbers.

A token has at least one byte.
"""
MOST_BYTES_A_TOKEN = 6
"""The most plausible bytes per token: lower counts are incomplete; some omit cached tokens."""
MEDIA_TOKENS = 1_600
"""The tokens of an image or file. Vendors count 85 to 4,784 for an image, any number for a file."""
MESSAGE_TOKENS = 4
"""The tokens of the markers around a message."""


def tokens(message: Message) -> int:
    """Return the approximate number of tokens of a message, by its bytes alone."""
    return MESSAGE_TOKENS + sum(map(_tokens_of, parts(message)))


def _tokens_of(part: Part) -> int:
    if isinstance(part, Media):
        return MEDIA_TOKENS
    attached = len(part.media) if isinstance(part, ToolResult) else 0
    return weight(part) // BYTES_A_TOKEN + MEDIA_TOKENS * attached


def parts(message: Message) -> Sequence[Part]:
    """Return the parts of a message."""
    return message.results if isinstance(message, ToolMessage) else message.parts


def weight(part: Part) -> int:
    """Return the bytes of the text in a part; 0 for an image or a file."""
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


@dataclass(frozen=True)
class Estimate:
    """The estimated tokens of a turn's next request if nothing is left out.

    The sums grow with the transcript, so that reading the estimate is cheap.

    Attributes:
        base: The tokens before the messages, by their bytes: instructions, tools, the schema of the
            answer.
        messages: The tokens of all messages, by their bytes.
        told: The provider's count for the last request; 0 if it reported none.
        told_of: The tokens of that request, by its bytes.
    """

    base: int = 0
    messages: int = 0
    told: int = 0
    told_of: int = 0

    def on(self, base_bytes: int) -> Estimate:
        """Return the estimate with this number of bytes before the messages."""
        return replace(self, base=base_bytes // BYTES_A_TOKEN)

    def plus(self, message: Message) -> Estimate:
        """Return the estimate with another message in the transcript."""
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

        Changes since the provider's last count are estimated at the rate of that count. Text has at
        most one token per byte, so a count above that includes something else, such as a file, and
        that part stays.
        """
        plain = self._plain(saved)
        if not self.told:
            return plain
        reported = max(self.told, self.told_of * BYTES_A_TOKEN // MOST_BYTES_A_TOKEN)
        rate = min(reported / self.told_of, BYTES_A_TOKEN)
        return reported + round(rate * (plain - self.told_of))

    def _plain(self, saved: int) -> int:
        return self.base + self.messages - saved
