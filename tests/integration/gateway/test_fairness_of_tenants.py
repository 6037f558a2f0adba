"""Turns of a tenant have its fairness key, whichever way they are started."""

from __future__ import annotations

import secrets
from typing import Any

import httpx
import pytest

from perdure import Agent, UserMessage, errors
from perdure.clients import AgentClient
from perdure.clients.gateway import A2AAgent, Caller
from perdure.testing import FunctionModel, ModelRequest, Reply, fails, says

from ...conftest import Runtime
from ...support.gateway.served import A2A, send_message, served, until_not

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ...support.mcp.tasks import assistant, use

DESK = Agent(name="desk", model="main")
TURNS = 14
CRON: dict[str, Any] = {"cron": "0 7 1 1 *", "timezone": "UTC"}


def replies(request: ModelRequest) -> Reply:
    """An answer, or for the task "bad" none."""
    [task, *_] = request.messages
    is_bad = isinstance(task, UserMessage) and task.text == "bad"
    return fails(errors.LLMAuthError("no key")) if is_bad else says("done")


async def key_of(client: AgentClient, workflow_id: str) -> str:
    """The fairness key of a workflow."""
    found = await client.temporal.get_workflow_handle(workflow_id).describe()
    return found.raw_description.workflow_execution_info.priority.fairness_key


async def started_by_all_ways(http: httpx.AsyncClient) -> None:
    """Start a turn in each way."""
    task = {"agent": "desk", "task": "a"}
    said = {"threadId": "talk-2", "runId": "r", "messages": [], "state": {}, "tools": []}
    message = {"id": "m", "role": "user", "content": "a"}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("v1/turns", {**task, "id": "one"}),
        ("v1/turns/one/fork", {"say": "b", "id": "forked"}),
        ("v1/sessions/talk/messages", {"text": "a", "begin": {"agent": "desk"}}),
        ("v1/sessions/talk/fork", {"id": "talk-1"}),
        ("v1/sessions/talk-1/messages", {"text": "b"}),
        ("v1/batches", {"id": "many", "agent": "desk", "tasks": ["a"]}),
        ("v1/schedules", {**task, **CRON, "id": "daily"}),
        ("v1/schedules/daily/run", {}),
        ("agui/desk", {**said, "context": [], "forwardedProps": {}, "messages": [message]}),
        ("openai/v1/responses", {"model": "desk", "input": "a", "conversation": "talk-3"}),
        ("openai/v1/responses", {"model": "desk", "input": "a"}),
        ("openai/v1/chat/completions", {"model": "desk", "messages": [message]}),
        ("a2a/desk", send_message("m")),
        ("v1/batches", {"id": "failing", "agent": "desk", "tasks": ["bad"]}),
        ("v1/batches/failing/retry", {}),
    ]
    for path, body in requests:
        if path.endswith("/retry"):
            await until_over(http, "v1/batches/failing")
        answer = await http.post(f"/{path}", json=body, headers=A2A)
        assert answer.status_code < 300, (path, answer.text)
        if path == "v1/turns":
            await http.get("/v1/turns/one/result", params={"wait": 30})
    async with assistant(http) as mcp:
        assert "refused" not in await use(mcp, "start_turn", agent="desk", task="a", id="by-mcp")


async def until_over(http: httpx.AsyncClient, batch: str) -> None:
    """Wait until a batch is over."""

    async def state() -> int:
        return int((await http.get(f"/{batch}")).json()["state"] == "running")

    await until_not(1, state)


@pytest.mark.accepts("H114")
@pytest.mark.slow
async def test_turns_of_a_tenant_have_its_key_however_they_are_started(runtime: Runtime) -> None:
    """Also those of sessions, batches, schedules and forks, and of a session of a schedule."""
    tenant = secrets.token_hex(4)
    caller = Caller("a@example.com", tenant)
    async with (
        runtime(DESK, model=FunctionModel(replies)) as client,
        served(client, lambda _: caller, a2a_agents=[A2AAgent("desk", "Answers.")]) as http,
    ):
        await started_by_all_ways(http)
        await client.batch(f"@{tenant}/many").wait()
        weekly = await client.create_schedule(
            f"@{tenant}/weekly", "desk", "a", session=f"@{tenant}/s", fairness=tenant, **CRON
        )
        await weekly.run_now()
        found: set[str] = set()
        while len(found) < TURNS:
            found = {one.id async for one in client.turns(id_prefix=caller.prefix)}
        keys = {one: await key_of(client, one) for one in found}
        for schedule in ("daily", "weekly"):
            await client.schedule(f"@{tenant}/{schedule}").delete()

    assert {key for key, of in keys.items() if of != tenant} == set()
