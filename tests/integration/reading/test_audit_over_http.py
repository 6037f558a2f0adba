"""Through what an act was done: each surface of the gateway says so, and who the caller is."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from perdure import Agent, tool
from perdure.clients import AgentClient
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, says
from perdure.values.messages import ToolMessage

from ...conftest import Runtime
from ...support.auditing import audited, lately
from ...support.gateway.a2a import PUBLISHED, agent_of, message, send
from ...support.gateway.agui import asking, user
from ...support.gateway.assistants import assistant, use
from ...support.gateway.hooks import HookFiles, deliver, table
from ...support.gateway.served import as_, served
from ...support.listing import eventually_listed
from ...support.spending import SOON_S

ANNA, OTTO = "anna@example.com", "otto@example.com"
ACTS = {
    ("rest", "start", ANNA),
    ("page", "deny", ANNA),
    ("responses", "start", ANNA),
    ("agui", "start", ANNA),
    ("agui", "say", ANNA),
    ("a2a", "start", ANNA),
    ("a2a", "say", ANNA),
    ("mcp", "start", "mcp (MCP)"),
    ("hook", "start", "hook /hooks/github"),
    ("session", "start", None),
    ("rest", "start", OTTO),
}
"""Through what, which act, and by whom."""


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


def pays(request: ModelRequest) -> Reply:
    """Pay if the task says so, and be done."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage) or "pay" not in str(last):
        return says("Done.")
    return calls(call("refund", euros=1))


DESK = Agent(name="desk", model="main", tools=[refund])


@pytest.fixture
def hooks(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> HookFiles:
    """Files of hooks."""
    return HookFiles(tmp_path, monkeypatch)  # type: ignore[arg-type]


async def told_since(client: AgentClient, since: datetime) -> set[tuple[str | None, ...]]:
    """The acts on what this test has made."""
    ours = ("@acme/", "@other/", "hooks/", "g45")
    return {
        (one.via, one.act, one.by)
        for one in await audited(client, since)
        if one.id.startswith(ours)
    }


@pytest.mark.accepts("G45", "G48", "G108")
async def test_each_surface_says_through_what_and_who(runtime: Runtime, hooks: HookFiles) -> None:
    """A request cannot say who it is from, and a tenant sees nothing of another one."""
    since = lately()
    async with (
        runtime(DESK, model=FunctionModel(pays)) as client,
        served(client, a2a_agents=PUBLISHED, hooks=hooks(table("github"))) as http,
        assistant(client) as mcp,
    ):
        started = {"agent": "desk", "task": "pay", "id": "g45-rest"}
        forged = await http.post("/v1/turns", json={**started, "by": "boss"})
        await http.post("/v1/turns", json=started)
        turn = client.turn("@acme/g45-rest")
        await turn.wait(SOON_S)
        [waiting] = await turn.pending_approvals()
        denied = {"call_id": waiting.call_id, "token": waiting.token, "reason": "no"}
        page = {"Perdure-Page": "1"}
        await http.post("/v1/turns/g45-rest/deny", json=denied, headers=page)
        await http.post("/openai/v1/responses", json={"model": "desk", "input": "g45"})
        await http.post("/agui/desk", json=asking("g45-agui", "r-1", user("Hello.", "m-1")))
        await send(await agent_of(http), message("Hello.", "g45-a2a"))
        await deliver(http, "github", "g45")
        await use(mcp, "start_turn", agent="desk", task="Hello.", id="g45-mcp")
        other = {"agent": "desk", "task": "Hello.", "id": "g45-rest"}
        await http.post("/v1/turns", json=other, headers=as_("otto"))
        await eventually_listed(client, ["@other/g45-rest"], id_prefix="@other/g45")
        async with asyncio.timeout(SOON_S):
            # the list lags
            while not (told := await told_since(client, since)) >= ACTS:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        answer = (await http.get("/v1/audit", params={"since": since.isoformat()})).json()
        theirs = await http.get(
            "/v1/audit", params={"since": since.isoformat()}, headers=as_("otto")
        )
        few: dict[str, str | int] = {"since": since.isoformat(), "limit": 1}
        first = (await http.get("/v1/audit", params=few)).json()
        last = (await http.get("/v1/audit", params={**few, "newest": True})).json()
        mine: dict[str, str | bool] = {"since": since.isoformat(), "by": "mcp (MCP)"}
        mine["newest"] = True
        by_mcp = (await http.get("/v1/audit", params=mine)).json()

    assert forged.status_code == 422
    assert "boss" not in {by for _, _, by in told}  # other tests act for these tenants, too
    assert {entry["id"].partition("/")[0] for entry in answer["entries"]} == {"@acme"}
    assert answer["has_more"] is False
    assert [(e["id"], e["by"]) for e in theirs.json()["entries"] if "g45" in e["id"]] == [
        ("@other/g45-rest", OTTO)
    ]
    assert (len(first["entries"]), first["has_more"]) == (1, True)
    assert (len(last["entries"]), last["has_more"]) == (1, True)
    assert last["entries"][0]["time"] >= answer["entries"][-1]["time"]
    assert {entry["by"] for entry in by_mcp["entries"]} <= {"mcp (MCP)"}
