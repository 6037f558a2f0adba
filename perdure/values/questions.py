"""Questions that a turn asks people."""

from __future__ import annotations

from operator import not_
from typing import Literal

from pydantic import Field, JsonValue

from perdure.base import Wire
from perdure.values.inquiries import LoginRequest


class Question(Wire):
    """A question to a person: of a model, or of a server during a call.

    Attributes:
        text: What is asked, as the model wrote it; of a server, what it asks, and who asks.
        options: The answers to choose from; empty for a text, or for a form.
        form: The JSON schema of the object that is asked for; None for an option or a text.
        default: The answer if nobody gives one in time; None without one.
        server: The MCP server that asks; empty for a question of the model.
        login: The login at that server which is asked for; None for another question.
    """

    text: str
    options: tuple[str, ...] = ()
    form: dict[str, JsonValue] | None = None
    default: JsonValue = None
    server: str = Field(default="", exclude_if=not_)
    login: LoginRequest | None = Field(default=None, exclude_if=not_)

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
