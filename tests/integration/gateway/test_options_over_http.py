"""Options that sessions, schedules and batches take over HTTP as turns do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from perdure import Agent
from perdure.temporal.histories.runs import describe
from perdure.testing import FunctionModel, ModelRequest, Reply, says

from ...conftest import Runtime
from ...support.gateway.served import as_, served, told
from ...support.scheduling import DAILY, new_id

SCHEMA = {
    "type": "object",
    "properties": {"euros": {"type": "integer"}},
    "required": ["euros"],
    "additionalProperties": False,
}
ANY = {"type": "object"}
FORM: dict[str, Any] = {"output_schema": SCHEMA, "priority": 2}


def fits(request: ModelRequest) -> Reply:
    """An answer in the form that was asked for."""
    return says('{"euros": 7}' if request.response_schema else "seven")


async def in_a_session(http: httpx.AsyncClient, name: str) -> str:
    message = {"text": "How much?", "begin": {"agent": "desk", **FORM}}
    sent = await http.post(f"/v1/sessions/{name}/messages", json=message)
    return str(sent.json()["turn_id"])


async def in_a_batch(http: httpx.AsyncClient, name: str) -> str:
    batch = {"id": name, "agent": "desk", "tasks": ["How much?"], **FORM}
    assert (await http.post("/v1/batches", json=batch)).status_code == 202
    return f"@acme/{name}/1"


async def of_a_schedule(http: httpx.AsyncClient, name: str) -> str:
    """Created without them, and changed."""
    schedule = {**DAILY, "id": name, "agent": "desk", "task": "How much?"}
    assert (await http.post("/v1/schedules", json=schedule)).status_code == 200
    assert (await http.patch(f"/v1/schedules/{name}", json=FORM)).status_code == 200
    begun = await http.post(f"/v1/schedules/{name}/run")
    await http.delete(f"/v1/schedules/{name}")
    return str(begun.json()["id"])


@pytest.mark.table(1)
@pytest.mark.accepts("H15")
@pytest.mark.parametrize("begin", [in_a_session, in_a_batch, of_a_schedule])
async def test_form_of_the_answer_and_priority_are_those_of_each_turn(
    runtime: Runtime, begin: Callable[[httpx.AsyncClient, str], Awaitable[str]]
) -> None:
    """Whatever starts it."""
    desk = Agent(name="desk", model="main")
    async with runtime(desk, model=FunctionModel(fits)) as client, served(client) as http:
        turn_id = await begin(http, new_id("form"))

        async def result() -> httpx.Response:
            return await http.get(f"/v1/turns/{turn_id}/result", params={"wait": 30})

        found = await result()
        while found.status_code == 404:  # a batch or a schedule has not begun it yet
            found = await result()
        run = (await describe(client.temporal, turn_id)).workflow_execution_info

    assert found.json()["output"] == {"euros": 7}
    assert run.priority.priority_key == 2
    assert run.priority.fairness_key == "acme"


@pytest.mark.accepts("H15")
async def test_priority_needs_its_permission_and_a_schema_has_to_be_one(runtime: Runtime) -> None:
    """For sessions, batches and schedules, and for a change of a schedule."""
    desk, name = Agent(name="desk", model="main"), new_id("form")
    schedule = {**DAILY, "id": name, "agent": "desk", "task": "go"}
    paths: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "sessions/s/messages": lambda more: {"text": "go", "begin": {"agent": "desk", **more}},
        "batches": lambda more: {"id": "b", "agent": "desk", "tasks": ["go"], **more},
        "schedules": lambda more: {**schedule, "id": "n", **more},
    }
    async with runtime(desk, model=FunctionModel(fits)) as client, served(client) as http:
        made = await http.post("/v1/schedules", json=schedule, headers=as_("sam"))
        forbidden = [
            await http.post(f"/v1/{path}", json=body({"priority": 1}), headers=as_("sam"))
            for path, body in paths.items()
        ]
        for change in ({"priority": 1}, {"priority": None}):
            place = f"/v1/schedules/{name}"
            forbidden.append(await http.patch(place, json=change, headers=as_("sam")))
        wrong = [
            await http.post(f"/v1/{path}", json=body({"output_schema": ANY}))
            for path, body in paths.items()
        ]
        await http.delete(f"/v1/schedules/{name}")

    assert made.status_code == 200
    assert [told(one) for one in forbidden] == [(403, "FORBIDDEN")] * 5
    assert [told(one) for one in wrong] == [(422, "INVALID_REQUEST")] * 3
