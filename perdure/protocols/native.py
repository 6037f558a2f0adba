"""The protocol that leaves tool calls to the API."""

from __future__ import annotations

from dataclasses import replace

from pydantic_core import to_json

from perdure.protocols.prompt import Prompt
from perdure.values.answers import ModelAnswer

TYPED = "When you need no tool any more, answer with nothing but JSON that fits this schema: "


def ask(prompt: Prompt) -> Prompt:
    """Return the prompt, with the schema of a typed answer in the system prompt if it has tools.

    Not every API supports a response schema together with tools.
    """
    if prompt.response_schema is None or not prompt.tools:
        return prompt
    instruction = TYPED + to_json(prompt.response_schema).decode()
    return replace(
        prompt, system=f"{prompt.system}\n\n{instruction}" if prompt.system.strip() else instruction
    )


def read(answer: ModelAnswer, prompt: Prompt, *, corrects: bool) -> ModelAnswer:
    """Return the answer unchanged."""
    return answer
