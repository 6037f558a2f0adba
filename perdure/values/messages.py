"""The messages of a turn, made of typed parts.

The system prompt is not a message; it belongs to the agent.

The types follow the common ground of chat APIs: a user message, an assistant message that may
request tools, and one tool message with the results of all calls of the assistant message before
it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from enum import StrEnum
from itertools import groupby
from operator import not_
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from perdure.base import Value
from perdure.text import in_units, one_line, size
from perdure.values.losses import CallLoss


class Text(Value):
    """Words."""

    type: Literal["text"] = "text"
    text: str


class Thinking(Value):
    """Reasoning that a model shows.

    `signature` is the provider's, `redacted` is reasoning that the provider does not show; both are
    sent back to it unchanged.

    `by` is the model that it is from, as `provider:model`: it is not sent to other models.
    """

    type: Literal["thinking"] = "thinking"
    text: str
    signature: str | None = None
    redacted: str | None = None
    by: str | None = None


class Media(Value):
    """An image or a file: base64 `data`, or a `url` that the provider fetches.

    `media_type` is a MIME type.
    """

    type: Literal["media"] = "media"
    media_type: str
    data: str | None = Field(default=None, repr=False)
    url: str | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the data; 0 without data."""
        return len(self.data or "") * 3 // 4


class ToolCall(Value):
    """A tool call that the model requests.

    `arguments` is JSON text as the model wrote it, valid or not.
    """

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    arguments: str = "{}"


class ToolOutcome(StrEnum):
    """What became of a tool call.

    A call is `verified` if its answer was lost, and its effect was found by reading back.
    """

    DONE = "done"
    VERIFIED = "verified"
    FAILED = "failed"
    UNKNOWN = "unknown"
    DENIED = "denied"
    NOT_RUN = "not_run"


_PLAIN_OUTCOMES = frozenset({ToolOutcome.DONE, ToolOutcome.FAILED})


def plain_outcome(*, is_error: bool) -> ToolOutcome:
    """Return the outcome of a result that says no more than whether it is an error."""
    return ToolOutcome.FAILED if is_error else ToolOutcome.DONE


class ToolResult(Value):
    """The result of one tool call.

    A failure is data for the model: `is_error`, with the reason as content. `media` has the images
    and files of the result, in order; `content` names the kind and the size of each in its place.

    `outcome` says what became of the call. `unknown` is that of a call that may have taken effect,
    or may still do so: its worker or its connection was lost, or it took too long. JSON has it only
    if it is neither `done` nor `failed`, which `is_error` says.

    `loss` says how the answer of the call was lost, and when it was sent. It is None for a call
    that was answered, also if an attempt before was lost.
    """

    type: Literal["tool_result"] = "tool_result"
    call_id: str
    name: str
    content: str
    is_error: bool = False
    outcome: ToolOutcome = Field(
        default_factory=lambda given: plain_outcome(is_error=given["is_error"]),
        exclude_if=lambda outcome: outcome in _PLAIN_OUTCOMES,
    )
    media: tuple[Media, ...] = Field(default=(), exclude_if=not_)
    loss: CallLoss | None = Field(default=None, exclude_if=not_)


UserParts = tuple[Annotated[Text | Media, Field(discriminator="type")], ...]
"""The texts, images and files of a message of the user, in order."""


class UserMessage(Value):
    """A message of the user: the task, or a message to the running turn.

    Attributes:
        role: Its role.
        parts: Its text, images and files.
        id: The id of a message that was sent to the running turn; None for the task, and for the
            messages that Perdure adds.
    """

    role: Literal["user"] = "user"
    parts: UserParts
    id: str | None = None

    @classmethod
    def of(cls, text: str, *, id: str | None = None, parts: UserParts = ()) -> UserMessage:
        """Return a message of plain text, or of `parts` if there are any."""
        return cls(parts=parts or (Text(text=text),), id=id)

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return _joined(self.parts)

    @property
    def brief(self) -> str:
        """Its text for people, with the kind and size of each image and file in its place."""
        return brief_text(self.parts)

    @property
    def media(self) -> tuple[Media, ...]:
        """Its images and files."""
        return tuple(part for part in self.parts if isinstance(part, Media))


class AssistantMessage(Value):
    """The answer of a model."""

    role: Literal["assistant"] = "assistant"
    parts: tuple[Annotated[Text | Thinking | ToolCall, Field(discriminator="type")], ...]

    @property
    def text(self) -> str:
        """All text parts, joined; thinking is left out."""
        return _joined(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the order requested."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


class ToolMessage(Value):
    """The results of an assistant message's calls, in call order."""

    role: Literal["tool"] = "tool"
    results: tuple[ToolResult, ...]

    @property
    def media(self) -> tuple[Media, ...]:
        """The images and files of all results."""
        return tuple(media for result in self.results for media in result.media)

    def map(self, change: Callable[[ToolResult], ToolResult]) -> ToolMessage:
        """Return a message with `change` applied to each result that has media."""
        results = (change(result) if result.media else result for result in self.results)
        return ToolMessage(results=tuple(results))

    @classmethod
    def of(cls, call: ToolCall, content: str, *, is_error: bool = False) -> ToolMessage:
        """Return a message with the single result of `call`."""
        return cls(
            results=(
                ToolResult(call_id=call.id, name=call.name, content=content, is_error=is_error),
            )
        )


Message = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]

MessagesTypeAdapter: TypeAdapter[Sequence[Message]] = TypeAdapter(
    Sequence[Message], config=ConfigDict(defer_build=True)
)
"""Converts messages to JSON and back.

Use `dump_json(report.messages)` to store them, and `validate_json(stored)` for `history=`.
"""

UNKNOWN_NOTE = (
    "\n[It may have taken effect, or may still do so. Do not assume that it failed, and find out"
    " before you do it again.]"
)
"""What a model reads after the reason why the outcome of a call is unknown."""

NO_DIGEST = ""
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
OPEN_CALL = (
    "This call has no result: the turn ended before it was run to its end. Whether it took effect"
    " is unknown."
)


def weight(message: UserMessage) -> int:
    """Return the bytes of the text in a message, addresses of media included."""
    return sum(
        size(part.text if isinstance(part, Text) else part.url or "") for part in message.parts
    )


def media_weight(message: UserMessage) -> int:
    """Return the bytes of the images and files in a message, as they are sent: in base64."""
    return sum(len(part.data or "") for part in message.parts if isinstance(part, Media))


def in_brief(media: Media, note: str = "") -> str:
    """Return the kind of an image or a file, its size or address, and `note`, in brackets.

    An example is `[image/png, 48 KB]`. This text is its place in the content of a tool result.
    """
    size_text = (
        one_line(media.url, 1_000) if media.url and not media.data else in_units(media.size_bytes)
    )
    return f"[{one_line(media.media_type, 80)}, {size_text}{f': {note}' if note else ''}]"


def brief_text(parts: Iterable[Text | Media]) -> str:
    """Return texts for people, with the kind and size of each image and file in its place."""
    groups = groupby(parts, key=lambda part: isinstance(part, Media))
    return " ".join(
        " ".join(in_brief(part) for part in group if isinstance(part, Media))
        if is_media
        else _joined(group)
        for is_media, group in groups
    )


def without_some(
    content: str, media: Iterable[Media], why: Callable[[Media], str]
) -> tuple[str, tuple[Media, ...]]:
    """Return the content and the media of a result without those for which `why` has a reason.

    A sentence with the reason is in the place of each.
    """
    accepted: list[Media] = []
    for item in media:
        reason = why(item)
        if not reason:
            accepted.append(item)
            continue
        brief, sentence = in_brief(item), in_brief(item, reason)
        if brief in content:
            content = content.replace(brief, sentence, 1)
        else:  # clipped
            content = f"{content}\n{sentence}"
    return content, tuple(accepted)


def without_data(media: Iterable[Media]) -> tuple[Media, ...]:
    """Return media to print: their kinds and addresses."""
    return tuple(item.model_copy(update={"data": None}) for item in media)


def without_media_data(message: Message) -> Message:
    """Return a message to print: its images and files have no data."""
    match message:
        case UserMessage() if message.media:
            return message.model_copy(update={"parts": parts_without_data(message.parts)})
        case ToolMessage():
            return message.map(
                lambda result: result.model_copy(update={"media": without_data(result.media)})
            )
        case _:
            return message


def parts_without_data(parts: UserParts) -> UserParts:
    """Return parts to print: the kinds and addresses of images and files."""
    return tuple(
        part.model_copy(update={"data": None}) if isinstance(part, Media) else part
        for part in parts
    )


def is_base64(data: str) -> bool:
    """Return whether `data` is base64, as providers require."""
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def canonical(message: Message) -> bytes:
    """Return the bytes from which a digest is computed.

    `None` is left out, so that a field added later (with `None` as default) does not change the
    digests of earlier messages. The model of thinking parts, and outcomes and losses of results,
    are not included, because a worker of an earlier release does not know them.
    """
    if isinstance(message, ToolMessage) and any(
        result.loss or result.outcome not in _PLAIN_OUTCOMES for result in message.results
    ):
        return message.model_dump_json(
            exclude_none=True, exclude={"results": {"__all__": {"outcome", "loss"}}}
        ).encode()
    if isinstance(message, AssistantMessage) and any(
        isinstance(part, Thinking) and part.by for part in message.parts
    ):
        return message.model_dump_json(
            exclude_none=True, exclude={"parts": {"__all__": {"by"}}}
        ).encode()
    return message.model_dump_json(exclude_none=True).encode()


def chain(digest: str, data: bytes) -> str:
    """Return the digest of a transcript after another message with the canonical bytes `data`.

    It is a SHA-256, in hex.
    """
    return hashlib.sha256(digest.encode() + b"\n" + data).hexdigest()


def digest_of(messages: Iterable[Message]) -> str:
    """Return the running digest of a whole transcript."""
    digest = NO_DIGEST
    for message in messages:
        digest = chain(digest, canonical(message))
    return digest


def with_plain_ids(message: AssistantMessage) -> AssistantMessage:
    """Remove ids that are not plain from the calls of a new answer.

    The fold gives these calls new ids. People see ids and use them in commands. The fold itself
    does not replace ids, so that a recorded transcript keeps its digest.
    """
    if all(_PLAIN_ID.fullmatch(call.id) for call in message.calls):
        return message
    parts = (
        (
            part.model_copy(update={"id": ""})
            if isinstance(part, ToolCall) and not _PLAIN_ID.fullmatch(part.id)
            else part
        )
        for part in message.parts
    )
    return message.model_copy(update={"parts": tuple(parts)})


def with_unique_ids(message: AssistantMessage, taken: Set[str], prefix: str) -> AssistantMessage:
    """Replace missing and taken call ids by unique ids that begin with `prefix`."""
    seen: set[str] = set()
    parts: list[Text | Thinking | ToolCall] = []
    index = 0
    for part in message.parts:
        if isinstance(part, ToolCall):
            index += 1
            is_free = part.id and part.id not in seen and part.id not in taken
            unique = part.id if is_free else _free(f"{prefix}_{index}", seen, taken)
            seen.add(unique)
            part = part if part.id == unique else part.model_copy(update={"id": unique})
        parts.append(part)
    return message.model_copy(update={"parts": tuple(parts)})


def _free(preferred: str, seen: Set[str], taken: Set[str]) -> str:
    number, name = 1, preferred
    while name in seen or name in taken:
        number, name = number + 1, f"{preferred}_{number + 1}"
    return name


def closed(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return `messages` in a form that can be continued.

    Every call without a result gets an error result, call ids become unique, and empty answers are
    removed.
    """
    out: list[Message] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage) or not message.parts:
            continue
        if isinstance(message, UserMessage) or not message.calls:
            out.append(message)
            continue
        following = messages[index + 1] if index + 1 < len(messages) else None
        answers = _by_call(following.results if isinstance(following, ToolMessage) else ())
        unique = with_unique_ids(message, seen, f"past_{index}")
        seen.update(call.id for call in unique.calls)
        results = (
            _taken(answers, original, call)
            for original, call in zip(message.calls, unique.calls, strict=True)
        )
        out += [unique, ToolMessage(results=tuple(results))]
    return tuple(out)


def _by_call(results: Iterable[ToolResult]) -> dict[str, list[ToolResult]]:
    """Return the results of each call, the last first."""
    by_call: dict[str, list[ToolResult]] = {}
    for result in results:
        by_call.setdefault(result.call_id, []).append(result)
    for same in by_call.values():
        same.reverse()
    return by_call


def _taken(
    answers_by_call: Mapping[str, list[ToolResult]], original: ToolCall, call: ToolCall
) -> ToolResult:
    """Return the first result of a call, under the id that the call has now.

    Without a result, return an error result.
    """
    answers = answers_by_call.get(original.id)
    if not answers:
        return ToolResult(
            call_id=call.id,
            name=call.name,
            content=OPEN_CALL,
            is_error=True,
            outcome=ToolOutcome.UNKNOWN,
        )
    result = answers.pop()
    return result if result.call_id == call.id else result.model_copy(update={"call_id": call.id})


def _joined(parts: Iterable[object]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))
