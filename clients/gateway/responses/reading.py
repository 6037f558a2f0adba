"""Reads the input of a request: messages, or decisions about calls that wait."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue

from perdure.clients.gateway.responses.functions import PastCalls, text_of
from perdure.clients.gateway.responses.refusals import bad
from perdure.text import one_line
from perdure.values.messages import (
    OPEN_CALL,
    AssistantMessage,
    Media,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    UserParts,
)
from perdure.values.tasks import Task

APPROVAL = "mcpr_"
"""How the id of an approval request begins; the id of the call and its token follow."""

_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=-]+)*;base64,(.*)", re.DOTALL)
_SHOWN = 60
_LEFT_OUT = ("reasoning", "mcp_approval_request", "mcp_list_tools")
"""The types of items of a response that say nothing to the next one."""

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
    """The last message of an input, those before it, and the texts of the system.

    `system` are the texts of messages of `system` and `developer`, in order.
    """

    message: UserMessage
    history: tuple[Message, ...] = ()
    system: tuple[str, ...] = ()

    def instructions(self, own: str | None) -> str | None:
        """Return the instructions of the caller: those of the request, and those in the input."""
        return "\n\n".join(filter(None, (own, *self.system))) or None

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
    """Return the messages of an input. What a response had besides messages is history, too.

    Raises:
        RefusedError: An item is not taken, or the last one is not a message of the user.
    """
    if isinstance(items, str):
        return InputMessages(UserMessage.of(items))
    system: list[str] = []
    messages: list[Message] = []
    past = PastCalls()
    for index, item in enumerate(items):
        where = f"input[{index}]"
        if item.get("role") in ("system", "developer"):
            system.append(system_text(item.get("content"), where))
        elif item.get("type") not in _LEFT_OUT:
            append(messages, _message(item, where, index, past))
    past.check()
    if not messages or not isinstance(messages[-1], UserMessage):
        raise bad("input", "the last item must be a message of the user")
    return InputMessages(messages[-1], tuple(messages[:-1]), tuple(system))


def append(messages: list[Message], following: Sequence[Message]) -> None:
    """Add messages. What the assistant says and calls next is one message, as are results."""
    for message in following:
        last = messages[-1] if messages else None
        if isinstance(last, AssistantMessage) and isinstance(message, AssistantMessage):
            messages[-1] = AssistantMessage(parts=(*last.parts, *message.parts))
        elif isinstance(last, ToolMessage) and isinstance(message, ToolMessage):
            messages[-1] = ToolMessage(results=(*last.results, *message.results))
        else:
            messages.append(message)


def system_text(content: JsonValue, where: str) -> str:
    """Return the text of a message of the system.

    Raises:
        RefusedError: It has something else.
    """
    return text_of(content, where, "a message of the system is text")


def _message(
    item: dict[str, JsonValue], where: str, index: int, past: PastCalls
) -> Sequence[Message]:
    match item:
        case {"type": "function_call", "name": str(name), "arguments": str(arguments)}:
            called = past.begin(item.get("call_id"), name, arguments, where)
            return [AssistantMessage(parts=(called,))]
        case {"type": "function_call_output", "call_id": call_id, "output": output}:
            return [past.end(call_id, text_of(output, f"{where}.output"), where)]
        case {"role": "user", "content": str(text)}:
            return [UserMessage.of(text)]
        case {"role": "user", "content": [*parts]}:
            return [
                UserMessage(parts=tuple(_part(part, where, at) for at, part in enumerate(parts)))
            ]
        case {"role": "assistant", "content": str(text)}:
            return [AssistantMessage(parts=(Text(text=text),))]
        case {"role": "assistant", "content": [*parts]}:
            texts = tuple(_said(part, where, at) for at, part in enumerate(parts))
            return [AssistantMessage(parts=texts)]
        case {"type": "mcp_call", "name": str(name), "arguments": str(arguments)}:
            return _call(item, ToolCall(id=f"call_{index}", name=name, arguments=arguments))
        case {"type": str(kind)} if kind != "message":
            raise bad(
                where,
                f"items of type {one_line(kind, _SHOWN)!r} are not taken; with"
                " previous_response_id or conversation, a response knows those before it",
            )
        case _:
            raise bad(where, "an item has a role, user or assistant, and content")


def _call(item: dict[str, JsonValue], call: ToolCall) -> Sequence[Message]:
    """Return a call of a tool of the agent, as an earlier response had it, with its result."""
    output, error = item.get("output"), item.get("error")
    if isinstance(output, str):
        result = ToolMessage.of(call, output)
    else:
        reason = error.get("content") if isinstance(error, dict) else error
        result = ToolMessage.of(call, str(reason or OPEN_CALL), is_error=True)
    return [AssistantMessage(parts=(call,)), result]


def _part(part: JsonValue, where: str, at: int) -> Text | Media:
    match part:
        case {"type": "input_text", "text": str(text)}:
            return Text(text=text)
        case {"type": "input_image", "image_url": str(address)}:
            return media(address, "image", "image/jpeg", f"{where}.content[{at}]")
        case {"type": "input_file", "file_data": str(address)} | {
            "type": "input_file",
            "file_url": str(address),
        }:
            return media(address, "", "application/pdf", f"{where}.content[{at}]")
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


def media(address: str, kind: str, otherwise: str, where: str) -> Media:
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
