"""What an agent must not say, looked for in every protocol of the gateway and in webhooks."""

from __future__ import annotations

import httpx
import pytest

pytest.importorskip("ag_ui", reason="the extra perdure[agui] is not installed")
pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from a2a.types import ListTasksRequest

from perdure.clients.gateway import A2AAgent

from ..conftest import Runtime
from ..receiver import Receiver
from . import agui
from . import test_http_a2a as a2a
from .gateway import served
from .mcp_tasks import assistant, use
from .test_http_responses import openai_of, resume
from .test_tainted_words import POLICY, app, canaries, script


async def over_a2a(http: httpx.AsyncClient) -> object:
    agent = await a2a.agent_of(http)
    task = await a2a.send(agent, a2a.message("Help.", "taint-a2a"))
    return f"{task} {await a2a.get(agent, task.id)} {await agent.list_tasks(ListTasksRequest())}"


async def over_mcp(http: httpx.AsyncClient) -> object:
    async with assistant(http) as mcp:
        begun = await use(mcp, "start_turn", agent="desk", task="Help.", id="taint-mcp")
        ended = await use(mcp, "turn_result", turn="taint-mcp")
        status = await use(mcp, "turn_status", turn="taint-mcp")
    return f"{begun} {ended} {status}"


async def over_responses(http: httpx.AsyncClient) -> object:
    async with openai_of(http) as ai:
        response = await ai.responses.create(model="desk", input="Help.")
        stream = await resume(ai, response.id, -1)
    return f"{response.to_json()} {stream}"


async def over_webhook(http: httpx.AsyncClient, receiver: Receiver) -> object:
    body = {"agent": "desk", "task": "Help.", "id": "taint-hook", "on_done": receiver.url("/x")}
    assert (await http.post("/v1/turns", json=body)).status_code == 202
    [hook, *_] = await receiver.until("/x")
    return hook.body


async def over_agui(http: httpx.AsyncClient) -> tuple[object, object]:
    """The second run of a thread, with its snapshot, and the first one without its live text."""
    first = await agui.run(http, "desk", agui.asking("taint", "r-1", agui.user("Help.", "m-1")))
    given = agui.asking("taint", "r-2", agui.user("And now?", "m-2"))
    second = await agui.run(http, "desk", given)
    return [one for one in first if not one.type.value.startswith("TEXT_MESSAGE")], list(second)


@pytest.mark.accepts("G27")
@pytest.mark.slow
async def test_what_was_refused_or_denied_is_where_it_is_documented_in_each_protocol(
    runtime: Runtime, receiver: Receiver
) -> None:
    """A2A, MCP and webhooks tell nothing of it; Responses and AG-UI have the denied calls."""
    models = script(POLICY, turns=5)
    async with (
        runtime(app(), model=models) as client,
        served(client, a2a_agents=[A2AAgent("desk", "Pays back.")]) as http,
    ):
        told = {
            "A2A": await over_a2a(http),
            "MCP": await over_mcp(http),
            "Responses": await over_responses(http),
            "webhook": await over_webhook(http, receiver),
        }
        told["AG-UI"], told["AG-UI, next run"] = await over_agui(http)

    assert {name: canaries(one) for name, one in told.items()} == {
        "A2A": set(),
        "MCP": set(),
        "webhook": set(),
        "Responses": {POLICY},
        "AG-UI": {POLICY},
        "AG-UI, next run": {POLICY},
    }
