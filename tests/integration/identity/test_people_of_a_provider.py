"""What callers of an identity provider do: the promises about tenants, permissions and names."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from perdure import Agent, tool
from perdure.clients import AgentClient
from perdure.clients.gateway import ROLES, Caller, Permission, tokens_from
from perdure.clients.gateway.application import operations
from perdure.events import Decided
from perdure.testing import ByTask, FakeIssuer, ScriptedModel, call, calls, says

from ...conftest import Runtime
from ...support.auditing import audited, lately
from ...support.gateway.identity import TABLE, access, guarded
from ...support.gateway.served import BODIES, by_name, told


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


DESK = Agent(name="desk", model="main", tools=[refund])
OTTO: dict[str, Any] = {"sub": "u-2", "preferred_username": "otto", "org": "org-2"}


@contextlib.asynccontextmanager
async def desk(
    runtime: Runtime, issuer: FakeIssuer, **models: ScriptedModel
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient]]:
    """A client and a gateway, whose callers of a file are known as well."""
    async with (
        runtime(DESK, model=ByTask(models)) as client,
        guarded(client, issuer, auth=by_name) as http,
    ):
        yield client, http


@pytest.mark.accepts("G68")
async def test_decision_has_the_name_of_the_token(runtime: Runtime) -> None:
    """No body gives another one; who may not decide does not; other tenants find nothing."""
    model = ScriptedModel(calls(call("refund", euros=40)), says("Done."))
    with FakeIssuer() as issuer:
        async with desk(runtime, issuer, lost=model) as (client, http):
            anna = access(issuer)
            await http.post(
                "/v1/turns", json={"agent": "desk", "task": "lost", "id": "g68"}, headers=anna
            )
            status = (await http.get("/v1/turns/g68", params={"wait": 30}, headers=anna)).json()
            named = status["waits"][0]["call"]
            decision = {"call_id": named["call_id"], "token": named["token"]}
            path = "/v1/turns/g68/approve"
            otto = await http.post(path, json=decision, headers=access(issuer, **OTTO))
            reader = await http.post(path, json=decision, headers=access(issuer, groups="readers"))
            as_other = await http.post(path, json={**decision, "by": "root"}, headers=anna)
            done = await http.post(
                path, json=decision, headers={**access(issuer, groups="deciders"), "X-User": "root"}
            )
            await http.get("/v1/turns/g68/result", params={"wait": 30}, headers=anna)
            events = [one.fact async for one in client.turn("@acme/g68").events()]

    assert told(otto) == (404, "TURN_NOT_FOUND")
    assert told(reader) == (403, "FORBIDDEN")
    assert told(as_other) == (422, "INVALID_REQUEST")
    assert done.status_code == 204
    assert [one.decision.by for one in events if isinstance(one, Decided)] == ["anna"]


@pytest.mark.accepts("G68")
async def test_sessions_schedules_batches_and_forks_are_of_the_tenant(runtime: Runtime) -> None:
    """Their numbers are those of the table, and a token of a file has the same ones."""
    answers = {name: ScriptedModel(*[says("Done.")] * 3) for name in ("hello", "one", "two")}
    with FakeIssuer() as issuer:
        async with desk(runtime, issuer, **answers) as (_, http):
            http.headers.update(access(issuer))
            begin = {"agent": "desk"}
            made = [
                await http.post("/v1/turns", json={**begin, "task": "hello", "id": "g68-t"}),
                await http.post(
                    "/v1/sessions/g68-s/messages", json={"text": "hello", "begin": begin}
                ),
                await http.post(
                    "/v1/schedules",
                    json={
                        **begin,
                        "task": "hello",
                        "id": "g68-c",
                        "cron": "0 0 1 1 *",
                        "timezone": "UTC",
                    },
                ),
                await http.post(
                    "/v1/batches", json={**begin, "tasks": ["one", "two"], "id": "g68-b"}
                ),
            ]
            await http.get("/v1/turns/g68-t/result", params={"wait": 30})
            fork = await http.post("/v1/turns/g68-t/fork", json={"say": "hello", "id": "g68-f"})
            paths = ("turns/g68-t", "turns/g68-f", "sessions/g68-s", "schedules/g68-c")
            own = [(await http.get(f"/v1/{path}")).json() for path in paths]
            of_file = await http.get("/v1/turns/g68-t", headers={"Authorization": "Bearer anna"})
            others = [
                (await http.get(f"/v1/{path}", headers=access(issuer, **OTTO))).status_code
                for path in (*paths, "batches/g68-b")
            ]
            deleted = await http.delete("/v1/schedules/g68-c")

    assert [answer.status_code for answer in made] == [202, 202, 200, 202]
    assert fork.status_code == 202
    assert [one.get("id") for one in own] == [
        "@acme/g68-t",
        "@acme/g68-f",
        "@acme/g68-s",
        "@acme/g68-c",
    ]
    assert of_file.json()["id"] == "@acme/g68-t"
    assert others == [404] * 5
    assert deleted.status_code == 204


@pytest.mark.accepts("G97")
async def test_audit_has_the_name_of_the_token(runtime: Runtime) -> None:
    """Whatever was done; another tenant and its audit have nothing of it."""
    since, name = lately(), f"g97-{secrets.token_hex(4)}"
    answers = {"hello": ScriptedModel(*[says("Done.")] * 4), "wait": ScriptedModel(says("Done."))}
    begin = {"agent": "desk"}
    timed = {"task": "hello", "cron": "0 0 1 1 *", "timezone": "UTC"}
    requests: tuple[tuple[str, dict[str, Any]], ...] = (
        ("turns", {**begin, "task": "hello", "id": f"{name}-t"}),
        ("turns", {**begin, "task": "wait", "id": f"{name}-d", "delay": "PT1H"}),
        (f"turns/{name}-d/cancel", {"reason": "enough"}),
        (f"sessions/{name}-s/messages", {"text": "hello", "begin": begin, "id": "m-1"}),
        ("schedules", {**begin, **timed, "id": f"{name}-c"}),
        (f"schedules/{name}-c/pause", {"reason": "ill"}),
        ("batches", {**begin, "tasks": ["hello"], "id": f"{name}-b"}),
    )
    with FakeIssuer() as issuer:
        async with desk(runtime, issuer, **answers) as (client, http):
            http.headers.update(access(issuer))
            made = [await http.post(f"/v1/{path}", json=body) for path, body in requests]
            await http.get(f"/v1/turns/{name}-t/result", params={"wait": 30})
            fork = {"say": "hello", "id": f"{name}-f"}
            made.append(await http.post(f"/v1/turns/{name}-t/fork", json=fork))
            prefix = f"@acme/{name}"
            acts, ids = {"say", "cancel", "created"}, [f"{prefix}-{one}" for one in "tdsfb"]
            await audited(client, since, acts, ids=ids, id_prefix=prefix)
            asked = {"since": since.isoformat()}
            own = (await http.get("/v1/audit", params=asked)).json()["entries"]
            otto = access(issuer, **OTTO)
            others = (await http.get("/v1/audit", params=asked, headers=otto)).json()["entries"]
            await http.delete(f"/v1/schedules/{name}-c")

    assert [answer.status_code for answer in made if answer.status_code >= 300] == []
    mine = {(e["act"], e["kind"], e["by"]) for e in own if name in e["id"] and e.get("by")}
    assert mine == {
        *((act, "turn", "anna") for act in ("start", "cancel", "fork")),
        *((act, "session", "anna") for act in ("start", "say")),
        *((act, "schedule", "anna") for act in ("created", "paused")),
        ("start", "batch", "anna"),
    }
    assert [entry for entry in others if name in entry["id"]] == []


@pytest.mark.slow
@pytest.mark.accepts("G69")
async def test_each_operation_needs_its_permission(runtime: Runtime) -> None:
    """By the groups of a token, over REST and the protocols; without a group there is none."""
    with FakeIssuer() as issuer:
        async with desk(runtime, issuer) as (_, http):
            refused = {}
            groups: tuple[tuple[str, frozenset[Permission]], ...] = (
                ("", frozenset()),
                ("readers", ROLES["viewer"]),
                ("deciders", ROLES["approver"]),
            )
            for group, may in groups:
                headers = access(issuer, groups=[group])
                for operation in operations():
                    if operation.may in may:
                        continue
                    answer = await http.request(
                        operation.method,
                        operation.path.replace("{id:path}", "none").replace("{agent}", "desk"),
                        json=BODIES.get(operation.name),
                        headers=headers,
                    )
                    refused[operation.name, group] = answer.status_code

    assert len(refused) > len(operations())
    assert set(refused.values()) == {403}


@pytest.mark.accepts("G69")
def test_roles_stand_for_permissions_in_a_file_of_tokens(tmp_path: Path) -> None:
    """Beside single permissions."""
    token = "0123456789abcdef" * 2
    digest = hashlib.sha256(token.encode()).hexdigest()
    entry = f'sha256 = "{digest}"\nsubject = "a"\nmay = ["approver", "budget"]\n'
    (tmp_path / "tokens.toml").write_text(f"[[caller]]\n{entry}", encoding="utf-8")
    header = (b"authorization", f"Bearer {token}".encode())
    request = Request({"type": "http", "headers": [header]})

    caller = tokens_from(tmp_path / "tokens.toml")(request)

    assert caller == Caller("a", None, ROLES["approver"] | {"budget"})


@pytest.mark.accepts("G69")
def test_table_and_callers_have_the_same_numbers() -> None:
    """A caller of the table has the numbers of its tenant."""
    caller = TABLE.caller({"iss": "i", "sub": "s", "org": "org-1"})

    assert caller == Caller("s", "acme", frozenset(), TABLE.quotas["acme"], "i s")
    assert caller.quota.batches == 1
