"""The published JSON schema of events: `python -m tests.support.docs.event_schema` writes
`docs/assets/events.schema.json` from the types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from perdure.clients.reading.events import VERSION, kind_of
from perdure.turn.facts import Fact
from perdure.turn.keys import Key

FILE = Path(__file__).parents[3] / "docs/assets/events.schema.json"

STRING, FLAG, COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer"}
TIME = {"type": "string", "format": "date-time"}
CALL = {
    "type": "object",
    "required": ["call_id", "tool"],
    "properties": {"call_id": STRING, "tool": STRING, "arguments": STRING},
}
IDS = {
    "type": "array",
    "items": STRING,
    "description": "the messages to the turn that this model call is the first to send",
}
ACTIVITIES = ["agent", "model", "tool", "policy", "verify", "middleware", "observers", "delegate"]


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """This, or null."""
    return {**schema, "type": [schema["type"], "null"]}


ENVELOPE: dict[str, Any] = {
    "v": {
        "const": VERSION,
        "description": "changes when a field goes or means something else, not when one comes",
    },
    "turn": {**STRING, "description": "the turn's id"},
    "kind": STRING,
    "cursor": {**STRING, "description": "where turn.events(after=cursor) goes on"},
    "at": TIME,
    "agent": {**STRING, "description": "the agent that the turn was started with"},
    "last_agent": {**STRING, "description": "the agent that it was last handed over to, or agent"},
    "step": {**or_null(COUNT), "description": "from 1; null outside of steps"},
    "attempt": {**or_null(COUNT), "description": "which attempt of an activity, from 1"},
    "tool": {**or_null(STRING), "description": "the tool of the call that it is about"},
    "call_id": {**or_null(STRING), "description": "the id of that call"},
}
FAILURE: dict[str, Any] = {
    "error": {**or_null(STRING), "description": "the code of an error"},
    "message": STRING,
}
# a nested dict with values of two types
PENDING = {
    **CALL,
    "properties": {
        **CALL["properties"],  # type: ignore[dict-item]
        "expires_at": TIME,
        "is_unknown": {**FLAG, "description": "the call was made, and its outcome is unknown"},
        "message": STRING,
    },
}
WOKEN = {
    **CALL,
    "properties": {
        **CALL["properties"],  # type: ignore[dict-item]
        "by": {"enum": ["time", "event", "message", "refused"]},
        "waited_s": {"type": "number"},
        "event_id": STRING,
        "message": STRING,
    },
}
PUBLIC: dict[str, dict[str, Any]] = {
    "turn_started": {
        "task": STRING,
        "text": STRING,
        "forked_from": {"type": "object", "properties": {"turn_id": STRING, "step": COUNT}},
        "schedule": {"type": "object", "properties": {"id": STRING, "at": TIME}},
    },
    "scheduled": {"activity": {"enum": ACTIVITIES}, "arguments": STRING, "read": IDS},
    "agent_resolved": {},
    "handed_over": {"to": STRING},
    "model_answered": {
        "text": STRING,
        "stop": STRING,
        "usage": {"type": "object"},
        "cost": {**or_null(STRING), "description": "in US dollars; null if the price is unknown"},
        "model": STRING,
        "calls": {"type": "array", "items": CALL},
    },
    "call_failed": {**FAILURE, "lost": FLAG},
    "approval_needed": {"message": STRING},
    "tool_returned": {
        "is_error": FLAG,
        "is_unknown": FLAG,
        "asks": {**FLAG, "description": "there is no result yet: the server asks people first"},
        "is_job": {**FLAG, "description": "the tool has started a job, and the result comes later"},
        "known": {**STRING, "description": "an earlier call has the same effect"},
        "result": STRING,
    },
    "tool_lost": {
        **FAILURE,
        "loss": STRING,
        "sent_at": {**STRING, "format": "date-time", "description": "when the call was sent"},
    },
    "verified": {"verdict": {"enum": ["found", "absent", "unreadable"]}, "result": STRING},
    "policy_answered": {"verdict": STRING},
    "hook_ended": FAILURE,
    "child_scheduled": {
        "child": {"type": "object", "properties": {"turn": STRING, "agent": STRING}},
        "task": STRING,
        "child_number": COUNT,
    },
    "child_ended": {
        "child_number": COUNT,
        "outcome": or_null(STRING),
        "result": STRING,
        "message": STRING,
    },
    "child_read": {},
    "child_told": {"child_number": COUNT, "waits_for": or_null(STRING), "message": STRING},
    "decided": {
        "approve": FLAG,
        "settlement": STRING,
        "is_answer": FLAG,
        "arguments": STRING,
        "result": STRING,
        "message": STRING,
        "by": STRING,
    },
    "budget_added": {"more": or_null({"type": "object"}), "iterations": COUNT, "by": STRING},
    "resumed": {"by": STRING},
    "call_finished": {"is_error": FLAG, "result": STRING, "by": STRING},
    "polled": {"found": FLAG, "is_error": FLAG, "result": STRING},
    "job_stopped": {"stopped": FLAG, "message": STRING},
    "emitted": {
        "event_id": STRING,
        "name": STRING,
        "key": STRING,
        "text": STRING,
        "by": STRING,
    },
    "said": {"message_id": STRING, "now": FLAG, "text": STRING, "by": STRING},
    "wait_began": {
        "waits_for": STRING,
        "until": STRING,
        "pending": {"type": "array", "items": PENDING},
        "calls": {"type": "array", "items": CALL},
        "message": STRING,
    },
    "wait_ended": {
        "expired": {"type": "array", "items": STRING},
        "woken": {"type": "array", "items": WOKEN},
    },
    "cancel_requested": {"message": STRING, "by": STRING},
    "turn_ended": {**FAILURE, "outcome": STRING, "text": STRING},
}
"""The optional fields of the public view of each kind, besides the envelope."""
LIVE: dict[str, dict[str, Any]] = {
    "text": {"text": STRING},
    "text_begins": {"step": COUNT, "attempt": COUNT},
    "text_void": {"step": COUNT, "attempt": COUNT},
    "tool_progress": {
        "step": COUNT,
        "attempt": COUNT,
        "tool": STRING,
        "call_id": STRING,
        "details": {"type": "array"},
    },
    "caught_up": {},
}


def schema() -> dict[str, Any]:
    """The schema of all events of a turn."""
    facts = {kind_of(fact): _model(fact) for fact in get_args(Fact)}
    refs, given = models_json_schema(
        [(model, "serialization") for model in facts.values()], ref_template="#/$defs/{model}"
    )
    whole = [
        _event(kind, {**_read(kind), "fact": refs[model, "serialization"]}, ["fact"])
        for kind, model in facts.items()
    ]
    views = {
        "event": {"oneOf": whole},
        "public_event": {"oneOf": [_event(kind, PUBLIC[kind]) for kind in facts]},
        "live": {
            "oneOf": [
                _object({"v": ENVELOPE["v"], "kind": {"const": kind}, **fields}, ["v", "kind"])
                for kind, fields in LIVE.items()
            ]
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What Perdure tells of a turn",
        "description": (
            "event: Event.to_json() and --json; public_event: Event.public(); live: what comes"
            " between. New fields and kinds may come."
        ),
        "anyOf": [{"$ref": f"#/$defs/{view}"} for view in views],
        "$defs": {**views, **dict(sorted(given["$defs"].items()))},
    }


def _read(kind: str) -> dict[str, Any]:
    return {"read": IDS} if kind == "scheduled" else {}


def _is_key(hint: Any) -> bool:
    return set(get_args(hint) or [hint]) <= set(get_args(Key))


def _model(fact: Any) -> type[BaseModel]:
    hints = get_type_hints(fact)
    fields: dict[str, Any] = {
        name: (str if _is_key(hint) else hint, ...) for name, hint in hints.items()
    }
    return create_model(fact.__name__, __doc__=fact.__doc__, **fields)


def _event(kind: str, fields: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return _object({**ENVELOPE, "kind": {"const": kind}, **fields}, [*ENVELOPE, *(required or [])])


def _object(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": fields}


def text() -> str:
    """The content of the file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
