"""Questions that a turn asks people."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from perdure.base import Wire


class Question(Wire):
    """A question of a model to a person.

    Attributes:
        text: What is asked, as the model wrote it.
        options: The answers to choose from; empty for a text, or for a form.
        form: The JSON schema of the object that is asked for; None for an option or a text.
        default: The answer if nobody gives one in time; None without one.
    """

    text: str
    options: tuple[str, ...] = ()
    form: dict[str, JsonValue] | None = None
    default: JsonValue = None

    @property
    def kind(self) -> Literal["question", "form"]:
        """Whether a form is to be filled in, or a question to be answered."""
        return "question" if self.form is None else "form"

    @property
    def schema_of_answer(self) -> dict[str, JsonValue]:
        """The JSON schema of an answer."""
        if self.form is not None:
            return self.form
        if self.options:
            return {"type": "string", "enum": [*self.options]}
        return {"type": "string"}
