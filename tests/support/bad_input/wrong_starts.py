"""Starts of turns with wrong values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from perdure import Task, Text, UserMessage

NOTHING_ASKED = "the task is empty: give text, an image or a file, or a context with the request"
STARTS: list[tuple[dict[str, Any], str]] = [
    ({"agent": 5}, "the turn cannot be started: agent must be a string, not"),
    (
        {"task": 5},
        "the turn cannot be started: task must be a Task, not",
    ),
    ({"task": ""}, NOTHING_ASKED),
    ({"task": " \n"}, NOTHING_ASKED),
    ({"task": Task(content=())}, NOTHING_ASKED),
    ({"task": Task(content=(Text(text=" "),))}, NOTHING_ASKED),
    ({"task": "", "history": [UserMessage.of("2 + 3?")]}, NOTHING_ASKED),
    ({"task": "", "context": {}}, NOTHING_ASKED),
    (
        {"allowed_tools": "look"},
        "the turn cannot be started: allowed_tools must be a list, not",
    ),
    (
        {"allowed_tools": [5]},
        "the turn cannot be started: allowed_tools[0] must be a string, not",
    ),
    (
        {"budget": "0.5"},
        ("the turn cannot be started: budget must be a Budget, not"),
    ),
    (
        {"budget": {"usd": 0.5}},
        "the turn cannot be started: budget.usd: give money as text or Decimal",
    ),
    (
        {"options": 5},
        ("the turn cannot be started: options must be a RequestOptions, not"),
    ),
    (
        {"options": {"max_output_tokens": 10**40}},
        (
            "the turn cannot be started: options.max_output_tokens must be a whole number from 1"
            " to 1000000000"
        ),
    ),
    (
        {"labels": ["a"]},
        "the turn cannot be started: labels must be a mapping, such as a dict, not",
    ),
    ({"labels": {"a": 5}}, "the turn cannot be started: labels.a must be a string, not"),
    (
        {"context": "abc"},
        ("the turn cannot be started: context must be a Context, not"),
    ),
    (
        {"context": {"a": 5}},
        "the turn cannot be started: context.blocks.a must be a string, not",
    ),
    ({"history": 5}, "the turn cannot be started: history must be a list, not"),
    ({"history": ["x"]}, "the turn cannot be started: history[0] is no message of Perdure: "),
    ({"live": "perhaps"}, "the turn cannot be started: live must be True or False, not"),
    ({"id": 5}, "the turn: id must be a string, not 5"),
    ({"id": ""}, "a turn's id has 1 to 100 characters, not 0"),
    (
        {"if_exists": "Restart"},
        "the turn: if_exists must be 'attach', 'restart' or 'error', not 'Restart'",
    ),
    (
        {"priority": "high"},
        (
            "the turn: priority must be a whole number from 1, the first, to 5, the last, or None,"
            " not 'high'"
        ),
    ),
    (
        {"priority": 2.5},
        (
            "the turn: priority must be a whole number from 1, the first, to 5, the last, or None,"
            " not 2.5"
        ),
    ),
    (
        {"priority": True},
        (
            "the turn: priority must be a whole number from 1, the first, to 5, the last, or None,"
            " not True"
        ),
    ),
    (
        {"delay": 7200},
        "the turn cannot be started: delay must be a timedelta, longer than zero",
    ),
    (
        {"deadline": datetime(2030, 12, 1)},
        "the turn cannot be started: deadline must be a timedelta, longer than zero",
    ),
    (
        {"deadline": datetime(2026, 1, 1, tzinfo=UTC)},
        "the deadline, 2026-01-01 00:00:00 UTC, has passed; name a later one",
    ),
    (
        {"fairness": "x" * 65},
        "the turn: fairness must be a string of 1 to 64 bytes of visible characters",
    ),
    ({"fairness": "a", "weight": 0}, "the turn: weight must be a number from 0.001 to 1000"),
    (
        {"priority": 0},
        (
            "the turn: priority must be a whole number from 1, the first, to 5, the last, or None,"
            " not 0"
        ),
    ),
]
