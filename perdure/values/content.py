"""The content of a message of the user: text, or text with images and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic_core import to_json

from perdure import errors, validation
from perdure.text import clean
from perdure.validation import Must
from perdure.values.messages import Media, Text, UserParts, brief_text, is_base64


def _is_content(value: object) -> bool:
    if isinstance(value, str):
        return validation.accepts(validation.Message, value)
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        return False
    return bool(value) and all(isinstance(part, Text | Media) for part in value)


Content = Annotated[
    str | Sequence[Text | Media],
    Must("a message, not empty: text, or a list of Text and Media", _is_content),
]
"""The content of a message, as a caller gives it."""


class MessageContent(NamedTuple):
    """The content of a message, as it is recorded.

    Attributes:
        text: The text of a message without images and files; empty for one with them, so that a
            worker of an earlier release, which does not know `parts`, refuses the message.
        parts: The parts of a message with images or files; empty for text alone.
    """

    text: str
    parts: UserParts = ()

    @classmethod
    def of(cls, content: str | Sequence[Text | Media]) -> MessageContent:
        """Return the content of a message that a caller gives.

        Raises:
            InvalidRequestError: It has no text and no image or file, or one of its parts is not
                valid.
        """
        if isinstance(content, str):
            return cls(content)
        parts = tuple(content)
        if any(isinstance(part, Media) for part in parts):
            check_parts(parts)
            return cls("", parts)
        text = brief_text(parts)
        validation.check(
            "the message",
            {"content": text},
            {"content": validation.Message},
            errors.InvalidRequestError,
        )
        return cls(text)

    @classmethod
    def recorded(cls, text: str, parts: UserParts) -> MessageContent:
        """Return the content that was sent: programs may send a text and parts after it."""
        return cls("", parts_after(text, parts)) if parts else cls(text)

    @property
    def brief(self) -> str:
        """The text for people, with the kind and size of each image and file in its place."""
        return brief_text(self.parts) if self.parts else self.text


MEDIA_ELSEWHERE = (
    "give images and files as addresses that the provider fetches, or Temporal's client an external"
    " storage"
)
"""What helps if the images and files of a message are too large."""


def parts_after(text: str, parts: UserParts) -> UserParts:
    """Return `parts` after `text`, if there are both; otherwise `parts` alone."""
    return (Text(text=text), *parts) if text and parts else parts


def check_message(values: Mapping[str, object], parts: UserParts) -> None:
    """Refuse a message whose `id`, `text` or `by` in `values`, or whose parts are not valid.

    Raises:
        InvalidRequestError: One of them is not.
    """
    validation.check("the message", values, _MESSAGE, errors.InvalidRequestError)
    check_parts(parts)


def check_parts(parts: UserParts) -> None:
    """Refuse parts that no model can be sent.

    Raises:
        InvalidRequestError: An image or a file has neither data nor a url, or its data is not
            base64; or a string is not valid Unicode.
    """
    for index, part in enumerate(parts):
        problem = _problem(part)
        if problem:
            raise errors.InvalidRequestError(f"the message: part {index + 1} {problem}")


def _problem(part: Text | Media) -> str:
    match part:
        case Text(text=text):
            return "" if clean(text) == text else "has text that UTF-8 cannot hold"
        case Media(data=None | "", url=None | ""):
            return "has neither data nor a url"
        case Media(data=str(data)) if not is_base64(data):
            return "has data that is not base64"
        case Media(media_type=kind, url=url):
            words = f"{kind}{url or ''}"
            return "" if clean(words) == words else "has an address that UTF-8 cannot hold"


def parts_size(parts: UserParts) -> int:
    """Return the bytes of parts as JSON, with the data in base64; 0 without parts."""
    return len(to_json(parts)) if parts else 0


_MESSAGE = {"id": validation.MessageId, "text": validation.Message, "by": validation.By | None}
