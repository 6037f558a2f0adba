"""Functions of OpenAI's API: tools that the client runs, and what it sends of their calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from pydantic import JsonValue, ValidationError

from perdure.base import Value
from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.responses.refusals import bad
from perdure.schemas.strict_schema import strict
from perdure.temporal.payloads import explain
from perdure.text import one_line
from perdure.values.client_tools import ClientTool
from perdure.values.messages import Message, ToolCall, ToolMessage

CONTINUED: Final = "continued"
"""The part of the path before the number of a response that goes on with a turn."""

_CONTINUED = re.compile(rf"(.+)/{CONTINUED}/([2-9]|[1-9][0-9]{{1,8}})", re.DOTALL)
_EMPTY: dict[str, JsonValue] = {"type": "object", "properties": {}}
_SHOWN = 60
_OTHER = "only functions can be brought, which the client runs; give the agent its other tools"


class FunctionTool(Body):
    """A function that the client runs."""

    type: Literal["function"] = "function"
    name: str
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class FunctionItem(Value):
    """A call of a function that the client runs. `call_id` is the token of the call."""

    type: Literal["function_call"] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed"] = "completed"


class OutputItem(Value):
    """What the client sent of a call."""

    type: Literal["function_call_output"] = "function_call_output"
    id: str
    call_id: str
    output: str
    status: Literal["completed"] = "completed"


class ToolObject(Value):
    """A function that the client runs, in a response."""

    type: Literal["function"] = "function"
    name: str
    description: str
    parameters: dict[str, JsonValue]
    strict: bool = False


class FunctionOutput(NamedTuple):
    """What the client sends of a call, by its token, and where in the request it is."""

    token: str
    content: str
    where: str


def part_id(turn_id: str, part: int) -> str:
    """Return the id of a response: that of its turn, with a number if it goes on with it."""
    return turn_id if part == 1 else f"{turn_id}/{CONTINUED}/{part}"


def part_of(response_id: str) -> tuple[str, int]:
    """Return the turn of a response, and which of its responses that is, from 1."""
    found = _CONTINUED.fullmatch(response_id)
    return (response_id, 1) if found is None else (found[1], int(found[2]))


def tools_in(tools: Sequence[JsonValue], *, is_nested: bool = False) -> tuple[ClientTool, ...]:
    """Return the functions of a request. With `is_nested`, each is in a field `function`.

    Raises:
        RefusedError: One is no function, or its schema cannot be kept strictly.
    """
    return tuple(_tool(item, f"tools[{n}]", is_nested=is_nested) for n, item in enumerate(tools))


def _tool(item: JsonValue, where: str, *, is_nested: bool) -> ClientTool:
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(item, dict) or kind != "function":
        raise bad(f"{where}.type", f"{one_line(str(kind), _SHOWN)!r} is not supported: {_OTHER}")
    try:
        tool = FunctionTool.model_validate(item["function"] if is_nested else item)
    except (KeyError, ValidationError) as error:
        why = explain(error) if isinstance(error, ValidationError) else "function is missing"
        raise bad(where, why) from None
    parameters = _EMPTY if tool.parameters is None else tool.parameters
    if tool.strict:
        try:
            strict(parameters)
        except ValueError as error:
            raise bad(f"{where}.parameters", f"with strict: {one_line(str(error), 300)}") from None
    try:
        return ClientTool.model_validate(
            {"name": tool.name, "description": tool.description or "", "parameters": parameters}
        )
    except ValidationError as error:
        raise bad(where, explain(error)) from None


def choice_in(choice: JsonValue, tools: Sequence[ClientTool]) -> str | None:
    """Return the choice of a tool, as an option of the turn; None for the model's own.

    Raises:
        RefusedError: It is none, or demands a tool although the request brings none of that name.
    """
    match choice:
        case None | "auto":
            return None
        case "none":
            return "none"
        case "required" if tools:
            return "required"
        case {"type": "function", "name": str(name)} | {
            "type": "function",
            "function": {"name": str(name)},
        } if name in {tool.name for tool in tools}:
            return name
    raise bad(
        "tool_choice",
        "it is auto or none; or, with tools, required or a function among them",
    )


def outputs_in(items: Any) -> tuple[FunctionOutput, ...]:
    """Return the outputs of functions at the end of an input; empty if it ends otherwise.

    Raises:
        RefusedError: One is not valid.
    """
    outputs: list[FunctionOutput] = []
    if isinstance(items, str):
        return ()
    for index in reversed(range(len(items))):
        if items[index].get("type") != "function_call_output":
            break
        outputs.append(_output(items[index], f"input[{index}]"))
    return tuple(reversed(outputs))


def _output(item: dict[str, JsonValue], where: str) -> FunctionOutput:
    match item:
        case {"call_id": str(token), "output": output}:
            return FunctionOutput(token, text_of(output, f"{where}.output"), where)
        case _:
            raise bad(where, "an output has the call_id of its call, and output")


def text_of(
    content: JsonValue, where: str, refusal: str = "an output is text, or a list of texts"
) -> str:
    """Return the text of an output, which may be in parts.

    Raises:
        RefusedError: It has something else; `refusal` says so.
    """
    match content:
        case str(text):
            return text
        case [*parts] if all(isinstance(part, dict) and "text" in part for part in parts):
            return "".join(str(part["text"]) for part in parts if isinstance(part, dict))
        case _:
            raise bad(where, refusal)


class PastCalls:
    """The calls of functions in a history, which get their outputs.

    The ids of the history are tokens, so the calls have others for the model.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[ToolCall, str]] = {}
        self._count = 0

    def begin(self, call_id: JsonValue, name: str, arguments: str, where: str) -> ToolCall:
        """Return a call that is read."""
        self._count += 1
        call = ToolCall(id=f"call_f{self._count}", name=name, arguments=arguments)
        self._open[str(call_id)] = call, where
        return call

    def end(self, call_id: JsonValue, output: str, where: str) -> Message:
        """Return the output of a call.

        Raises:
            RefusedError: The history does not have the call, or has its output already.
        """
        found = self._open.pop(str(call_id), None)
        if found is None:
            raise no_call(str(call_id), where)
        return ToolMessage.of(found[0], output)

    def check(self) -> None:
        """Refuse a history whose calls lack outputs.

        Raises:
            RefusedError: One does.
        """
        for call_id, (_, where) in self._open.items():
            raise no_output([call_id], where)


def no_call(call_id: str, where: str) -> RefusedError:
    """Return the error of an output without its call."""
    return bad(where, f"No tool call found for function call output with call_id {_short(call_id)}")


def no_output(call_ids: Sequence[str], where: str = "input") -> RefusedError:
    """Return the error of calls without their outputs."""
    return bad(where, f"No tool output found for function call {', '.join(map(_short, call_ids))}")


def _short(call_id: str) -> str:
    return one_line(call_id, 200)
