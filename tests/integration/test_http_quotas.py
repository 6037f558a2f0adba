"""How much a tenant may have at the same time."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import httpx
import pytest

from perdure import Agent
from perdure.clients.gateway import Caller, Quota
from perdure.testing import FunctionModel, says

from ..conftest import Runtime
from .gateway import served, told

DESK = Agent(name="desk", model="main")
CRON: dict[str, Any] = {"cron": "0 7 1 1 *", "timezone": "UTC", "agent": "desk", "task": "a"}
WAITS: dict[str, Any] = {"agent": "desk", "task": "a", "delay": "PT1H"}


async def refusal(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """The first answer that is not a success: Temporal's list lags behind."""
    async with asyncio.timeout(20):
        while (answer := await http.post(path, json=body)).is_success:
            await asyncio.sleep(0.1)
            body = {**body, **({"id": secrets.token_hex(4)} if "id" in body else {})}
    return told(answer)


@pytest.mark.slow
@pytest.mark.accepts("H115")
async def test_tenant_has_no_more_than_its_numbers(runtime: Runtime) -> None:
    """What exists is found by its id, and callers without a tenant have no limit."""
    tenant, begin = secrets.token_hex(4), {"text": "a", "begin": {"agent": "desk"}}
    quota = Quota(turns=1, sessions=1, batches=1, tasks=2, schedules=1)
    caller = Caller("a@example.com", tenant, quota=quota)
    model = FunctionModel(lambda request: says("done"))
    task = {"task": {"content": "a"}}
    async with runtime(DESK, model=model) as client, served(client, lambda _: caller) as http:
        await http.post("/v1/schedules", json={**CRON, "id": "s"})
        await http.post("/v1/sessions/talk/messages", json=begin)
        refused = {
            "schedule": await refusal(http, "/v1/schedules", {**CRON, "id": "s-1"}),
            "session": await refusal(http, "/v1/sessions/talk-1/messages", begin),
            "thread": await refusal(http, "/v1/sessions/talk/fork", {"id": "talk-2"}),
        }
        begun = await http.post("/v1/turns", json={**WAITS, "id": "one"})
        refused["turn"] = await refusal(http, "/v1/turns", {**WAITS, "id": "two"})
        batch = {"id": "b", "agent": "desk", "tasks": [task] * 3}
        refused["tasks"] = told(await http.post("/v1/batches", json=batch))
        again = [
            (await http.post("/v1/turns", json={**WAITS, "id": "one"})).status_code,
            (await http.post("/v1/sessions/talk/messages", json=begin)).status_code,
            (await http.post("/v1/schedules", json={**CRON, "id": "s"})).status_code,
        ]
        async for turn in client.list(id_prefix=caller.prefix):
            await client.turn(turn.id).cancel()
        await client.schedule(f"@{tenant}/s").delete()

    assert begun.status_code == 202
    assert set(refused.values()) == {(429, "TOO_MANY_REQUESTS")}
    assert again == [202, 202, 200]
