"""What a server asks people during a call, in the messages of the protocol.

Its words are data: characters that nobody sees and secrets of the connection are left out, and the
form becomes the part of JSON Schema that forms have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp_types import ElicitRequestFormParams
from pydantic import JsonValue, ValidationError

from perdure import limits
from perdure.activities.mcp.listing import mapped
from perdure.agents.mcp_logins import PREFIX
from perdure.schemas import forms
from perdure.schemas.visible import readable
from perdure.temporal.payloads import explain
from perdure.text import clip, one_line, size, stripped
from perdure.values.inquiries import GivenAnswers, Inquiry, ServerQuestion

_FORM = "elicitation/create"
_KEY_CHARACTERS = 200
_TEXT_BYTES = limits.QUESTION_CHARACTERS - 500  # the rest says who asks
_FIELDS = ("string", "number", "integer", "boolean", "array")

Json = Mapping[str, Any]


def read(
    server: str, requests: Json, without_secrets: Callable[[str], str], state: str = ""
) -> Inquiry:
    """Return what a server asks people.

    Args:
        server: The name of the server.
        requests: Its requests, by their keys.
        without_secrets: Removes secrets from the server's texts.
        state: What it wants back with the answers.

    Raises:
        ValueError: It asks for something that people are not asked here; the message says what, in
            half a sentence about the server.
    """
    if len(requests) > limits.SERVER_QUESTIONS:
        raise ValueError(f"it asks {len(requests)} questions at once")
    questions = tuple(_question(key, request, without_secrets) for key, request in requests.items())
    inquiry = Inquiry(server=server, questions=questions, state=state)
    if (bytes_ := size(inquiry.model_dump_json())) > limits.SERVER_QUESTIONS_BYTES:
        raise ValueError(
            f"its questions have {bytes_} bytes, more than {limits.SERVER_QUESTIONS_BYTES}"
        )
    return inquiry


def responses(answers: GivenAnswers, requests: Json | None = None) -> dict[str, JsonValue]:
    """Return the answers of people to these requests, or all of them, as a server reads them."""
    return {
        answer.key: {
            "action": answer.action,
            **({"content": answer.content} if answer.action == "accept" else {}),
        }
        for answer in answers.given
        if requests is None or answer.key in requests
    }


def _question(key: str, request: Any, without_secrets: Callable[[str], str]) -> ServerQuestion:
    if len(key) > _KEY_CHARACTERS:
        raise ValueError(f"the key of a question has more than {_KEY_CHARACTERS} characters")
    if key.startswith(PREFIX):
        raise ValueError(f"the key of a question begins with {PREFIX!r}")
    method = request.get("method") if isinstance(request, dict) else None
    if method != _FORM:
        raise ValueError(f"it asks for {one_line(str(method), 100)}, which is not offered")
    asked = request.get("params")
    if isinstance(asked, dict) and asked.get("mode", "form") != "form":
        raise ValueError("it wants its user to open an address, which is not offered")
    try:
        form = ElicitRequestFormParams.model_validate(asked, by_name=False)
    except ValidationError as error:
        raise ValueError(f"its question is not valid: {without_secrets(explain(error))}") from None
    text = clip(stripped(without_secrets(form.message)), _TEXT_BYTES)
    if not text.strip():
        raise ValueError("its question is empty")
    return ServerQuestion(key=key, text=text, form=_form(form.requested_schema, without_secrets))


def _form(schema: Json, without_secrets: Callable[[str], str]) -> dict[str, JsonValue] | None:
    """Return the form of a question; None if it has no field, so that consent is asked for."""
    form = forms.known_part(readable(mapped(dict(schema), without_secrets)))
    fields = form.get("properties")
    if form.get("type") == "object" and not fields:
        return None
    for name, field in fields.items() if isinstance(fields, dict) else ():
        _check_field(name, field, schema.get("properties", {}).get(name))
    try:
        forms.check(form)
    except ValueError as error:
        raise ValueError(f"its form cannot be shown: {error}") from None
    return form


def _check_field(name: str, field: Any, whole: Any) -> None:
    """Refuse a field that asks for a password, or is none of a form of the protocol."""
    shown = one_line(name, 100)
    if _is_secret(whole):
        raise ValueError(f"it asks for a password ({shown}), which would be kept in history")
    items = field.get("items") if isinstance(field, dict) else None
    fields = [item for item in (field, items) if isinstance(item, dict)]
    is_flat = items is None or fields[-1].get("type", "string") == "string"
    if not is_flat or (fields and fields[0].get("type", "string") not in _FIELDS):
        raise ValueError(f"its form cannot be shown: {shown} is no text, number, boolean or list")


def _is_secret(schema: Any) -> bool:
    """Return whether a schema, or one within it, says that its value is not to be shown."""
    if isinstance(schema, list):
        return any(map(_is_secret, schema))
    if not isinstance(schema, dict):
        return False
    is_hidden = schema.get("format") == "password" or schema.get("writeOnly") is True
    return is_hidden or any(map(_is_secret, schema.values()))
