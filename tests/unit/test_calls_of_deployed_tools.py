"""Which calls reach a deployed tool, depending on the definition that the turn is pinned to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import Tool
from perdure.activities.tool_compatibility import held_back, refused
from perdure.agents.mcp_servers import MCPServer, MCPTool
from perdure.schemas.tool_arguments import arguments_of
from perdure.turn.wire import ToolRun
from perdure.values.messages import UNKNOWN_NOTE


def pay(euros: int) -> str:
    """Pay."""
    return str(euros)


def of_days(days: timedelta, on: bool = False, many: float = 0) -> None:
    """Wait."""


def run(item: Tool, **fields: Any) -> ToolRun:
    """A call of a tool that has not changed."""
    return ToolRun(
        **{
            "owner": "clerk",
            "call_id": "c",
            "arguments": '{"euros": 5}',
            "schema_digest": item.digest,
            **fields,
        }
    )


@pytest.mark.accepts("T33")
def test_call_of_a_worker_of_an_earlier_release_never_asks() -> None:
    """Its turn does not support that: a call that fits runs, and the model gets an error for one
    that does not.
    """
    item = Tool(pay, requires_approval=True)
    old = run(item, schema_digest="another", approved=None)

    assert held_back(old, item, "all") is None
    assert refused(old, item, "euros: Field required").asks is None


@pytest.mark.accepts("T31")
def test_lost_call_of_a_tool_that_may_not_be_repeated_any_more_is_not_repeated() -> None:
    """The turn is pinned to a repeatable tool, and schedules the call again."""
    now, before = Tool(pay), Tool(pay, idempotent=True)
    told = held_back(run(now, approved="", repeats=True), now, "marked")

    assert told is not None
    assert (told.is_error, told.asks) == (True, None)
    assert (
        told.content
        == "pay: contact with the process that ran it was lost; whether it took effect is unknown,"
        f" and the deployed tool may not be repeated{UNKNOWN_NOTE}"
    )
    assert held_back(run(before, approved="", repeats=True), before, "marked") is None


@pytest.mark.accepts("T28")
def test_arguments_that_a_person_approved_for_the_deployed_tool_are_the_models_matter() -> None:
    """The person saw that signature: a mismatch is an error result for the model, as usual."""
    item = Tool(pay)

    assert refused(run(item, schema_digest="before", approved=item.digest), item, "no").asks is None
    assert (
        refused(run(item, schema_digest="before", approved="before"), item, "no").asks is not None
    )
    assert (
        refused(run(item, approved="of the release that is on its way"), item, "no").asks
        is not None
    )


@pytest.mark.accepts("T29")
def test_tools_of_mcp_servers_are_held_to_what_the_turn_is_pinned_to() -> None:
    """Their hints are the server's; the deployed agent decides whether approval is needed."""
    plain = MCPServer.http("shop", "http://127.0.0.1:1")
    marked = MCPServer.http("shop", "http://127.0.0.1:1", requires_approval=["buy"])
    tools = [MCPTool(server, "shop__buy", lambda *_: None, "d") for server in (plain, marked)]  # type: ignore[arg-type]
    said = [
        held_back(run(item, approved="", only_reads=True, repeats=True), item, "changes")
        for item in tools
    ]

    assert said[0] is None
    assert said[1] is not None
    assert said[1].asks is not None


@pytest.mark.accepts("T28")
@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ('{"days": "P3D"}', True),
        ('{"days": 3}', False),
        ('{"days": "P3D", "many": 5}', True),
        ('{"days": "P3D", "many": "5"}', False),
        ('{"days": "P3D", "on": true}', True),
        ('{"days": "P3D", "on": 1}', False),
    ],
)
def test_arguments_are_kept_where_the_function_gets_what_they_say(text: str, keeps: bool) -> None:
    """An integer for a float does; a number for a duration or a boolean does not."""
    assert arguments_of(of_days).keeps(text) is keeps
