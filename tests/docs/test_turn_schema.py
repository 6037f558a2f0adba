"""The published schema of a turn's input is up to date with the types."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from perdure import (
    AssistantMessage,
    MessagesTypeAdapter,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
    errors,
)
from perdure.temporal.payloads import unpack
from perdure.turn.wire import TurnRequest

from ..support.docs import turn_schema

CALL = ToolCall(id="call_1", name="add", arguments='{"a": 1}')
SAID = (
    UserMessage.of("Hi."),
    AssistantMessage(parts=(Thinking(text="…", signature="s"), Text(text="Let me see."), CALL)),
    ToolMessage.of(CALL, "2"),
)
ACCEPTED: list[dict[str, Any]] = [
    {"agent": "support", "task": "Answer."},
    {
        "agent": "support",
        "task": {
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "media", "media_type": "image/png", "data": "AA=="},
            ]
        },
    },
    {
        "agent": "support",
        "task": {
            "content": "Answer.",
            "type": "mail",
            "allowed_tools": [],
            "budget": {"tokens": 9},
            "requires_human_approval": True,
        },
        "context": {"customer": "Jo"},
        "history": json.loads(MessagesTypeAdapter.dump_json(SAID)),
        "labels": {"team": "red"},
        "budget": {
            "usd": "0.50",
            "time": "PT10M",
            "tokens": 1000,
            "model_calls": 3,
            "tool_calls": 3,
        },
        "max_iterations": 5,
        "options": {
            "temperature": 0.5,
            "max_output_tokens": 100,
            "stop_sequences": ["END"],
            "tool_choice": "auto",
            "extra": {"seed": 1},
        },
        "model_retry": {
            "initial_interval": "PT2S",
            "backoff_coefficient": 1.5,
            "maximum_interval": "PT1M",
            "maximum_elapsed": "PT10M",
            "on_exhausted": "pause",
            "on_limit": "wait",
        },
        "allowed_tools": ["add"],
        "instructions": "Be brief.",
        "client_tools": [{"name": "locate", "description": "Find the user."}],
        "output_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "model": "openai:gpt-5-mini",
        "live": True,
        "delay": "PT2H",
        "deadline": "2026-12-01T18:00:00+01:00",
    },
    {
        "agent": "support",
        "task": "",
        "context": {"blocks": {"question": "Why?"}},
        "budget": {"usd": 2},
    },
]
REFUSED: dict[str, dict[str, Any]] = {
    "no task": {"agent": "support"},
    "no name": {"agent": "", "task": "Answer."},
    "a float for money": {"agent": "support", "task": "Answer.", "budget": {"usd": 0.5}},
    "a budget without a limit": {"agent": "support", "task": "Answer.", "budget": {}},
    "tokens as a string": {"agent": "support", "task": "Answer.", "budget": {"tokens": "9"}},
    "no iterations": {"agent": "support", "task": "Answer.", "max_iterations": 0},
    "iterations as a string": {"agent": "support", "task": "Answer.", "max_iterations": "9"},
    "iterations as a truth value": {"agent": "support", "task": "Answer.", "max_iterations": True},
    "no such action": {"agent": "a", "task": "b", "model_retry": {"on_exhausted": "wait"}},
    "a label that is a number": {"agent": "support", "task": "Answer.", "labels": {"team": 1}},
    "a message without its role": {
        "agent": "support",
        "task": "Answer.",
        "history": [{"results": []}],
    },
    "a part without its type": {"agent": "support", "task": {"content": [{"text": "Look."}]}},
    "blocks that are a string": {"agent": "support", "task": "", "context": {"blocks": "Why?"}},
    "a delay as a number": {"agent": "support", "task": "Answer.", "delay": 7200},
    "tools as one string": {"agent": "support", "task": "Answer.", "allowed_tools": "add"},
}


def is_valid(given: Any) -> bool:
    """Whether the published schema accepts it."""
    return bool(
        jsonschema.Draft202012Validator(
            json.loads(turn_schema.FILE.read_text(encoding="utf-8"))
        ).is_valid(given)
    )


def read(given: Any) -> TurnRequest:
    """The input as a worker reads it."""
    payload = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(given).encode())
    return unpack(RawValue(payload), TurnRequest)


@pytest.mark.accepts("P22")
def test_schema_of_the_input_is_that_of_the_types() -> None:
    """`python -m tests.support.docs.turn_schema` updates it, and it has every field of the input
    except
    those that only Perdure sets.
    """
    assert turn_schema.FILE.read_text(encoding="utf-8") == turn_schema.text()
    internal = {"lineage", "origin", "said", "session", "schedule", "handed_to"}
    internal |= {"effects", "effect_scopes", "undo"}
    internal |= {"subject"}  # a plain input is not encrypted with the key of a subject
    assert set(turn_schema.DESCRIPTIONS) == set(TurnRequest.model_fields) - internal
    jsonschema.Draft202012Validator.check_schema(turn_schema.schema())


@pytest.mark.accepts("P22")
@pytest.mark.parametrize("given", ACCEPTED)
def test_worker_reads_an_input_that_the_schema_takes(given: dict[str, Any]) -> None:
    """Every field is used, too."""
    assert is_valid(given)
    assert {name for name in given if getattr(read(given), name) is None} == set()


@pytest.mark.accepts("P22")
@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_schema_refuses_an_input_that_a_worker_refuses(given: dict[str, Any]) -> None:
    """Both refuse it, so the mistake is found before the turn starts."""
    with pytest.raises(errors.InvalidRequestError):
        read(given)

    assert not is_valid(given)


def test_schema_refuses_a_misspelt_field_that_a_worker_ignores() -> None:
    """Workers ignore unknown fields because releases share a queue."""
    given = {"agent": "support", "task": "Answer.", "lables": {"team": "red"}}

    assert read(given).labels == {}
    assert not is_valid(given)
