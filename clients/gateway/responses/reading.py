"""Reads the input of a request: messages, or decisions about calls that wait."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue

from perdure.clients.gateway.responses.refusals import bad
from perdure.text import one_line
from perdure.values.messages import AssistantMessage, Media, Text, UserMessage, UserParts
from perdure.values.tasks import Task

APPROVAL = "mcpr_"
"""How the id of an approval request begins; the id of the call and its token follow."""

_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=-]+)*;base64,(.*)", re.DOTALL)
_SHOWN = 60

Input = str | Sequence[dict[str, JsonValue]]


class Approval(NamedTuple):
    """A decision about a call that waits, which its token identifies.

    With `is_answer`, it has the `answer` to a question.
    """

    call_id: str
    token: str
    approve: bool
    reason: str
    is_answer: bool = False
    answer: JsonValue = None


class InputMessages(NamedTuple):
    """The last message of an input, and those before it."""

    message: UserMessage
    history: tuple[UserMessage | AssistantMessage, ...] = ()

    @property
    def task(self) -> str | Task:
        """The last message as a task."""
        return Task(content=self.message.parts) if self.message.media else self.message.text

    @property
    def content(self) -> str | UserParts:
        """The message, where those before it are known.

        Raises:
            RefusedError: There are other messages.
        """
        if self.history:
            raise bad("input", "give one message; those before it are known")
        return self.message.parts if self.message.media else self.message.text

    @property
    def text(self) -> str:
        """The message, where nothing but text can be sent.

        Raises:
            RefusedError: There are other messages, images or files.
        """
        content = self.content
        if not isinstance(content, str):
            raise bad("input", "give text: images and files cannot follow a response")
        return content


def approvals_in(items: Input) -> tuple[Approval, ...]:
    """Return the decisions in an input; empty if it is of messages.

    Raises:
        RefusedError: There are both, or a decision is not valid.
    """
    if isinstance(items, str):
        return ()
    are_approvals = [item.get("type") == "mcp_approval_response" for item in items]
    if any(are_approvals) and not all(are_approvals):
        raise bad("input", "give decisions about calls, or messages, and not both")
    return tuple(_approval(item, index) for index, item in enumerate(items) if are_approvals[index])


def _approval(item: dict[str, JsonValue], index: int) -> Approval:
    match item:
        case {"approval_request_id": str(request), "approve": bool(approve)}:
            call_id, _, token = request.removeprefix(APPROVAL).rpartition(":")
            if request.startswith(APPROVAL) and call_id:
                reason = item.get("reason")
                return Approval(
                    call_id,
                    token,
                    approve,
                    reason if isinstance(reason, str) else "",
                    is_answer=approve and "answer" in item,
                    answer=item.get("answer"),
                )
    raise bad(
        f"input[{index}]",
        "a decision has the approval_request_id of an item of type"
        " mcp_approval_request, and approve, which is true or false",
    )


def asked_in(items: Input) -> InputMessages:
    """Return the messages of an input.

    Raises:
        RefusedError: An item is not a message of the user or the assistant, or the last one is not
            of the user.
    """
    if isinstance(items, str):
        return InputMessages(UserMessage.of(items))
    messages = tuple(_message(item, index) for index, item in enumerate(items))
    if not messages or not isinstance(messages[-1], UserMessage):
        raise bad("input", "the last item must be a message of the user")
    return InputMessages(messages[-1], messages[:-1])


def _message(item: dict[str, JsonValue], index: int) -> UserMessage | AssistantMessage:
    where = f"input[{index}]"
    match item:
        case {"role": "user", "content": str(text)}:
            return UserMessage.of(text)
        case {"role": "user", "content": [*parts]}:
            return UserMessage(parts=tuple(_part(part, where, at) for at, part in enumerate(parts)))
        case {"role": "assistant", "content": str(text)}:
            return AssistantMessage(parts=(Text(text=text),))
        case {"role": "assistant", "content": [*parts]}:
            texts = tuple(_said(part, where, at) for at, part in enumerate(parts))
            return AssistantMessage(parts=texts)
        case {"role": "system" | "developer"}:
            raise bad(where, "the agent has instructions of its own; give messages of the user")
        case {"type": str(kind)} if kind != "message":
            raise bad(
                where,
                f"items of type {one_line(kind, _SHOWN)!r} are not taken; with"
                " previous_response_id or conversation, a response knows those before it",
            )
        case _:
            raise bad(where, "an item has a role, user or assistant, and content")


def _part(part: JsonValue, where: str, at: int) -> Text | Media:
    match part:
        case {"type": "input_text", "text": str(text)}:
            return Text(text=text)
        case {"type": "input_image", "image_url": str(address)}:
            return _media(address, "image", "image/jpeg", f"{where}.content[{at}]")
        case {"type": "input_file", "file_data": str(address)} | {
            "type": "input_file",
            "file_url": str(address),
        }:
            return _media(address, "", "application/pdf", f"{where}.content[{at}]")
        case _:
            raise bad(
                f"{where}.content[{at}]",
                "give input_text, input_image with image_url, or input_file with file_data or"
                " file_url",
            )


def _said(part: JsonValue, where: str, at: int) -> Text:
    match part:
        case {"type": "output_text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return Text(text=text)
        case _:
            raise bad(f"{where}.content[{at}]", "give output_text")


def _media(address: str, kind: str, otherwise: str, where: str) -> Media:
    """Return an image or a file from its address.

    Args:
        address: A data URL with base64, or an address that the provider fetches.
        kind: How its MIME type has to begin; empty for any.
        otherwise: Its MIME type if the address does not show it.
        where: The name of the part.
    """
    if address.startswith(("https://", "http://")):
        guessed = mimetypes.guess_type(address.partition("?")[0])[0] or otherwise
        return Media(media_type=guessed if guessed.startswith(kind) else otherwise, url=address)
    data_url = _DATA.fullmatch(address)
    if data_url is None or not data_url[1].startswith(kind):
        raise bad(where, "give an address that begins with https:, or a data URL with base64")
    return Media(media_type=data_url[1], data=data_url[2])
