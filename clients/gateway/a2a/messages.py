"""The messages of a client: text and files for an agent, or a decision about a call."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Sequence

from a2a.types import Message, Part
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from google.protobuf.json_format import MessageToDict
from pydantic import Field, JsonValue, ValidationError, model_validator
from pydantic_core import from_json, to_json

from perdure.clients.gateway import subjects
from perdure.clients.gateway.inputs import Body
from perdure.temporal.payloads import explain
from perdure.values.approvals import Decision, Settlement
from perdure.values.messages import Media, Text

_APPROVE = "approve"
_SETTLE = frozenset({"settlement", "callId"})
"""A data part with both fields settles a call."""
_ANSWER = frozenset({"answer", "callId"})
"""A data part with both fields answers a question."""
_LARGEST = 2**53
"""Up to this number, floating points have all whole numbers."""


class DecisionPart(Body):
    """The data part that decides about a call that waits: `approve`, `settlement` or `answer`.

    Attributes:
        approve: Whether the call may run.
        settlement: What became of a call whose outcome is unknown.
        answer: The answer to a question.
        call_id: The call's id, from the task's status.
        token: The call's token, from there: the decision holds only for the call that was reviewed.
        reason: The reason for the decision; the model sees that of a denial.
        arguments: Arguments that replace those of an approved call.
        result: What the model reads as the result of a settled call.
    """

    approve: bool | None = None
    settlement: Settlement | None = None
    answer: JsonValue = None
    call_id: str = Field(alias="callId")
    token: str
    reason: str = ""
    arguments: dict[str, JsonValue] | None = None
    result: str = ""

    @model_validator(mode="after")
    def _check_kind(self) -> DecisionPart:
        kinds = [self.approve is not None, self.settlement is not None, self.is_answer]
        if kinds.count(True) != 1:
            raise ValueError("it has either approve or settlement, or for a question, answer")
        return self

    @property
    def is_answer(self) -> bool:
        """Whether it answers a question."""
        return "answer" in self.model_fields_set

    def is_of(self, decision: Decision) -> bool:
        """Return whether somebody has decided so."""
        if self.is_answer:
            said: object = None if decision.answer is None else from_json(decision.answer)
            return decision.call_id == self.call_id and said == self.answer
        wanted = self.settlement or bool(self.approve)
        decided = decision.settlement or decision.approve
        return (decision.call_id, decided, decision.answer) == (self.call_id, wanted, None)


def content_of(message: Message) -> str | Sequence[Text | Media]:
    """Return what a message says: its text, with data parts as JSON, or parts if it has files.

    Raises:
        InvalidParamsError: It has neither text nor files, or a file has no usable address.
        ContentTypeNotSupportedError: It has a file of an unknown type, or another kind of part.
    """
    parts = [_part(part) for part in message.parts]
    if any(isinstance(part, Media) for part in parts):
        return [part for part in parts if isinstance(part, Media) or part.text.strip()]
    text = "\n\n".join(part.text for part in parts if isinstance(part, Text))
    if not text.strip():
        raise InvalidParamsError("the message has no text")
    return text


def answer_of(message: Message) -> DecisionPart | None:
    """Return the decision of a message; None if it has none.

    Raises:
        InvalidParamsError: It is not valid, or there is more than one part.
    """
    decisions = [data for part in message.parts if _is_decision(data := _data(part))]
    if not decisions:
        return None
    if len(message.parts) > 1:
        raise InvalidParamsError("a decision is the only part of its message")
    try:
        return DecisionPart.model_validate(decisions[0])
    except ValidationError as error:
        raise InvalidParamsError(f"the decision is not valid: {explain(error)}") from None


def subject_of(message: Message) -> object:
    """Return what the metadata of a message has as its data subject; None without one."""
    return MessageToDict(message.metadata).get(subjects.FIELD)


def _part(part: Part) -> Text | Media:
    match part.WhichOneof("content"):
        case "text":
            return Text(text=part.text)
        case "data":
            return Text(text=to_json(_data(part)).decode())
        case "raw":
            return Media(media_type=_type_of(part), data=base64.b64encode(part.raw).decode())
        case "url" if part.url.startswith(("https://", "http://")):
            return Media(media_type=_type_of(part), url=part.url)
        case "url":
            raise InvalidParamsError("the url of a part begins with https:")
        case _:
            raise ContentTypeNotSupportedError(
                "a message to an agent has parts with text, data, raw or url"
            )


def _type_of(part: Part) -> str:
    """Return the MIME type of a file: as its part says, else by its name or its address."""
    name = part.filename or part.url.partition("?")[0]
    media_type = part.media_type or mimetypes.guess_type(name)[0]
    if media_type is None:
        raise ContentTypeNotSupportedError("name the type of the file in mediaType")
    return media_type


def _data(part: Part) -> object:
    """Return the value of a data part; None for other parts."""
    if part.WhichOneof("content") != "data":
        return None
    return _whole(MessageToDict(part).get("data"))


def _whole(value: object) -> object:
    """Return a value with whole numbers, and names in order: the format has neither."""
    match value:
        case float() if value.is_integer() and abs(value) <= _LARGEST:
            return int(value)
        case list():
            return [_whole(item) for item in value]
        case dict():
            return {name: _whole(value[name]) for name in sorted(value)}
        case _:
            return value


def _is_decision(data: object) -> bool:
    return isinstance(data, dict) and (
        _APPROVE in data or data.keys() >= _SETTLE or data.keys() >= _ANSWER
    )
