"""What is asked of a model, before a protocol has put it into words and after."""

from __future__ import annotations

import typing
from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_core import to_json

from perdure import errors
from perdure.agents.definitions import ToolDefinition
from perdure.text import one_line, size
from perdure.values.answers import ModelAnswer
from perdure.values.messages import Message
from perdure.values.options import NO_OPTIONS, RequestOptions


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A request without who is asked.

    `response_schema` is what the answer's text must fit, None for free text.
    """

    messages: tuple[Message, ...] = ()
    system: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    options: RequestOptions = NO_OPTIONS
    response_schema: dict[str, JsonValue] | None = None
    response_name: str = "answer"

    @property
    def offered(self) -> tuple[ToolDefinition, ...]:
        """The tools that the model may choose.

        Raises:
            LLMInvalidRequestError: It is to choose one that is not there.
        """
        wish = self.options.tool_choice
        if wish in (None, "auto", "required") or not self.tools:
            return self.tools
        found = tuple(tool for tool in self.tools if tool.name == wish)
        if not found and wish != "none":
            names = ", ".join(tool.name for tool in self.tools)
            raise errors.LLMInvalidRequestError(
                f"tool_choice {one_line(str(wish), 80)!r} is none of auto, required, none and the"
                f" tools: {names}"
            )
        return found

    @property
    def weight(self) -> int:
        """Bytes of everything but the messages."""
        tools = sum(
            len(to_json((tool.name, tool.description, tool.parameters))) for tool in self.tools
        )
        return (
            size(self.system)
            + tools
            + (len(to_json(self.response_schema)) if self.response_schema else 0)
        )


def described(tool: ToolDefinition) -> str:
    """A tool in words: name, description, and the schema of its arguments."""
    return f"{tool.name}: {tool.description}\nArguments: {to_json(tool.parameters).decode()}"


class Protocol(typing.Protocol):
    """A way to ask for tools. Modules are protocols."""

    def ask(self, prompt: Prompt) -> Prompt:
        """`prompt` as it is sent.

        Raises:
            LLMInvalidRequestError: An option that this protocol cannot keep.
        """

    def read(self, answer: ModelAnswer, prompt: Prompt, *, corrects: bool) -> ModelAnswer:
        """What the model has answered to `prompt`, which is the one before it was put into words.

        Never raises.

        `corrects` says what to do with words that are neither a call nor an answer: object to them,
        or take them for the answer.
        """
