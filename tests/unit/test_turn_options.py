"""Every option of a turn is on every surface, or is listed here as missing there."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
import pytest

from perdure import Budget, ModelRetryPolicy, RequestOptions
from perdure.__main__ import commands
from perdure.base import Value
from perdure.batch.wire import common_of
from perdure.clients import AgentClient, Schedule
from perdure.clients.gateway import openapi
from perdure.clients.gateway.application import operations
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.mcp.options import OfferedOptions
from perdure.clients.gateway.options import CommonOptions
from perdure.clients.gateway.rest.batches import StartBatch
from perdure.clients.gateway.rest.schedules import ChangeSchedule, CreateSchedule
from perdure.clients.gateway.rest.sessions import BeginSession
from perdure.clients.gateway.rest.turns import StartTurn
from perdure.clients.schedules.definition import ScheduleChanges
from perdure.clients.sessions.handle import session_request
from perdure.clients.turns.fork_options import ForkOptions
from perdure.session.facts import MessageSent, SessionStarted
from perdure.session.scheduled import session_of
from perdure.session.state import fold
from perdure.session.wire import SessionRequest
from perdure.temporal import start_request
from perdure.turn import wire
from perdure.turn.wire import Origin, TurnRequest
from perdure.values.turn_options import (
    OptionMark,
    SharedOptions,
    StoredOptions,
    TurnOptions,
    marked,
)
from perdure.workflows import run_turn

SHARED = SharedOptions.__annotations__.keys()
ALL = TurnOptions.__annotations__.keys()
VALUES: dict[str, Any] = {
    "labels": {"team": "north"},
    "budget": Budget(usd="2"),
    "max_iterations": 7,
    "options": RequestOptions(temperature=0.5),
    "model_retry": ModelRetryPolicy(maximum_elapsed=timedelta(seconds=9)),
    "allowed_tools": ("look",),
    "instructions": "Be brief.",
    "output_schema": {"type": "object", "properties": {"euros": {"type": "integer"}}},
    "on_done": "https://hooks.example.com/perdure",
    "on_wait": "https://hooks.example.com/waits",
    "version": "v2",
    "subject": "customer-4711",
}
"""A value of each option that a session takes as well, other than its default."""
BUDGET = {"usd", "time", "tokens", "model_calls", "tool_calls"}
SESSION_BUDGET = BUDGET - {"time"}

URLS = {"on_done", "on_wait"}
OF_PROGRAMS = {"options", "output_schema", "instructions", "client_tools", "shared_state"}
OF_CLIENTS = {"client_tools", "shared_state"}
NOT_ON_COMMAND_LINE = {"context", "history", "allowed_tools", *OF_PROGRAMS}
MISSING: dict[str, set[str]] = {
    "HTTP: turns": OF_CLIENTS,
    "HTTP: sessions": {"context", "history", "delay", "deadline", *OF_CLIENTS},
    "HTTP: batches": {"history", "delay", "deadline", *OF_CLIENTS},
    "HTTP: new schedules": {"history", "delay", "deadline", *OF_CLIENTS},
    "HTTP: changed schedules": {"history", "delay", "deadline", *OF_CLIENTS},
    "run": NOT_ON_COMMAND_LINE,
    "batch run": {*NOT_ON_COMMAND_LINE, "delay", "deadline"},
    "schedule create": {*NOT_ON_COMMAND_LINE, "delay", "deadline"},
    "schedule change": {*NOT_ON_COMMAND_LINE, "delay", "deadline"},
    "chat": {*NOT_ON_COMMAND_LINE, "delay", "deadline"},
    "MCP": {
        "context",
        "history",
        "labels",
        "allowed_tools",
        "version",
        *OF_PROGRAMS,
        *URLS,
    },
}
"""The options that a surface does not take."""
BODIES: dict[str, type[CommonOptions]] = {
    "HTTP: turns": StartTurn,
    "HTTP: sessions": BeginSession,
    "HTTP: batches": StartBatch,
    "HTTP: new schedules": CreateSchedule,
    "HTTP: changed schedules": ChangeSchedule,
}
COMMANDS = ("run", "batch run", "schedule create", "schedule change", "chat")


def parameters_of(path: str) -> set[str]:
    """The names of the parameters of a command."""
    command: click.Command = commands()
    for name in path.split():
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return {parameter.name for parameter in command.params if parameter.name is not None}


def on_command_line(path: str) -> set[str]:
    """The options of a turn that a command takes; those of a budget count as one."""
    names = parameters_of(path)
    if names >= (SESSION_BUDGET if path == "chat" else BUDGET):
        names.add("budget")
    return names & ALL


SURFACES: dict[str, set[str]] = {
    **{name: body.model_fields.keys() & ALL for name, body in BODIES.items()},
    **{path: on_command_line(path) for path in COMMANDS},
    "MCP": OfferedOptions.__annotations__.keys() & ALL,
}


@pytest.mark.parametrize("surface", MISSING)
def test_surface_takes_every_option_but_those_that_are_listed(surface: str) -> None:
    """A new option fails here until it is on the surface, or is said to be missing there."""
    assert ALL - SURFACES[surface] == MISSING[surface]


@pytest.mark.accepts("E96")
@pytest.mark.parametrize("path", [*COMMANDS, "session say"])
def test_command_that_starts_turns_takes_their_order(path: str) -> None:
    """Beside the options of a turn: Temporal's priority and fairness key."""
    assert parameters_of(path) >= {"priority", "fairness"}


@pytest.mark.accepts("H84")
def test_fork_takes_the_same_options_on_the_command_line() -> None:
    """By their names; the limits of the budget are one option, and `live` is `--stream`. What only
    programs use is missing, as in `run`.
    """
    missing = {"budget", "live", *OF_PROGRAMS}
    assert parameters_of("fork") >= ForkOptions.__annotations__.keys() - missing


def test_message_that_begins_a_session_takes_what_a_chat_does() -> None:
    """Without a terminal, the session is the same."""
    ends = {"session", "session_id", "agent", "text", "begin", "if_busy", "id", "follow"}
    assert parameters_of("session say") - ends == parameters_of("chat") - ends


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (AgentClient.start, ALL),
        (AgentClient.run, ALL),
        (AgentClient.start_batch, ALL),
        (AgentClient.create_schedule, ALL),
        (Schedule.change, ALL),
        (run_turn, ALL),
        (AgentClient.session, SHARED),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_functions_of_the_client_take_every_option(
    function: Callable[..., Any], options: Any
) -> None:
    """By name, as `help` and editors show them."""
    assert options <= inspect.signature(function).parameters.keys()


def test_option_is_stored_as_it_is_named() -> None:
    """Callers and inputs have the same options, and each has a value in this module."""
    assert SHARED == StoredOptions.model_fields.keys() == VALUES.keys()
    assert TurnRequest.model_fields.keys() >= ALL
    assert SessionRequest.model_fields.keys() >= SHARED
    assert ScheduleChanges.__annotations__.keys() >= ALL


def test_every_option_is_described_over_http() -> None:
    """By its own text in the document, or by that of its body."""
    schemas = openapi.document(operations())["components"]["schemas"]
    silent = [
        f"{body.__name__}.{name}"
        for body in (StartTurn, BeginSession, StartBatch, CreateSchedule)
        for name in SHARED
        for schema in [schemas[body.__name__]]
        if not schema["properties"][name].get("description")
        and f" {name}: " not in schema["description"]
    ]

    assert silent == []


def _next_turn(session: SessionRequest) -> TurnRequest:
    state = fold([SessionStarted(session), MessageSent("1", "hello", "queue")])
    return state.next_turn("s", "r")


def test_turn_has_the_options_of_whatever_starts_it() -> None:
    """A session, also one that a schedule begins; a batch of a schedule; and a fork, except for
    the webhook of the other turn.
    """
    turn = start_request.turn_request("clerk", "go", **VALUES)
    session = session_request("clerk", **VALUES)
    origin = Origin(turn_id="t", run_id="r", steps=1, digest="d")

    assert turn.passed_on() == VALUES
    assert _next_turn(session).passed_on() == VALUES
    assert session_of(turn).passed_on() == VALUES
    assert common_of(turn, None).passed_on() == {**VALUES, "budget": None}
    assert start_request.fork_of(turn, origin).passed_on() == {**VALUES, **dict.fromkeys(URLS)}


@pytest.mark.parametrize("body", BODIES.values())
def test_body_passes_every_option_to_the_client(body: type[CommonOptions]) -> None:
    """With the values that the request has."""
    required = {"id": "i", "agent": "clerk", "task": "go", "tasks": ["go"]}
    required |= {"cron": "0 7 * * *", "timezone": "UTC"}
    named = {name: value for name, value in required.items() if name in body.model_fields}
    values = {name: _as_json(value) for name, value in VALUES.items()}
    values["options"].pop("extra")  # not over HTTP
    read = body.model_validate_json(json.dumps({**named, **values}))

    assert read.common(Caller("anna", None)) == {**VALUES, "priority": None}


def _as_json(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, Value) else value


def test_only_these_options_are_passed_on_to_delegates() -> None:
    """The others are limits of one turn, or belong to its caller."""
    assert marked(OptionMark.DELEGATED) == ["labels", "model_retry", "on_wait", "subject"]


def test_options_that_override_limits_are_marked() -> None:
    """Callers of a gateway need the permission `budget` for them."""
    assert marked(OptionMark.LIMIT) == ["budget", "max_iterations", "model_retry"]


CONTENT = ("allowed_tools", "instructions", "subject")
DIGESTS: dict[str, tuple[dict[str, Any], str]] = {
    "plain": (
        {"agent": "clerk", "task": "go"},
        "a14b464de0d95a9e7f75c15a7068c7df803a50e5c46e2e5938950ca5df1c187c",
    ),
    "all content": (
        {
            "agent": "clerk",
            "task": {"content": "go", "allowed_tools": ["x"]},
            "context": {"a": "b"},
            "history": [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}],
            "allowed_tools": ["look"],
            "model": "m:x",
            "origin": {"turn_id": "t", "run_id": "r", "steps": 2, "digest": "d", "say": "s"},
            "session": "s",
            "schedule": {"id": "i", "timezone": "UTC", "offsets": []},
            "handed_to": "other",
            "said": [{"role": "user", "parts": [{"type": "text", "text": "more"}], "id": "1"}],
        },
        "5af5d73bed901d84b579df0968c9aa2a7b0576254fc9e07f50d7dbd68da2cc6f",
    ),
}
"""Inputs, and their digests as the release before has them."""
HOW: dict[str, Any] = {
    **{name: _as_json(value) for name, value in VALUES.items() if name not in CONTENT},
    "live": True,
    "delay": "PT1S",
    "deadline": "PT9S",
    "effects": [{"tool": "pay", "call_id": "c", "step": 1, "arguments": "{}", "key": "k"}],
    "effect_scopes": {"turn": "t", "session": "s"},
}
"""A value of each field that is not part of the digest."""


@pytest.mark.accepts("E3")
@pytest.mark.parametrize("name", DIGESTS)
def test_digest_of_an_input_stays_the_same(name: str) -> None:
    """Callers that attach to a turn compare it, so it holds across releases; options are not part
    of it, nor who resumed a turn.
    """
    content, digest = DIGESTS[name]
    request = TurnRequest.model_validate({**content, **HOW})
    origin = request.origin and request.origin.model_copy(update={"by": "ada"})

    assert request.model_copy(update={"origin": origin}).digest() == digest
    assert TurnRequest.model_validate(content).digest() == digest


def test_field_of_an_input_is_part_of_its_digest_or_of_how_it_runs() -> None:
    """A new field that is part of the task has to be named."""
    assert {*wire._CONTENT} | HOW.keys() == TurnRequest.model_fields.keys()
