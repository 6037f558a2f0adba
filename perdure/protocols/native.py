"""The protocol that leaves tools to the API."""

from __future__ import annotations

from dataclasses import replace

from pydantic_core import to_json

from perdure.protocols.prompt import Prompt
from perdure.values.answers import ModelAnswer

TYPED = "When you need no tool any more, answer with nothing but JSON that fits this schema: "


def ask(prompt: Prompt) -> Prompt:
    """Nothing is put into words but the schema of an answer that calls of tools may come before.

    Not every API takes both.
    """
    if prompt.response_schema is None or not prompt.tools:
        return prompt
    words = TYPED + to_json(prompt.response_schema).decode()
    return replace(prompt, system=f"{prompt.system}\n\n{words}" if prompt.system.strip() else words)


def read(answer: ModelAnswer, prompt: Prompt, *, corrects: bool) -> ModelAnswer:
    """An answer is what it is."""
    return answer
