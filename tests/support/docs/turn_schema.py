"""The published JSON schema of a turn's input: `python -m tests.support.docs.turn_schema` writes
`docs/assets/turn.schema.json` from the types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.turn.wire import TurnRequest

FILE = Path(__file__).parents[3] / "docs/assets/turn.schema.json"

NULL = {"type": "null"}
STRING = {"type": "string"}
MONEY = {
    "anyOf": [
        {"type": "string", "pattern": r"^\d{1,9}(\.\d{1,9})?$"},
        {"type": "integer", "exclusiveMinimum": 0},
        NULL,
    ]
}
BLOCKS = {"type": "object", "additionalProperties": STRING, "not": {"required": ["blocks"]}}
OURS = ("title", "default", "discriminator", "decimal_places", "max_digits", "gt", "ge", "le")
"""Keywords of pydantic that are useless to the author of an input, or are not JSON schema."""

DESCRIPTIONS = {
    "agent": "the name of the agent",
    "task": "what is asked: a string, or an object with constraints",
    "context": "named blocks that precede the task in the first message",
    "history": "messages of an earlier turn, such as those of its report",
    "labels": "values that tools see and that turns are listed by",
    "budget": "what the turn may spend; it overrides the budget of the task, limit by limit",
    "max_iterations": (
        "the number of steps that the turn may make; it overrides the limit of the agent"
    ),
    "options": "options of the requests to the model; they override those of the agent",
    "model_retry": (
        "the retries of a model whose provider is unavailable; they replace those of the agent"
    ),
    "allowed_tools": "the only tools that may be called; null for all, [] for none",
    "instructions": "instructions of the caller, after those of an agent that takes any",
    "client_tools": "tools that the caller runs, for an agent that takes any",
    "shared_state": "what its tools find in ctx.shared_state",
    "output_schema": "the JSON schema of the answer; it overrides that of the agent",
    "model": (
        "the model, as provider:model or an alias of the worker; it overrides that of the agent"
    ),
    "live": "whether the text is shown while the model writes it",
    "delay": "when the turn begins: a duration after its start, or a date",
    "deadline": "when the turn ends at the latest: a duration after its start, or a date",
    "on_done": "the https URL that gets a webhook when the turn is over",
    "on_wait": "the https URL that gets a webhook each time that the turn waits for somebody",
    "version": "the version of the agent, instead of the one that the worker's rollout chooses",
}
"""Of every field of the input, except for those that only Perdure sets."""


def schema() -> dict[str, Any]:
    """The schema of the one argument of the workflow `AgentTurn`."""
    given = TurnRequest.model_json_schema()
    fields, parts = given["properties"], given["$defs"]
    fields["task"] = {"anyOf": [STRING, fields["task"]]}
    fields["context"] = {"anyOf": [{"$ref": "#/$defs/Context"}, BLOCKS, NULL]}
    parts["Budget"]["properties"]["usd"] = MONEY
    parts["Budget"] |= {"minProperties": 1}
    for internal in ("Lineage", "Ancestor", "InheritedTool", "Origin", "ScheduledBy"):
        del parts[internal]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The input of a turn",
        "description": "The one argument of the workflow AgentTurn, as JSON. New fields may come.",
        "type": "object",
        "required": given["required"],
        "additionalProperties": False,
        "properties": {
            name: {"description": words, **_plain(fields[name])}
            for name, words in DESCRIPTIONS.items()
        },
        "$defs": {name: _tagged(_plain(part)) for name, part in sorted(parts.items())},
    }


def _plain(given: Any, *, names: bool = False) -> Any:
    """Without keywords of pydantic; `names` says that the keys are names of properties."""
    if isinstance(given, list):
        return [_plain(one) for one in given]
    if not isinstance(given, dict):
        return given
    kept = {key: value for key, value in given.items() if names or key not in OURS}
    if not names and "description" in kept:
        kept["description"] = kept["description"].split("\n\n")[0]
    return {
        key: _plain(value, names=key == "properties" and not names) for key, value in kept.items()
    }


def _tagged(part: dict[str, Any]) -> dict[str, Any]:
    """A member of a union, with the field that identifies it as a required one."""
    tags = [name for name, field in part.get("properties", {}).items() if "const" in field]
    return {**part, "required": [*tags, *part.get("required", ())]} if tags else part


def text() -> str:
    """The content of the file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
