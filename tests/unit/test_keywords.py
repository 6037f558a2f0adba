"""Options that several functions share: `help` shows each of them, and the error for an unknown one
has the closest match.
"""

import dataclasses
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, MCPServer, Tool, tool
from perdure.agents.definitions import AgentDefinition
from perdure.agents.mcp_servers import MCPServerOptions
from perdure.agents.tools import ToolOptions
from perdure.clients import AgentClient, Schedule, Turn
from perdure.clients.schedules.definition import ScheduleChanges
from perdure.clients.turns.fork_options import ForkOptions
from perdure.clients.turns.starting import StartOptions
from perdure.temporal import start_request
from perdure.turn.wire import TurnRequest
from perdure.values.turn_options import SharedOptions, TurnOptions
from perdure.workflows import run_turn

FAMILIES: dict[Callable[..., Any], type] = {
    AgentClient.start: StartOptions,
    AgentClient.run: StartOptions,
    Turn.fork: ForkOptions,
    Schedule.change: ScheduleChanges,
    AgentClient.session: SharedOptions,
    AgentClient.start_batch: TurnOptions,
    AgentClient.create_schedule: TurnOptions,
    run_turn: TurnOptions,
    tool: ToolOptions,
    Tool.__init__: ToolOptions,
    Tool.from_schema: ToolOptions,
    MCPServer.stdio: MCPServerOptions,
    MCPServer.http: MCPServerOptions,
}


UNCHECKED: Any = {
    "tool": tool,
    "Tool": Tool,
    "turn": start_request.turn_request,
    "session": AgentClient.session,
    "stdio": MCPServer.stdio,
}
"""Calls through these names are not seen by the type checker."""


def look() -> str:
    """Look somewhere."""
    return "seen"


@pytest.mark.parametrize("function", FAMILIES, ids=lambda function: function.__qualname__)
def test_help_shows_every_option_and_its_type(function: Callable[..., Any]) -> None:
    """As for a function with explicit parameters; no `**` is left."""
    shown = inspect.signature(function).parameters

    assert FAMILIES[function].__annotations__.keys() <= shown.keys()
    assert all(
        one.kind is not one.VAR_KEYWORD and isinstance(one.annotation, str)
        for name, one in shown.items()
        if name != "self"
    )
    assert "Unpack" not in str(inspect.signature(function))


def test_help_shows_defaults() -> None:
    """For a tool and a fork, their values; for a turn, that there is one."""
    shown = inspect.signature(tool).parameters

    assert (shown["timeout"].default, shown["read_only"].default) == (timedelta(seconds=60), False)
    assert "budget: 'Budget | None' = ..." in str(inspect.signature(AgentClient.start))
    assert "budget: 'Budget | None' = None" in str(inspect.signature(Turn.fork))


def test_options_are_described_where_they_are_said_to_be() -> None:
    """Those of a turn in `start`, of a fork in `Turn.fork`, of a tool in `tool`, and of a server in
    its class.
    """
    described: dict[Any, type] = {
        AgentClient.start: StartOptions,
        Turn.fork: ForkOptions,
        tool: ToolOptions,
        MCPServer: MCPServerOptions,
    }
    missing = [
        f"{thing.__qualname__}: {name}"
        for thing, family in described.items()
        for name in family.__annotations__
        if f"\n    {name}: " not in (inspect.getdoc(thing) or "")
    ]

    assert missing == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: UNCHECKED["tool"](read_onl=True),
            "a tool has no option 'read_onl'; did you mean 'read_only'?",
        ),
        (
            lambda: UNCHECKED["tool"](color="red"),
            (
                "a tool has no option 'color'; there are timeout, read_only, idempotent,"
                " requires_approval, local, effect, effect_scope, may_recur, verify, settle,"
                " on_unknown"
            ),
        ),
        (
            lambda: UNCHECKED["tool"](look, timout=1),
            "a tool has no option 'timout'; did you mean 'timeout'?",
        ),
        (
            lambda: UNCHECKED["Tool"](look, idempotant=True),
            "tool look has no option 'idempotant'; did you mean 'idempotent'?",
        ),
        (
            lambda: UNCHECKED["turn"]("clerk", "go", bugdet=None),
            "a turn has no option 'bugdet'; did you mean 'budget'?",
        ),
        (
            lambda: UNCHECKED["session"](AgentClient.__new__(AgentClient), "s", delay=None),
            "a session has no option 'delay'; there are labels, budget, max_iterations",
        ),
        (
            lambda: UNCHECKED["stdio"]("time", ["x"], trust=True),
            "unexpected keyword argument 'trust'",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_unknown_option_is_a_type_error(call: Callable[[], object], said: str) -> None:
    """As for any function, and it has the closest match."""
    with pytest.raises(TypeError) as caught:
        call()

    assert said in str(caught.value)


def test_every_option_of_a_turn_is_in_its_input() -> None:
    """With the same name, and its value arrives there."""
    assert TurnOptions.__annotations__.keys() <= TurnRequest.model_fields.keys()
    assert start_request.turn_request("clerk", "go", max_iterations=3).max_iterations == 3


def test_rules_that_an_agent_declares_are_pinned() -> None:
    """A new option of an agent that is missing in its definition would have no effect."""
    not_rules = {
        "description",
        "instructions",
        "takes_instructions",
        "takes_tools",
        "toolboxes",
        "resolver",
        "output",
        "policy",
        "observers",
    }

    assert {
        field.name for field in dataclasses.fields(Agent)
    } - not_rules <= AgentDefinition.model_fields.keys()
