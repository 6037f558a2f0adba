"""Questions of a model as forms of MCP: what a client shows to its user, and what the user enters.

A form of MCP is a flat object of texts, numbers, booleans and choices. What does not fit into that
is asked for as JSON in a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic_core import from_json, to_json

from perdure import errors
from perdure.values.approvals import PendingApproval
from perdure.values.questions import Question

ANSWER = "answer"
"""The name of the field of a question that is no form, or whose form is not flat."""
_NOTES = ("title", "description", "default")
_KEYWORDS = {
    "string": (*_NOTES, "minLength", "maxLength"),
    "number": (*_NOTES, "minimum", "maximum"),
    "integer": (*_NOTES, "minimum", "maximum"),
    "boolean": _NOTES,
}
_FORMATS = ("email", "uri", "date", "date-time")
Json = dict[str, Any]


class Filled(BaseModel):
    """What a user has entered into a form; the answer is checked by the turn."""

    model_config = ConfigDict(extra="allow")

    @property
    def content(self) -> dict[str, JsonValue]:
        """The values by field."""
        return self.model_extra or {}


@dataclass(frozen=True)
class Form:
    """The form of a question.

    Attributes:
        schema: Its JSON schema, as MCP allows it.
        is_whole: Whether its fields are those of the answer; otherwise `answer` has it.
        is_json: Whether the answer is JSON in a text.
        nullable: The fields that are null if they are left out.
    """

    schema: Json
    is_whole: bool = False
    is_json: bool = False
    nullable: tuple[str, ...] = ()

    @property
    def model(self) -> type[Filled]:
        """A type with this schema, for the SDK."""
        schema = self.schema

        class Answer(Filled):
            @classmethod
            def model_json_schema(cls, *_: Any, **__: Any) -> Json:
                return schema

        return Answer

    def answer_in(self, content: Mapping[str, JsonValue]) -> JsonValue:
        """Return the answer to the question in what a user has entered.

        Raises:
            InvalidRequestError: It is to be JSON, and is not.
        """
        if self.is_whole:
            left_out = {name: None for name in self.nullable if name not in content}
            return {**content, **left_out}
        answer = content.get(ANSWER)
        if not self.is_json:
            return answer
        try:
            value: JsonValue = from_json(answer if isinstance(answer, str) else to_json(answer))
        except ValueError:
            raise errors.InvalidRequestError(f"{ANSWER} is not JSON") from None
        return value


def form_of(call: PendingApproval) -> Form:
    """Return the form of a call that asks a person."""
    question = call.question
    assert question is not None
    return Form(_field_of(question)) if question.form is None else _form(question.form)


def _form(form: Json) -> Form:
    fields: Json = form["properties"]
    flat = {name: _flat(field) for name, field in fields.items()}
    if not all(flat.values()):
        text = {"type": "string", "description": f"JSON of this schema: {to_json(form).decode()}"}
        return Form(_object({ANSWER: text}, [ANSWER]), is_json=True)
    required = form.get("required", [])
    nullable = tuple(name for name in required if "anyOf" in fields[name])
    schema = _object(flat, [name for name in required if name not in nullable])
    return Form(schema, is_whole=True, nullable=nullable)


def _field_of(question: Question) -> Json:
    field = dict(question.schema_of_answer)
    if question.default is not None:
        field["default"] = question.default
    return _object({ANSWER: field}, [ANSWER])


def _flat(field: Json) -> Json | None:
    """Return a field as MCP has it; None for one that it does not have."""
    kinds = [item for item in field.get("anyOf", ()) if item.get("type") != "null"]
    if len(kinds) == 1 and len(field["anyOf"]) == 2:
        notes = {name: field[name] for name in _NOTES if field.get(name) is not None}
        return _flat({**kinds[0], **notes})
    kind, choices = field.get("type"), field.get("enum")
    if choices is not None:
        if kind not in (None, "string") or not all(isinstance(item, str) for item in choices):
            return None
        return {"type": "string", "enum": choices, **_kept(field, _NOTES)}
    if kind not in _KEYWORDS or "const" in field or "oneOf" in field or "anyOf" in field:
        return None
    made = {"type": kind, **_kept(field, _KEYWORDS[kind])}
    if kind == "string" and field.get("format") in _FORMATS:
        made["format"] = field["format"]
    return made


def _kept(field: Json, names: tuple[str, ...]) -> Json:
    return {name: field[name] for name in names if field.get(name) is not None}


def _object(properties: Json, required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required}
