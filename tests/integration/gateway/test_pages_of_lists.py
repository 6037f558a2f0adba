"""Pages of lists over HTTP, messages that wait, and what a caller may choose for a turn."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest

from perdure import Agent, tool
from perdure.clients.reading import cursors
from perdure.temporal.histories.runs import describe
from perdure.testing import FunctionModel, ModelRequest, Reply, ScriptedModel, calls, says
from perdure.testing import call as wants

from ...conftest import Runtime
from ...support.gateway.served import as_, served, told, until_not

WAITS = timedelta(days=7)


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


DESK = Agent(name="desk", model="main", tools=[refund])


async def pages(
    http: httpx.AsyncClient, path: str, *, as_name: str = "anna", **query: Any
) -> list[list[str]]:
    """The ids on each page of a list."""
    found: list[list[str]] = []
    while True:
        page = (await http.get(path, params=query, headers=as_(as_name))).json()
        [entries] = [page[name] for name in ("turns", "sessions") if name in page]
        found.append([one["id"] for one in entries])
        if page["next"] is None:
            return found
        query["after"] = page["next"]


async def listed(http: httpx.AsyncClient, count: int) -> None:
    """Wait until the list, which lags behind, has so many turns of this agent."""

    async def missing() -> int:
        found = await pages(http, "/v1/turns", agent="paged")
        return 0 if sum(map(len, found)) < count else 1

    await until_not(0, missing)


@pytest.mark.accepts("H13", "H2")
async def test_list_is_read_page_by_page_while_turns_are_added(runtime: Runtime) -> None:
    """Each turn is on one page. A cursor is of one list, and opens nothing of another tenant."""
    paged = Agent(name="paged", model="main")
    async with runtime(paged, model=ScriptedModel()) as client, served(client) as http:
        ids = [f"@acme/page-{number}" for number in range(5)]
        own = [await client.start(paged, "Later.", id=one, delay=WAITS) for one in ids]
        own.append(await client.start(paged, "Later.", id="@third/page-1", delay=WAITS))
        await listed(http, 5)
        wanted: dict[str, Any] = {"limit": 2, "agent": "paged"}
        first = (await http.get("/v1/turns", params=wanted)).json()
        own.append(await client.start(paged, "Later.", id="@acme/page-new", delay=WAITS))
        await listed(http, 6)
        rest = await pages(http, "/v1/turns", **wanted, after=first["next"])
        everything = await pages(http, "/v1/turns", **wanted)
        other = await pages(http, "/v1/turns", agent="paged", limit=1, as_name="tess")
        query = await client.turns("paged", id_prefix="@acme/")._source.query()
        forged = cursors.of_token(b'{"CloseTime": "x"}', query)
        refused = [
            await http.get("/v1/turns", params={**wanted, **change}, headers=as_(name))
            for name, change in (
                ("anna", {"after": first["next"], "state": "running"}),
                ("tess", {"after": first["next"]}),
                ("anna", {"after": forged}),
                ("anna", {"after": "bad"}),
                ("anna", {"after": "x" * 1001}),
            )
        ]
        for turn in own:
            await turn.cancel()

    found = [one["id"] for one in first["turns"]] + [one for page in rest for one in page]
    assert sorted(found) == ids
    assert max(map(len, everything)) == 2
    assert sorted(one for page in everything for one in page) == [*ids, "@acme/page-new"]
    assert [one for page in other for one in page] == ["@third/page-1"]
    assert [told(one) for one in refused] == [(422, "INVALID_REQUEST")] * 5


@pytest.mark.accepts("H14", "H13", "H2")
@pytest.mark.slow
async def test_message_that_waits_names_its_turn_as_soon_as_it_has_one(runtime: Runtime) -> None:
    """Its turn is null until then; others do not see it. Sessions have pages, too."""
    model = ScriptedModel(calls(wants("refund", euros=40)), says("Done."), says("Again."))
    async with runtime(DESK, model=model) as client, served(client) as http:
        path = "/v1/sessions/wait-s1/messages"
        for number in (1, 2):
            message = {"text": "Hello.", "id": f"m-{number}", "begin": {"agent": "desk"}}
            await http.post(path, json=message)
        first, queued = [(await http.get(f"{path}/m-{one}")).json() for one in (1, 2)]
        soon = (await http.get(f"{path}/m-2", params={"wait": 0.1})).json()
        others = [
            await http.get(f"{path}/m-2", headers=as_("otto")),
            await http.get(f"{path}/m-3"),
            await http.get("/v1/sessions/wait-s2/messages/m-1"),
        ]
        waiting = asyncio.create_task(http.get(f"{path}/m-2", params={"wait": 30}))
        status = (await http.get("/v1/turns/wait-s1/1", params={"wait": 30})).json()
        pending = status["waits"][0]["call"]
        decision = {"call_id": pending["call_id"], "token": pending["token"]}
        await http.post("/v1/turns/wait-s1/1/approve", json=decision)
        given = (await waiting).json()
        result = await http.get(f"/v1/turns/{given['turn_id']}/result", params={"wait": 30})
        taken = {"text": "Hello.", "begin": {"agent": "desk"}}
        reserved = await http.post("/v1/sessions/a/messages/b/messages", json=taken)
        await http.post("/v1/sessions/wait-s3/messages", json={**taken, "text": "Bye."})
        lists = await pages(http, "/v1/sessions", limit=1)
        for name in ("wait-s1", "wait-s3"):
            await http.post(f"/v1/sessions/{name}/close")

    assert first == {"id": "m-1", "turn_id": "@acme/wait-s1/1"}
    assert queued == soon == {"id": "m-2", "turn_id": None}
    assert [told(one) for one in others] == [
        (404, "SESSION_NOT_FOUND"),
        (404, "MESSAGE_NOT_FOUND"),
        (404, "SESSION_NOT_FOUND"),
    ]
    assert given == {"id": "m-2", "turn_id": "@acme/wait-s1/2"}
    assert result.json()["output"] == "Again."
    assert told(reserved) == (422, "INVALID_REQUEST")
    assert {"@acme/wait-s1", "@acme/wait-s3"} <= {one for page in lists for one in page}


SCHEMA = {
    "type": "object",
    "properties": {"euros": {"type": "integer"}},
    "required": ["euros"],
    "title": "Refund",
}
LEVELS = 23
BOMB = {
    "$ref": "#/$defs/L0",
    "$defs": {
        f"L{level}": {"allOf": [{"$ref": f"#/$defs/L{level + 1}"}] * 2} for level in range(LEVELS)
    }
    | {f"L{LEVELS}": {"type": "string"}},
}
"""Two references in each definition: 2^23 values."""


def recalls(request: ModelRequest) -> Reply:
    """The number of messages that it was sent, in the form that was asked for, and its model."""
    count, schema = len(request.messages), request.response_schema
    return says(f'{{"euros": {count}}}' if schema else f"{request.model}: {count}")


@pytest.mark.slow
@pytest.mark.accepts("H15", "H3")
async def test_caller_chooses_the_form_of_an_answer_its_past_and_its_model(
    runtime: Runtime,
) -> None:
    """A priority and a model need a permission of their own."""
    desk = Agent(name="desk", model="scripted:main")
    async with runtime(desk, model=FunctionModel(recalls)) as client, served(client) as http:
        begun = {"agent": "desk", "task": "How much?", "output_schema": SCHEMA}
        first = await _result_of(http, {**begun, "id": "give-1"})
        said = (await http.get("/v1/turns/give-1/messages")).json()["messages"]
        more = {"id": "give-2", "history": said, "output_schema": SCHEMA, "priority": 1}
        second = await _result_of(http, {**begun, **more})
        other = {"say": "And now?", "model": "scripted:other", "id": "give-3"}
        plain = await _result_of(http, {"agent": "desk", "task": "Hello.", "id": "give-0"})
        forked = await http.post("/v1/turns/give-0/fork", json=other)
        third = (await http.get("/v1/turns/give-3/result", params={"wait": 30})).json()["output"]
        await client.start(desk, "Later.", id="@acme/give-4", delay=WAITS)
        running = await http.get("/v1/turns/give-4/messages")
        await client.turn("@acme/give-4").cancel()
        refused = [
            await http.post("/v1/turns", json={**begun, "priority": 1}, headers=as_("sam")),
            await http.post("/v1/turns/give-0/fork", json=other, headers=as_("sam")),
            await http.post("/v1/turns", json={**begun, "priority": 6}),
            await http.post("/v1/turns", json={**begun, "output_schema": {"type": "object"}}),
            await http.post("/v1/turns", json={**begun, "output_schema": BOMB}),
            await http.post("/v1/turns", json={**begun, "history": [{"role": "system"}]}),
            await http.get("/v1/turns/give-1/messages", headers=as_("otto")),
        ]
        found = await describe(client.temporal, "@acme/give-2")

    assert (first, second, plain) == ({"euros": 1}, {"euros": 3}, "desk: 1")
    assert [one["role"] for one in said] == ["user", "assistant"]
    assert (forked.status_code, third) == (202, "other: 3")
    assert found.workflow_execution_info.priority.priority_key == 1
    assert told(running) == (409, "TURN_RUNNING")
    assert [told(one) for one in refused] == [
        *[(403, "FORBIDDEN")] * 2,
        *[(422, "INVALID_REQUEST")] * 4,
        (404, "TURN_NOT_FOUND"),
    ]


async def _result_of(http: httpx.AsyncClient, body: dict[str, Any]) -> Any:
    """The output of a turn that is started with this body."""
    begun = await http.post("/v1/turns", json=body)
    assert begun.status_code == 202, begun.text
    found = await http.get(f"/v1/turns/{body['id']}/result", params={"wait": 30})
    return found.json()["output"]
