"""`perdure answer`: an answer to a question of a model, and how questions are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from perdure import errors
from perdure.clients.turns.handle import Turn
from perdure.text import arguments_exactly, harmless, quoted, word
from perdure.values.questions import Question


async def give(turn: Turn[Any], call: str, text: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Answer a question with what was written on the command line.

    Returns what `--json` prints, and a sentence for people.

    Raises:
        InvalidRequestError: A form is to be filled in, and this is no JSON.
        PerdureError: As `Turn.answer` does.
    """
    call_id, _, token = call.partition(":")
    pending = {approval.call_id: approval for approval in await turn.pending_approvals()}
    found = pending.get(call_id)
    is_form = found is not None and found.kind == "form"
    await turn.answer(call_id, _read(text) if is_form else text, token=token or None, by=by)
    value = {"call_id": call_id, "decided": "answered", "by": by}
    return value, f"call {word(call)} of turn {word(turn.id)} is answered"


def lines(question: Question) -> Iterator[str]:
    """Yield what a person is asked, line by line, with every character visible."""
    yield from map(harmless, question.text.splitlines())
    for option in question.options:
        yield f"- {quoted(option)}"
    if question.login is not None:
        yield "`perdure login` logs in"
    if question.form is not None:
        yield f"form: {_json(question.form)}"
    if question.default is not None:
        yield f"default: {_json(question.default)}"


def _json(value: JsonValue) -> str:
    return arguments_exactly(to_json(value).decode())


def _read(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequestError(
            f"the question asks for a form, so the answer is a JSON object: {error}"
        ) from None
    return value
