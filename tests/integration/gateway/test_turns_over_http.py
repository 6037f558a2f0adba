"""Turns over HTTP: a real uvicorn, a real server and a real worker."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from perdure import Agent, tool
from perdure.clients import AgentClient
from perdure.clients.gateway import one_token, openapi
from perdure.clients.gateway.application import operations
from perdure.errors import LLMAuthError
from perdure.events import BudgetAdded, Decided, Said
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says

from ...conftest import Runtime
from ...support.gateway.served import (
    BODIES,
    answers_to_others,
    as_,
    messages,
    served,
    told,
    until,
    until_not,
)

OPEN = ("/ui/", "/openapi.json", "/healthz")
"""What everybody may read."""


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


DESK = Agent(name="desk", model="main", tools=[refund], instructions="Be kind to the customer.")


def asks(*answers: str) -> ScriptedModel:
    """A model that wants to pay back, and then answers."""
    return ScriptedModel(
        calls(call("refund", euros=40), text="I pay."), *(says(answer) for answer in answers)
    )


@contextlib.asynccontextmanager
async def desk(
    runtime: Runtime, **models: ScriptedModel
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient]]:
    """A client and a gateway of an agent whose models are chosen by the task."""
    async with runtime(DESK, model=ByTask(models)) as client, served(client) as http:
        yield client, http


async def waiting(http: httpx.AsyncClient, turn: str) -> dict[str, Any]:
    """The call of a turn that waits."""
    status = (await http.get(f"/v1/turns/{turn}", params={"wait": 30})).json()
    found: dict[str, Any] = status["waits"][0]["call"]
    return found


async def start(http: httpx.AsyncClient, turn: str, task: str, **more: Any) -> None:
    begun = await http.post("/v1/turns", json={"agent": "desk", "task": task, "id": turn, **more})
    assert begun.status_code == 202, begun.text


@pytest.mark.slow
@pytest.mark.accepts("H1", "H4")
async def test_turn_is_started_followed_approved_and_read(runtime: Runtime) -> None:
    """A start with the same key is the same turn; who decided comes from the token."""
    async with desk(runtime, lost=asks("Done."), other=asks()) as (client, http):
        key = {"Idempotency-Key": '"h1-ticket"'}
        begun = [
            await http.post("/v1/turns", json={"agent": "desk", "task": task}, headers=key)
            for task in ("lost", "lost", "other")
        ]
        pending = await waiting(http, "h1-ticket")
        soon = await http.get("/v1/turns/h1-ticket/result", params={"wait": 0.1})
        listed = (await http.get("/v1/approvals")).json()["approvals"]
        decisions = [
            await http.post(
                "/v1/turns/h1-ticket/approve",
                json={"call_id": pending["call_id"], "token": token, "reason": "fine"},
            )
            for token in ("wrong", pending["token"], pending["token"])
        ]
        result = await http.get("/v1/turns/h1-ticket/result", params={"wait": 30})
        over = await http.post("/v1/turns/h1-ticket/cancel")
        again = await http.get(begun[0].headers["location"])
        turn = client.turn("@acme/h1-ticket")
        [decided] = [one.fact async for one in turn.events() if isinstance(one.fact, Decided)]

    assert [one.status_code for one in begun] == [202, 202, 409]
    assert (
        begun[0].json()
        == begun[1].json()
        == {"id": "@acme/h1-ticket", "run_id": await turn.first_run()}
    )
    assert told(begun[2]) == (409, "TURN_CONFLICT")
    assert (soon.status_code, soon.json()["state"]) == (202, "waiting")
    assert [one["call"]["token"] for one in listed] == [pending["token"]]
    assert [one.status_code for one in decisions] == [409, 204, 409]
    assert (result.status_code, result.json()["output"], result.json()["error"]) == (
        200,
        "Done.",
        None,
    )
    assert (over.status_code, over.json()) == (202, {"cancelled": False})
    assert (again.status_code, again.json()["outcome"]) == (200, "completed")
    assert (decided.decision.by, decided.decision.reason) == ("anna@example.com", "fine")


@pytest.mark.slow
@pytest.mark.accepts("E140")
async def test_result_of_a_turn_that_fails_has_no_output(runtime: Runtime) -> None:
    """What its model said last is beside it."""
    model = ScriptedModel(
        calls(call("refund", euros=40), text="I pay."), fails(LLMAuthError("no key"))
    )
    async with desk(runtime, bad=model) as (_, http):
        await start(http, "h9-bad", "bad")
        pending = await waiting(http, "h9-bad")
        await http.post(
            "/v1/turns/h9-bad/approve",
            json={"call_id": pending["call_id"], "token": pending["token"]},
        )
        result = (await http.get("/v1/turns/h9-bad/result", params={"wait": 30})).json()

    assert (result["outcome"], result["error"]["code"]) == ("failed", "LLM_AUTH")
    assert (result["output"], result["last_text"]) == (None, "I pay.")


@pytest.mark.accepts("H1", "H4")
async def test_turn_is_steered_paid_for_denied_cancelled_forked_and_resumed(
    runtime: Runtime,
) -> None:
    """Each operation does what the method of the client does, in the name of the caller."""
    model = {"one": asks("No refund.", "Now."), "two": asks(), "three": asks("Again.", "Resumed.")}
    async with desk(runtime, **model) as (client, http):
        for number, task in enumerate(model, 1):
            await start(http, f"h2-{number}", task, budget={"tokens": 100000})
        pending = await waiting(http, "h2-1")
        said = await http.post(
            "/v1/turns/h2-1/steer",
            json={"text": "Do not pay."},
            headers={"Idempotency-Key": "m-1"},
        )
        rest = await http.post("/v1/turns/h2-1/add-budget", json={"budget": {"tokens": 5}})
        named = {"call_id": pending["call_id"], "reason": "too much"}
        bare = await http.post("/v1/turns/h2-1/deny", json=named)
        denied = await http.post("/v1/turns/h2-1/deny", json={**named, "token": pending["token"]})
        first = (await http.get("/v1/turns/h2-1/result", params={"wait": 30})).json()
        await waiting(http, "h2-2")
        asked = await http.post("/v1/turns/h2-2/cancel", json={"reason": "not today"})
        second = (await http.get("/v1/turns/h2-2/result", params={"wait": 30})).json()
        forked = await http.post("/v1/turns/h2-1/fork", json={"say": "And now?", "at_step": 2})
        await waiting(http, "h2-3")
        await http.post("/v1/turns/h2-3/cancel")
        await http.get("/v1/turns/h2-3/result", params={"wait": 30})
        key = {"Idempotency-Key": "h2-4"}
        resumed = [await http.post("/v1/turns/h2-3/resume", headers=key) for _ in range(2)]
        turn = client.turn("@acme/h2-1")
        facts = [one.fact async for one in turn.events()]
        for started in (forked, resumed[0]):
            path = started.headers["location"]
            await http.post(f"{path}/cancel")

    names = [
        fact.decision.by if isinstance(fact, Decided) else fact.by
        for fact in facts
        if isinstance(fact, Said | BudgetAdded | Decided)
    ]
    assert said.json() == {"id": "m-1"}
    assert names == ["anna@example.com"] * 3
    assert told(bare) == (422, "INVALID_REQUEST")
    assert rest.json()["tokens"] > 50000
    assert (denied.status_code, first["outcome"], first["output"]) == (
        204,
        "completed",
        "No refund.",
    )
    assert asked.json() == {"cancelled": True}
    assert (second["outcome"], second["error"]["code"]) == ("cancelled", "TURN_CANCELLED")
    assert forked.json()["id"] == "@acme/h2-1~1"
    assert [one.json()["id"] for one in resumed] == ["@acme/h2-4"] * 2


@pytest.mark.slow
@pytest.mark.accepts("H2")
async def test_tenant_sees_nothing_of_another(runtime: Runtime) -> None:
    """Every route answers 404 for the ids of another tenant, however they are written, and lists
    leave them out; nothing is changed.
    """
    async with desk(runtime, one=asks()) as (client, http):
        await start(http, "h3-1", "one")
        await waiting(http, "h3-1")
        turn = client.turn("@acme/h3-1")
        before = (await client.turn(turn.id).status()).model_dump(exclude={"spent"})
        answers = await answers_to_others(http, "turns", "h3-1")
        lists = [
            (await http.get(path, headers=as_(name))).json()
            for path in ("/v1/turns", "/v1/approvals", "/v1/turns?parent=@acme/h3-1")
            for name in ("otto",)
        ]
        own = (await http.get("/v1/turns")).json()["turns"]
        everything = (await http.get("/v1/turns/@acme/h3-1", headers=as_("root"))).json()
        after = (await client.turn(turn.id).status()).model_dump(exclude={"spent"})
        await turn.cancel()

    assert answers == {(404, "TURN_NOT_FOUND")}
    empty: dict[str, Any] = {"turns": [], "next": None}
    assert lists == [empty, {"approvals": []}, empty]
    assert [one["id"] for one in own if one["id"].startswith("@acme/h3")] == ["@acme/h3-1"]
    assert all(one["id"].startswith("@acme/") for one in own)
    assert everything["id"] == "@acme/h3-1"
    assert after == before


@pytest.mark.slow
@pytest.mark.accepts("H3")
async def test_every_operation_needs_a_token_and_its_permission(runtime: Runtime) -> None:
    """Nothing is done without: no turn, no decision."""
    async with desk(runtime) as (client, http):
        found = {}
        for operation in operations():
            path = operation.path.replace("{id:path}", "h4-1")
            for name in ("nobody", "rita"):
                body = BODIES.get(operation.name)
                response = await http.request(operation.method, path, json=body, headers=as_(name))
                found[operation.name, operation.may, name] = response
        async with httpx.AsyncClient(base_url=http.base_url, timeout=60) as nobody:
            bare = await nobody.get("/v1/turns")
        limits = [
            await http.post("/v1/turns", json={**BODIES["start_turn"], **more}, headers=as_("rita"))
            for more in ({"budget": {"tokens": 5}}, {"max_iterations": 3})
        ]
        started = [one async for one in client.turns(id_prefix="@acme/h4")]

    refused = {key: one for key, one in found.items() if key[2] == "nobody"}
    assert {told(one) for one in refused.values()} == {(401, "UNAUTHENTICATED")}
    assert told(bare) == (401, "UNAUTHENTICATED")
    assert bare.headers["www-authenticate"] == "Bearer"
    lacking = {key for key, one in found.items() if one.status_code == 403}
    assert lacking == {key for key in found if key[2] == "rita" and key[1] != "read"}
    assert [told(one) for one in limits] == [(403, "FORBIDDEN")] * 2
    assert started == []


@pytest.mark.slow
@pytest.mark.accepts("H6")
async def test_stream_goes_on_after_every_cursor_in_another_process(runtime: Runtime) -> None:
    """Each event exactly once, with the private fields only on request; the end is a 204."""
    async with desk(runtime, lost=asks("Done.")) as (client, http):
        await start(http, "h6-1", "lost", live=True)
        pending = await waiting(http, "h6-1")
        path = "/v1/turns/h6-1/events"
        first = await until(http, path, "wait_began")  # a client that goes away changes nothing
        await http.post(
            "/v1/turns/h6-1/approve",
            json=BODIES["approve_call"]
            | {"call_id": pending["call_id"], "token": pending["token"]},
        )
        await http.get("/v1/turns/h6-1/result", params={"wait": 30})
        whole = [one async for one in messages(http, path)]
        cursors = [cursor for cursor, _ in whole if cursor]
        other = AgentClient.from_temporal(client.temporal)
        async with served(other) as elsewhere:
            resumed = [
                [cursor async for cursor, _ in messages(elsewhere, path, after) if cursor]
                for after in cursors[:-1]
            ]
            end = await elsewhere.get(path, headers={"Last-Event-ID": cursors[-1]})
            plain = [one async for one in messages(elsewhere, path, live=False)]
            private = [
                one async for one in messages(elsewhere, path, include=["arguments", "results"])
            ]

    assert [one for one, _ in first if one] == cursors[: len([one for one, _ in first if one])]
    assert resumed == [cursors[number:] for number in range(1, len(cursors))]
    assert end.status_code == 204
    assert "".join(one["text"] for _, one in whole if one["kind"] == "text") == "I pay.Done."
    assert [one["kind"] for _, one in plain if "cursor" not in one] == ["caught_up"]
    assert not any(word in str(whole) for word in ("euros", "Be kind"))
    assert "paid 40 euros" in str(private)


@pytest.mark.accepts("H12", "H6")
async def test_streams_of_a_turn_get_the_same_and_what_they_asked_for(runtime: Runtime) -> None:
    """They share the messages that are written, but not with those that see private fields."""
    async with desk(runtime, lost=asks("Done.")) as (_, http):
        await start(http, "h12-1", "lost")
        pending = await waiting(http, "h12-1")
        path = "/v1/turns/h12-1/events"
        following = [
            asyncio.create_task(_all_of(http, path, **query))
            for query in ({}, {"include": ["arguments", "results"]}) * 10
        ]
        decision = {"call_id": pending["call_id"], "token": pending["token"]}
        await http.post("/v1/turns/h12-1/approve", json=decision)
        found = [await one for one in following]

    assert all(one == found[0] for one in found[::2])
    assert all(one == found[1] for one in found[1::2])
    assert found[0][-1][1]["kind"] == "turn_ended"
    assert ("euros" in str(found[0]), "paid 40 euros" in str(found[1])) == (False, True)


async def _all_of(
    http: httpx.AsyncClient, path: str, **query: Any
) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream, without marks, whose place depends on when it began."""
    return [one async for one in messages(http, path, **query) if one[0]]


@pytest.mark.slow
@pytest.mark.accepts("H6", "H5")
async def test_cursors_of_other_turns_and_strange_ones_are_refused(runtime: Runtime) -> None:
    """Before the stream begins, so that a browser gives up."""
    async with desk(runtime, one=asks(), two=asks()) as (client, http):
        for number, task in enumerate(("one", "two"), 1):
            await start(http, f"h7-{number}", task)
        cursor = (await until(http, "/v1/turns/h7-1/events", "turn_started"))[0][0]
        beyond = cursor_at(cursor, 999)
        found = [
            await http.get("/v1/turns/h7-2/events", headers={b"Last-Event-ID": one})
            for one in (cursor.encode(), b"bad", b"\xe9\xff")
        ]
        found.append(await http.get("/v1/turns/h7-1/events", params={"after": beyond}))
        for number in (1, 2):
            await client.turn(f"@acme/h7-{number}").cancel()

    assert [told(one) for one in found] == [
        (410, "STALE_CURSOR"),
        *[(422, "INVALID_REQUEST")] * 3,
    ]


def cursor_at(cursor: str, event: int) -> str:
    """A cursor of the same run at another event."""
    from perdure.clients.reading import cursors

    return str(cursors.read(cursor)._replace(event=event))


@pytest.mark.accepts("H7")
async def test_streams_of_a_caller_are_limited_and_others_are_served(runtime: Runtime) -> None:
    """Streams and long polls count together, and a place is free when one ends."""
    async with runtime(DESK, model=asks()) as client:
        turn = await client.start("desk", "one", id="h8-1")
        async with (
            served(client, name="root", max_streams_of_caller=2, max_streams=3) as http,
            contextlib.AsyncExitStack() as open_ones,
        ):
            path = "/v1/turns/h8-1/events"
            for _ in range(2):
                stream = await open_ones.enter_async_context(http.stream("GET", path))
                assert stream.status_code == 200
            third = await http.get(path)
            poll = await http.get("/v1/turns/h8-1/result", params={"wait": 9})
            plain = await http.get("/v1/turns/h8-1")
            other = await http.get("/v1/turns/nothing/events", headers=as_("otto"))
            await open_ones.aclose()
            freed = await until_not(429, lambda: _status_of(http, path))
        await turn.cancel()

    assert told(third) == told(poll) == (429, "TOO_MANY_REQUESTS")
    assert third.headers["retry-after"] == "2"
    assert plain.status_code == 200
    assert told(other) == (404, "TURN_NOT_FOUND")
    assert freed == 200


async def _status_of(http: httpx.AsyncClient, path: str) -> int:
    async with http.stream("GET", path) as stream:
        return stream.status_code


@pytest.mark.accepts("H125", "H126")
async def test_only_the_holder_of_the_token_of_a_gateway_is_served(runtime: Runtime) -> None:
    """A program on this machine needs it too, so a proxy that adds no header opens nothing. Answers
    are kept from the pages of other sites.
    """
    token = secrets.token_urlsafe()
    async with (
        runtime(DESK, model=ScriptedModel()) as client,
        served(client, one_token(token), name=token) as http,
    ):
        about = await http.get("/v1/about")
        answered = [await http.request("GET", path) for path in (*OPEN, "/v1/turns", "/v1/nothing")]
        held = [await http.post("/mcp", content=b"{}"), await http.delete("/v1/nothing")]
        del http.headers["authorization"]
        is_open = [(await http.get(path)).status_code for path in OPEN]
        refused = [
            await http.request(one.method, re.sub(r"{id[^}]*}", "it", one.path), headers=headers)
            for one in operations()
            for headers in ({}, as_("root"), {"Authorization": f"Basic {token}"})
        ]
        refused.append(await http.post("/mcp", content=b"{}"))

    assert about.json()["subject"] == "operator"
    assert is_open == [200] * len(OPEN)
    assert {told(one) for one in refused} == {(401, "UNAUTHENTICATED")}
    assert "send the header Authorization: Bearer TOKEN" in refused[0].json()["detail"]
    headers = {one.headers["cross-origin-resource-policy"] for one in (*answered, *held, *refused)}
    assert headers == {"same-origin"}


@pytest.mark.accepts("H90")
async def test_document_is_made_once_and_has_an_entity_tag(runtime: Runtime) -> None:
    """Anyone may read it: 20 answers take less of the processor than to make it twice."""
    every, began = operations(), time.process_time()
    openapi.document(every)
    once = time.process_time() - began
    async with runtime(DESK, model=ScriptedModel()) as client, served(client) as http:
        first = await http.get("/openapi.json")
        again = await http.get(
            "/openapi.json", headers={"If-None-Match": f"W/{first.headers['etag']}"}
        )
        began = time.process_time()
        others = [await http.get("/openapi.json") for _ in range(20)]
        taken = time.process_time() - began

    assert first.headers["cache-control"] == "public, max-age=300"
    assert first.json()["openapi"] == "3.1.0"
    assert (again.status_code, again.content) == (304, b"")
    assert {other.content for other in others} == {first.content}
    assert taken < 2 * once
