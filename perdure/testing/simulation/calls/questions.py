"""Questions in a simulation that a model asks people."""

from __future__ import annotations

import json

from perdure.testing.simulation.choices import Choices

_FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_QUESTIONS = (
    '{"question": "which?"}',
    '{"question": "which?", "options": ["red", "green"], "default": "green"}',
    json.dumps({"question": "how many?", "schema": _FORM}),
    '{"question": "which?", "expires_minutes": 0.05, "default": "red"}',
    '{"question": "which?", "options": ["red"], "default": "blue"}',
)


def some_question(choices: Choices) -> str:
    """Return the arguments of a question, some of which cannot be asked."""
    return choices.pick(_QUESTIONS, beside="asks")
