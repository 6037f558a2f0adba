"""What people have decided lately, over HTTP and in Python."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Agent, tool
from perdure.clients import AgentClient, DecidedCall
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, says
from perdure.toolboxes import asking
from perdure.values.messages import ToolMessage

from ...conftest import Runtime
from ...support.gateway.served import as_, served
from ...support.spending import SOON_S


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


def pays_and_asks(request: ModelRequest) -> Reply:
    """Pay twice, ask, and be done."""
    if isinstance(request.messages[-1], ToolMessage):
        return says("Done.")
    ask = call("ask", question="Why?")
    return calls(call("refund", euros=1), call("refund", euros=2), ask)


def brief(decided: DecidedCall) -> tuple[Any, ...]:
    """What was decided, and by whom."""
    return (decided.tool, decided.arguments, decided.approve, decided.is_answer, decided.by)


async def until(client: AgentClient, number: int) -> tuple[DecidedCall, ...]:
    """The decisions about the calls of the turn, once there are so many: Temporal's list lags."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = await client.decisions("clerk", id_prefix="@acme/h244")
            if len(found) >= number:
                return found
            await asyncio.sleep(0.1)


@pytest.mark.accepts("H244")
async def test_decisions_are_listed_with_who_made_them(runtime: Runtime) -> None:
    """The last first, with the tool and the arguments, and for their tenant alone."""
    clerk = Agent(name="clerk", model="main", tools=[refund], toolboxes=[asking()])
    async with runtime(clerk, model=FunctionModel(pays_and_asks)) as client, served(client) as http:
        turn = await client.start("clerk", "go", id="@acme/h244")
        await turn.wait(60)
        first, second, question = await turn.pending_approvals()
        await turn.approve(first, by="anna", reason="it is lost")
        await turn.deny(second, "too much", by="ben")
        running = await until(client, 2)
        await turn.answer(question, "because", by="carl")
        await turn.result()
        found = await until(client, 3)
        listed = (await http.get("/v1/decisions", params={"limit": 2})).json()["decisions"]
        others = (await http.get("/v1/decisions", headers=as_("otto"))).json()["decisions"]
        none = await client.decisions("nobody")

    assert [brief(decided) for decided in found] == [
        ("ask", '{"question": "Why?"}', True, True, "carl"),
        ("refund", '{"euros": 2}', False, False, "ben"),
        ("refund", '{"euros": 1}', True, False, "anna"),
    ]
    assert [decided.reason for decided in found] == ["", "too much", "it is lost"]
    assert [*map(brief, found[1:])] == [*map(brief, running)]
    assert [one["by"] for one in listed] == ["carl", "ben"]
    assert listed[0]["turn"]["id"] == "@acme/h244"
    assert (others, none) == ([], ())
