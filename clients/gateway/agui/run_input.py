"""The input of a run: what it says, and what it decides."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ag_ui.core import ResumeEntry, RunAgentInput, TextPart, ToolMessage, UserMessage
from pydantic import Field, GetJsonSchemaHandler, JsonValue, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, to_json

from perdure.clients.gateway.agui.page_block import block_of, subject_of
from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.problems import Invalid, RefusedError
from perdure.temporal.payloads import explain
from perdure.text import one_line
from perdure.values.approvals import Settlement
from perdure.values.client_tools import ClientTool
from perdure.values.questions import Question
from perdure.values.shared_state import SharedState

_SCHEMA = "https://ag-ui.com/spec/1.0/schema.json"
_ABANDONED = "nobody decided"
_SHOWN = 100


class RunInput(RunAgentInput):
    """The input of a run: `RunAgentInput` of AG-UI 1.0.

    `threadId` is the id of a session, and the last user message of `messages` is what is said.
    `resume` has the decisions about calls that wait.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return a schema that names the one of the protocol, which has the details."""
        text = {"type": "string"}
        return {
            "type": "object",
            "title": cls.__name__,
            "description": f"{inspect.getdoc(cls)} All fields are those of <{_SCHEMA}>.",
            "properties": {
                "threadId": text,
                "runId": text,
                "messages": {"type": "array", "items": {"type": "object"}},
                "resume": {"type": "array", "items": {"type": "object"}},
                "tools": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["threadId", "runId", "messages"],
        }


class _Payload(Body):
    """The answer to an interrupt, either `approved`, `settlement` or `answer`.

    `editedArgs` replaces the arguments of the call, and `result` is that of a settled call. A
    question is declined with `approved` and a reason.
    """

    approved: bool | None = None
    edited_args: dict[str, JsonValue] | None = Field(default=None, alias="editedArgs")
    reason: str = ""
    settlement: Settlement | None = None
    result: str = ""
    answer: JsonValue = None


RESPONSE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "description": "Whether the call may run."},
        "editedArgs": {
            "type": "object",
            "description": "Arguments that replace all of those of the call.",
        },
        "reason": {"type": "string", "description": "The reason; after a no, the model reads it."},
    },
    "required": ["approved"],
    "additionalProperties": False,
}
"""The JSON schema of the answer to an interrupt."""

SETTLEMENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "settlement": {
            "enum": ["done", "absent", "again"],
            "description": (
                "done if the call has taken effect, absent if it has not, again to make it again."
            ),
        },
        "result": {"type": "string", "description": "What the model reads as the result."},
    },
    "required": ["settlement"],
    "additionalProperties": False,
}
"""The same for a call that was made, and whose outcome is unknown."""


def answer_to(question: Question) -> dict[str, Any]:
    """Return the same for a question, which is answered, or declined with `approved` as false."""
    properties = {
        "answer": question.schema_of_answer,
        "approved": {"const": False, "description": "In place of an answer, to decline."},
        "reason": {"type": "string", "description": "The reason to decline; the model reads it."},
    }
    either = [{"required": ["answer"]}, {"required": ["approved"]}]
    return {
        "type": "object",
        "properties": properties,
        "oneOf": either,
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class CallName:
    """A call that waits, and the reviewed arguments: its turn, its id and its token."""

    turn_id: str
    call_id: str
    token: str

    def __str__(self) -> str:
        return f"{self.turn_id}#{self.call_id}#{self.token}"

    @classmethod
    def read(cls, interrupt_id: str) -> CallName | None:
        """Return the call of an interrupt; None if the id is not one of a call."""
        parts = interrupt_id.rsplit("#", 2)
        return cls(*parts) if len(parts) == 3 and all(parts) else None


@dataclass(frozen=True, slots=True)
class CallDecision:
    """A decision about a call. `arguments` replaces its own.

    `settlement` is set for a call whose outcome is unknown; `reason` is then its result. `answer`
    is set for a question, as JSON text.
    """

    call: CallName
    approve: bool
    reason: str = ""
    arguments: dict[str, JsonValue] | None = None
    settlement: Settlement | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the user.

    `block` is what the user interface says beside it, and `state` its state; None without one.
    """

    id: str
    text: str
    block: str = ""
    state: SharedState | None = None


@dataclass(frozen=True, slots=True)
class InterfaceResult:
    """What the user interface has made of a call of one of its tools."""

    message_id: str
    call_id: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run is to do.

    Attributes:
        message: The last message of the user; None without a message.
        answers: The decisions about calls.
        ignored: What is not used of the input, in words.
        tools: The tools of the user interface.
        results: What it has made of calls of its tools, since the last message of the user.
        subject: What it names as its data subject; None without one.
    """

    message: Message | None
    answers: tuple[CallDecision, ...]
    ignored: tuple[str, ...]
    tools: tuple[ClientTool, ...] = ()
    results: tuple[InterfaceResult, ...] = ()
    subject: object = None


def read(run: RunAgentInput) -> Wanted:
    """Return what a run is to do.

    Raises:
        RefusedError: A message, a tool or an answer is not valid.
    """
    ignored: list[str] = []
    message = _last_message(run, ignored)
    answers = tuple(_answers(run.resume or (), ignored))
    results = tuple(_results(run))
    return Wanted(message, answers, tuple(ignored), _tools(run), results, subject_of(run))


def _last_message(run: RunAgentInput, ignored: list[str]) -> Message | None:
    """Return the last message of the user, without the parts that are not text."""
    users = (
        (n, message) for n, message in enumerate(run.messages) if isinstance(message, UserMessage)
    )
    index, last = max(users, default=(0, None), key=lambda pair: pair[0])
    if last is None:
        return None
    parts = [TextPart(text=last.content)] if isinstance(last.content, str) else last.content
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) < len(parts):
        ignored.append("images and files of the message: a thread takes text only")
    if not "".join(texts).strip():
        raise _invalid(f"messages/{index}/content", "the message has no text")
    return Message(last.id, "".join(texts), block_of(run), _state(run.state))


def _state(state: object) -> SharedState | None:
    """Return the state of the user interface; None for an empty one.

    Raises:
        RefusedError: It is no JSON object.
    """
    if not state:
        return None
    if not isinstance(state, dict):
        raise _invalid("state", "the state is a JSON object")
    return state


def _tools(run: RunAgentInput) -> tuple[ClientTool, ...]:
    """Return the tools of the user interface.

    Raises:
        RefusedError: One is not valid.
    """
    tools: list[ClientTool] = []
    for index, tool in enumerate(run.tools or ()):
        parameters = tool.parameters or {}
        given = {"name": tool.name, "description": tool.description}
        try:
            schema = {"parameters": {"type": "object", **parameters}}
            tools.append(ClientTool.model_validate({**given, **schema}))
        except TypeError:
            raise _invalid(f"tools/{index}", "parameters is a JSON schema of an object") from None
        except ValidationError as error:
            raise _invalid(f"tools/{index}", explain(error)) from None
    return tuple(tools)


def _results(run: RunAgentInput) -> Iterator[InterfaceResult]:
    """Yield the results of calls after the last message of the user."""
    users = (n for n, message in enumerate(run.messages) if isinstance(message, UserMessage))
    for message in run.messages[max(users, default=-1) + 1 :]:
        if isinstance(message, ToolMessage):
            parts = message.content
            texts = [parts] if isinstance(parts, str) else [_text(part) for part in parts]
            error = message.error
            text = "".join(texts) or error or ""
            yield InterfaceResult(
                message.id, message.tool_call_id, text, is_error=error is not None
            )


def _text(part: object) -> str:
    return part.text if isinstance(part, TextPart) else "[not text]"


def _answers(entries: list[ResumeEntry] | tuple[()], ignored: list[str]) -> Iterator[CallDecision]:
    for index, entry in enumerate(entries):
        call = CallName.read(entry.interrupt_id)
        if call is None:
            shown = one_line(entry.interrupt_id, _SHOWN)
            ignored.append(f"resume/{index}: {shown!r} is not an interrupt that an answer ends")
        elif entry.status == "cancelled":
            yield CallDecision(call, approve=False, reason=_ABANDONED)
        else:
            yield _decision(call, _payload(index, entry.payload))


def _decision(call: CallName, payload: _Payload) -> CallDecision:
    if payload.settlement is not None:
        is_again = payload.settlement == "again"
        return CallDecision(call, is_again, payload.result, settlement=payload.settlement)
    if "answer" in payload.model_fields_set:
        return CallDecision(call, approve=True, answer=to_json(payload.answer).decode())
    return CallDecision(call, bool(payload.approved), payload.reason, payload.edited_args)


def _payload(index: int, value: object) -> _Payload:
    where = f"resume/{index}/payload"
    try:
        payload = _Payload.model_validate(value)
    except ValidationError as error:
        raise _invalid(where, explain(error)) from None
    is_answer = "answer" in payload.model_fields_set
    if [payload.approved is not None, payload.settlement is not None, is_answer].count(True) != 1:
        raise _invalid(
            where,
            "it has either approved or, for an unknown outcome, settlement, or for a question,"
            " answer",
        )
    if payload.edited_args is not None and not payload.approved:
        raise _invalid(f"{where}/editedArgs", "arguments are for a call that is approved")
    return payload


def _invalid(path: str, detail: str) -> RefusedError:
    return RefusedError(
        422,
        "INVALID_REQUEST",
        f"the body is not valid: {path}: {detail}",
        invalid=[Invalid(pointer=f"#/{path}", detail=detail)],
    )
