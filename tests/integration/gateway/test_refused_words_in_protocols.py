"""What an agent must not say, looked for in every protocol of the gateway and in webhooks."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

pytest.importorskip("ag_ui", reason="the extra perdure[agui] is not installed")
pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from a2a.types import (
    ListTasksRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from openai import AsyncOpenAI

from perdure.clients import AgentClient
from perdure.clients.gateway import A2AAgent

from ...conftest import Runtime
from ...support.gateway import a2a, agui
from ...support.gateway.responses import failing, key, openai_of, resume
from ...support.gateway.served import served
from ...support.listing import entry_of
from ...support.mcp.tasks import assistant, use
from ...support.receiver import Receiver
from ...support.refused_words import ASKED, PERSON, POLICY, app, canaries, script

TURN = "tainted-over"
COMPLETION = f"{TURN}-completion"
NO = {"approve": False}


async def denied(client: AgentClient, turn_id: str) -> None:
    """Deny the call of a turn that waits."""
    turn = client.turn(f"@acme/{turn_id}")
    await turn.wait(60)
    [waiting] = await turn.pending_approvals()
    await turn.deny(waiting, "no")
    await turn.wait(60)


async def over_a2a(http: httpx.AsyncClient, receiver: Receiver) -> dict[str, object]:
    """The streams up to the question and after the decision, the task, and the notifications."""
    agent = await a2a.agent_of(http, streams=True)
    push = TaskPushNotificationConfig(id="push", url=receiver.url("/push"))
    request = SendMessageRequest(
        message=a2a.message("Help.", "taint-a2a-1"),
        configuration=SendMessageConfiguration(task_push_notification_config=push),
    )
    asked = [one async for one in agent.send_message(request)]
    waiting = await a2a.get(agent, asked[0].task.id)
    no = a2a.decision(waiting, "taint-a2a-2", **NO)
    after = [one async for one in agent.send_message(SendMessageRequest(message=no))]
    hooks = await receiver.until("/push", 2)
    return {
        "A2A, asked": f"{asked} {waiting}",
        "A2A, stream": f"{after}",
        "A2A": f"{await a2a.get(agent, waiting.id)} {await agent.list_tasks(ListTasksRequest())}",
        "A2A, push": [one.body.decode() for one in hooks],
    }


async def over_mcp(http: httpx.AsyncClient, client: AgentClient) -> dict[str, object]:
    async with assistant(http) as mcp:
        begun = await use(mcp, "start_turn", agent="desk", task="Help.", id=f"{TURN}-mcp")
        await denied(client, f"{TURN}-mcp")
        ended = await use(mcp, "turn_result", turn=f"{TURN}-mcp")
        status = await use(mcp, "turn_status", turn=f"{TURN}-mcp")
        await entry_of(client, f"{TURN}-mcp")
        turns = await use(mcp, "list_turns", limit=50)
    assert f"{TURN}-mcp" in str(turns)
    return {"MCP": f"{begun} {ended} {status}", "MCP, list": turns}


async def over_responses(http: httpx.AsyncClient, client: AgentClient) -> dict[str, object]:
    async with openai_of(http) as ai:
        asked = await ai.responses.create(model="desk", input="Help.")
        request = asked.output[-1].id
        no: Any = {"type": "mcp_approval_response", "approval_request_id": request, **NO}
        response = await ai.responses.create(
            model="desk", input=[no], previous_response_id=asked.id
        )
        stream = await resume(ai, response.id, -1)
        completed = await over_completions(http, client, ai)
    return {
        "completion": completed,
        "Responses, asked": asked.to_json(),
        "Responses": response.to_json(),
        "Responses, stream": stream,
    }


async def over_completions(http: httpx.AsyncClient, client: AgentClient, ai: AsyncOpenAI) -> str:
    """The errors of a turn that waits and then has a refused answer, also as streams."""
    given: Any = {"model": "desk", "messages": [{"role": "user", "content": "Help."}]}
    header, told = key(COMPLETION), ""
    for is_over in (False, True):
        if is_over:
            await denied(client, COMPLETION)
        error = await failing(ai.chat.completions.create(**given, extra_headers=header))
        body = {**given, "stream": True}
        stream = await http.post("/openai/v1/chat/completions", json=body, headers=header)
        told += f"{error.body} {stream.text}"
    assert "NEEDS_PERSON" in told
    assert "GUARDRAIL" in told
    return told


async def over_webhook(
    http: httpx.AsyncClient, client: AgentClient, receiver: Receiver
) -> dict[str, object]:
    hook_id = f"{TURN}-hook"
    urls = {"on_done": receiver.url("/x"), "on_wait": receiver.url("/waits")}
    body = {"agent": "desk", "task": "Help.", "id": hook_id, **urls}
    assert (await http.post("/v1/turns", json=body)).status_code == 202
    await denied(client, hook_id)
    session_id = f"{TURN}-chat"
    begin = {"agent": "desk", "on_done": receiver.url("/chat")}
    message = {"text": "Help.", "begin": begin}
    sent = await http.post(f"/v1/sessions/{session_id}/messages", json=message)
    assert sent.status_code == 202
    await denied(client, f"{session_id}/1")
    [hook, *_] = await receiver.until("/x")
    [of_session, *_] = await receiver.until("/chat")
    [wait, *_] = await receiver.until("/waits")
    return {
        "webhook": hook.body,
        "webhook of a session": of_session.body,
        "webhook of a wait, asked": wait.body,
    }


async def over_agui(http: httpx.AsyncClient) -> dict[str, object]:
    """The first run of a thread and the one that denies, without their live text, and the next run
    with its snapshot.
    """
    first = await agui.run(http, "desk", agui.asking("taint", "r-1", agui.user("Help.", "m-1")))
    no = agui.answering("taint", "r-2", first.interrupts, approved=False)
    second = await agui.run(http, "desk", no)
    given = agui.asking("taint", "r-3", agui.user("And now?", "m-3"))
    third = await agui.run(http, "desk", given)
    checked = [one for one in [*first, *second] if not one.type.value.startswith("TEXT_MESSAGE")]
    return {"AG-UI": checked, "AG-UI, next run": list(third)}


@pytest.mark.accepts("G27")
@pytest.mark.slow
async def test_what_was_refused_or_denied_is_where_it_is_documented_in_each_protocol(
    runtime: Runtime, receiver: Receiver
) -> None:
    """A2A, MCP and webhooks tell nothing of it but to who decides; Responses and AG-UI have the
    denied calls.
    """
    models = script(POLICY, PERSON, turns=7)
    async with (
        runtime(app(), model=models) as client,
        served(client, a2a_agents=[A2AAgent("desk", "Pays back.")]) as http,
    ):
        told = {
            **await over_a2a(http, receiver),
            **await over_mcp(http, client),
            **await over_responses(http, client),
            **await over_webhook(http, client, receiver),
            **await over_agui(http),
        }

    assert {name: canaries(one) for name, one in told.items()} == {
        "A2A, asked": {PERSON},
        "A2A, stream": set(),
        "A2A": set(),
        "A2A, push": set(),
        "MCP": set(),
        "MCP, list": set(),
        "webhook": set(),
        "webhook of a session": set(),
        "webhook of a wait, asked": {PERSON},
        "Responses, asked": ASKED,
        "Responses": ASKED,
        "Responses, stream": ASKED,
        "completion": set(),
        "AG-UI": ASKED,
        "AG-UI, next run": ASKED,
    }
