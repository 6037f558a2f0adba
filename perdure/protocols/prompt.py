"""The prompt of a model call, before and after a protocol has rendered it."""

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
    """A request without its target model.

    `response_schema` is the schema that the answer's text must fit; None for free text.
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
            LLMInvalidRequestError: The tool choice names a tool that does not exist.
        """
        wish = self.options.tool_choice
        if wish in (None, "auto", "required") or not self.tools:
            return self.tools
        chosen = tuple(tool for tool in self.tools if tool.name == wish)
        if not chosen and wish != "none":
            names = ", ".join(tool.name for tool in self.tools)
            raise errors.LLMInvalidRequestError(
                f"tool_choice {one_line(str(wish), 80)!r} is none of auto, required, none and the"
                f" tools: {names}"
            )
        return chosen

    @property
    def weight(self) -> int:
        """The size of everything except the messages, in bytes."""
        tools = sum(
            len(to_json((tool.name, tool.description, tool.parameters))) for tool in self.tools
        )
        return (
            size(self.system)
            + tools
            + (len(to_json(self.response_schema)) if self.response_schema else 0)
        )


def described(tool: ToolDefinition) -> str:
    """Describe a tool in text: name, description, and the schema of its arguments."""
    return f"{tool.name}: {tool.description}\nArguments: {to_json(tool.parameters).decode()}"


class Protocol(typing.Protocol):
    """A way to call tools. Modules implement it."""

    def ask(self, prompt: Prompt) -> Prompt:
        """Return `prompt` as it is sent.

        Raises:
            LLMInvalidRequestError: The protocol does not support an option.
        """

    def read(self, answer: ModelAnswer, prompt: Prompt, *, corrects: bool) -> ModelAnswer:
        """Parse the model's answer to `prompt`, which is the prompt before it was rendered.

        Never raises. If the text is neither a call nor an answer, `corrects` decides whether it
        gets an objection or is taken as the answer.
        """
