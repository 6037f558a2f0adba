"""How much a tenant may have at the same time."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from perdure import Agent, ModelRetryPolicy, UserMessage, errors, tool
from perdure.clients import AgentClient
from perdure.clients.gateway import A2AAgent, Caller, Quota
from perdure.clients.gateway.operations import Gateway, operations_of
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import ScheduleIds, check_schedules
from perdure.clients.gateway.rest import schedules
from perdure.clients.gateway.streams import OpenRequests
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, fails, says

from ...conftest import Runtime
from ...support.counting import counting
from ...support.gateway.served import A2A, send_message, served, told, until_not

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ...support.mcp.tasks import assistant, use


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


DESK = Agent(name="desk", model="main", tools=[refund])
START: dict[str, Any] = {"agent": "desk", "task": "a"}
DAILY: dict[str, Any] = {"cron": "0 7 * * *", "timezone": "UTC", "agent": "desk"}
WAITS: dict[str, Any] = {**START, "delay": "PT1H"}
BEGIN: dict[str, Any] = {"text": "a", "begin": {"agent": "desk"}}
HELD: dict[str, Any] = {"id": "held", "agent": "desk", "tasks": ["hold"]}
"""A batch that is open until it is cancelled."""
THREAD: dict[str, Any] = {
    "threadId": "thread",
    "runId": "r",
    "messages": [{"id": "m", "role": "user", "content": "a"}],
    "state": {},
    "tools": [],
    "context": [],
    "forwardedProps": {},
}
LONG = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-20T12:00:00Z", "at_once": True}
THREE = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-03T12:00:00Z"}
SHORT = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T12:00:00Z"}


def replies(request: ModelRequest) -> Reply:
    """A call that waits for the task "hold", no answer for "bad", and one for all others."""
    texts = {one.text for one in request.messages if isinstance(one, UserMessage)}
    if "hold" in texts:
        return calls(call("refund", euros=1))
    return fails(errors.LLMAuthError("no key")) if "bad" in texts else says("done")


@dataclass
class Tenant:
    """A tenant whose numbers can be changed; its caller is the one of every request."""

    quota: Quota = Quota()

    def __post_init__(self) -> None:
        self.name = secrets.token_hex(4)

    def __call__(self, request: Request) -> Caller:
        return Caller("a@example.com", self.name, quota=self.quota)

    async def clear(self, client: AgentClient) -> None:
        """End what is open, and delete the schedules."""
        prefix = f"@{self.name}/"
        async for schedule in client.schedule_ids(prefix):
            await client.schedule(schedule).delete()
        for batch in ("held", "failing"):
            await client.batch(f"{prefix}{batch}").cancel()
        await self.cancel_turns(client)

    async def cancel_turns(self, client: AgentClient) -> None:
        """Cancel the turns that are open."""
        async for turn in client.turns(id_prefix=f"@{self.name}/"):
            await client.turn(turn.id).cancel()


async def refusal(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """The first answer that is not a success: Temporal's list lags behind. Each request has another
    id, in the body or in place of `{}` in the path.
    """
    async with asyncio.timeout(60):
        while (answer := await http.post(path.format(secrets.token_hex(4)), json=body)).is_success:
            await asyncio.sleep(0.1)
            body = {**body, **({"id": secrets.token_hex(4)} if "id" in body else {})}
    return told(answer)


@pytest.mark.slow
@pytest.mark.accepts("H115")
async def test_tenant_has_no_more_than_its_numbers(runtime: Runtime) -> None:
    """What exists is found by its id, and callers without a tenant have no limit."""
    tenant = Tenant(Quota(turns=1, sessions=1, batches=1, tasks=2, schedules=1))
    model = FunctionModel(replies)
    daily = {**DAILY, "task": "a", "id": "s"}
    async with runtime(DESK, model=model) as client, served(client, tenant) as http:
        await http.post("/v1/schedules", json=daily)
        await http.post("/v1/sessions/talk/messages", json=BEGIN)
        refused = {
            "schedule": await refusal(http, "/v1/schedules", {**daily, "id": "s-1"}),
            "session": await refusal(http, "/v1/sessions/{}/messages", BEGIN),
            "thread": await refusal(http, "/v1/sessions/talk/fork", {"id": "talk-2"}),
        }
        begun = await http.post("/v1/turns", json={**WAITS, "id": "one"})
        refused["turn"] = await refusal(http, "/v1/turns", {**WAITS, "id": "two"})
        batch = {"id": "b", "agent": "desk", "tasks": ["a"] * 3}
        refused["tasks"] = told(await http.post("/v1/batches", json=batch))
        again = [
            (await http.post("/v1/turns", json={**WAITS, "id": "one"})).status_code,
            (await http.post("/v1/sessions/talk/messages", json=BEGIN)).status_code,
            (await http.post("/v1/schedules", json=daily)).status_code,
        ]
        await tenant.cancel_turns(client)
        await client.schedule(f"@{tenant.name}/s").delete()

    assert begun.status_code == 202
    assert set(refused.values()) == {(429, "TOO_MANY_REQUESTS")}
    assert again == [202, 202, 200]


COMPLETION = {"model": "desk", "messages": [{"role": "user", "content": "a"}]}


def doors() -> dict[str, tuple[str, dict[str, Any]]]:
    """Requests that would start one more turn, session or batch of a tenant that has its number."""
    said = {"model": "desk", "input": "a"}
    return {
        "run": ("v1/schedules/single/run", {}),
        "backfill": ("v1/schedules/single/backfill", SHORT),
        "run of a batch": ("v1/schedules/several/run", {}),
        "backfill of batches": ("v1/schedules/several/backfill", SHORT),
        "turn": ("v1/turns", START),
        "fork": ("v1/turns/over/fork", {"say": "b"}),
        "resume": ("v1/turns/cancelled/resume", {}),
        "batch": ("v1/batches", {**HELD, "id": "other"}),
        "retry": ("v1/batches/failing/retry", {}),
        "session": ("v1/sessions/other/messages", BEGIN),
        "fork of a session": ("v1/sessions/talk/fork", {"id": "other"}),
        "response": ("openai/v1/responses", said),
        "next response": ("openai/v1/responses", {**said, "previous_response_id": "over"}),
        "conversation": ("openai/v1/responses", {**said, "conversation": "other"}),
        "completion": ("openai/v1/chat/completions", COMPLETION),
        "thread": ("agui/desk", THREAD),
        "task": ("a2a/desk", send_message("m")),
    }


async def prepare(http: httpx.AsyncClient) -> None:
    """Start what the doors go on from, and what is open."""
    requests: list[tuple[str, dict[str, Any]]] = [
        ("v1/turns", {**START, "id": "over"}),
        ("v1/turns", {**WAITS, "id": "cancelled"}),
        ("v1/turns/cancelled/cancel", {}),
        ("v1/schedules", {**DAILY, "task": "a", "id": "single"}),
        ("v1/schedules", {**DAILY, "batch": {"tasks": ["a"]}, "id": "several"}),
        ("v1/batches", {"id": "failing", "agent": "desk", "tasks": ["bad"]}),
        ("v1/batches", HELD),
        ("v1/sessions/talk/messages", BEGIN),
    ]
    for path, body in requests:
        answer = await http.post(f"/{path}", json=body)
        assert answer.is_success, (path, answer.text)

    async def running() -> int:
        over = [(await http.get(f"/v1/turns/{one}")).json() for one in ("over", "cancelled")]
        batch = (await http.get("/v1/batches/failing")).json()
        return int(batch["state"] == "running" or any(one["outcome"] is None for one in over))

    await until_not(1, running)


@pytest.mark.slow
@pytest.mark.accepts("H115")
async def test_numbers_of_a_tenant_hold_over_every_api(runtime: Runtime) -> None:
    """Also for what is started by a schedule, a retry, a fork and a resume."""
    tenant, published = Tenant(), [A2AAgent("desk", "Answers.")]
    async with (
        runtime(DESK, model=FunctionModel(replies)) as client,
        served(client, tenant, a2a_agents=published) as http,
    ):
        await prepare(http)
        tenant.quota = Quota(turns=1, sessions=1, batches=1)
        listed = [
            await refusal(http, "/v1/turns", WAITS),
            await refusal(http, "/v1/batches", {**HELD, "id": "more"}),
            await refusal(http, "/v1/sessions/{}/messages", BEGIN),
        ]
        answers = {
            what: (await http.post(f"/{path}", json=body, headers=A2A)).status_code
            for what, (path, body) in doors().items()
        }
        async with assistant(http) as mcp:
            over_mcp = await use(mcp, "start_turn", agent="desk", task="a")
        tenant.quota = Quota(turns=15, batches=15)
        many = [
            told(await http.post(f"/v1/schedules/{one}/backfill", json=LONG))
            for one in ("single", "several")
        ]
        runs = [await http.post(f"/v1/schedules/{one}/run") for one in ("single", "several")]
        await tenant.clear(client)

    assert listed == [(429, "TOO_MANY_REQUESTS")] * 3
    assert {what: status for what, status in answers.items() if status != 429} == {}
    assert over_mcp["refused"].startswith("TOO_MANY_REQUESTS")
    assert many == [(429, "TOO_MANY_REQUESTS")] * 2
    assert [one.status_code for one in runs] == [202] * 2


@pytest.mark.slow
@pytest.mark.accepts("H115")
async def test_resume_that_starts_no_turn_passes_the_limit(runtime: Runtime) -> None:
    """A turn that waits for a provider is one of the open turns already."""
    tenant, asked = Tenant(Quota(turns=1)), list[ModelRequest]()

    def recovers(request: ModelRequest) -> Reply:
        asked.append(request)
        busy = errors.LLMUnavailableError("overloaded", context={"status": 503})
        return fails(busy) if len(asked) == 1 else says("done")

    patient = ModelRetryPolicy(
        initial_interval=timedelta(hours=1),
        maximum_interval=timedelta(hours=1),
        maximum_elapsed=timedelta(days=1),
    )
    desk = Agent(name="desk", model="main", model_retry=patient)
    async with (
        runtime(desk, model=FunctionModel(recovers)) as client,
        served(client, tenant) as http,
    ):
        await http.post("/v1/turns", json={**START, "id": "waits"})

        async def running() -> int:
            return int((await http.get("/v1/turns/waits")).json()["state"] == "running")

        await until_not(1, running)
        refused = await refusal(http, "/v1/turns", WAITS)
        resumed = await http.post("/v1/turns/waits/resume", json={})
        result = await http.get("/v1/turns/waits/result", params={"wait": 20})
        await tenant.cancel_turns(client)

    assert refused == (429, "TOO_MANY_REQUESTS")
    assert (resumed.status_code, resumed.json()["id"]) == (202, f"@{tenant.name}/waits")
    assert result.json()["output"] == "done"


@pytest.mark.slow
@pytest.mark.accepts("H115")
async def test_what_is_over_is_found_by_its_id_at_the_limit(runtime: Runtime) -> None:
    """A session that is closed is refused as such, and not for the number of others."""
    tenant = Tenant()
    fork = ("/v1/turns/over/fork", {"say": "b", "id": "forked"})
    desk = runtime(DESK, model=FunctionModel(replies))
    async with desk as client, served(client, tenant) as http:
        await prepare(http)
        await http.post(fork[0], json=fork[1])
        await http.get("/v1/turns/forked/result", params={"wait": 20})
        await http.post("/v1/sessions/talk/close", json={})
        tenant.quota = Quota(turns=1, sessions=1, batches=1)
        await refusal(http, "/v1/turns", WAITS)
        await refusal(http, "/v1/batches", {**HELD, "id": "more"})
        await refusal(http, "/v1/sessions/{}/messages", BEGIN)
        turn = await http.post("/v1/turns", json={**START, "id": "over"})
        forked = await http.post(fork[0], json=fork[1])
        failing = {"id": "failing", "agent": "desk", "tasks": ["bad"]}
        batch = await http.post("/v1/batches", json=failing)
        session = await http.post("/v1/sessions/talk/messages", json=BEGIN)
        await tenant.clear(client)

    assert [turn.status_code, forked.status_code, batch.status_code] == [202, 202, 202]
    assert told(session) == (409, "SESSION_CLOSED")


@pytest.mark.slow
@pytest.mark.accepts("H115")
async def test_backfill_counts_what_is_open_at_the_same_time(runtime: Runtime) -> None:
    """One turn if each begins when the one before is over, and none if no time lacks its turn."""
    tenant, backfill = Tenant(Quota(turns=2)), "/v1/schedules/single/backfill"
    desk = runtime(DESK, model=FunctionModel(replies))
    async with desk as client, served(client, tenant) as http:
        await http.post("/v1/schedules", json={**DAILY, "task": "a", "id": "single"})
        at_once = await http.post(backfill, json={**THREE, "at_once": True})
        in_order = await http.post(backfill, json=THREE)

        async def over() -> int:
            turns = (await http.get("/v1/schedules/single/turns")).json()["turns"]
            return int(sum(turn["outcome"] is not None for turn in turns) < 3)

        await until_not(1, over)
        tenant.quota = Quota(turns=0)
        nothing = [
            await http.post(backfill, json=THREE),
            await http.post(backfill, json={**THREE, "at_once": True}),
        ]
        more = await http.post(backfill, json=LONG | {"at_once": False})
        await client.schedule(f"@{tenant.name}/single").delete()

    assert told(at_once) == (429, "TOO_MANY_REQUESTS")
    assert "this would open 3; ask for fewer" in at_once.json()["detail"]
    assert (in_order.status_code, len(in_order.json()["slots"])) == (202, 3)
    assert [(one.status_code, one.json()) for one in nothing] == [(202, {"slots": []})] * 2
    assert told(more) == (429, "TOO_MANY_REQUESTS")


@pytest.mark.slow
@pytest.mark.accepts("H115")
async def test_tasks_of_a_retry_and_of_a_schedule_are_counted(runtime: Runtime) -> None:
    """A retry has the tasks without an answer, and a run of a schedule all of its batch."""
    tenant = Tenant()
    desk = runtime(DESK, model=FunctionModel(replies))
    async with desk as client, served(client, tenant) as http:
        several = {**DAILY, "batch": {"tasks": ["a", "a"]}, "id": "several"}
        await http.post("/v1/schedules", json=several)
        failing = {"id": "failing", "agent": "desk", "tasks": ["bad", "bad", "a"]}
        await http.post("/v1/batches", json=failing)

        async def running() -> int:
            return int((await http.get("/v1/batches/failing")).json()["state"] == "running")

        await until_not(1, running)
        tenant.quota = Quota(tasks=1)
        answers = [
            await http.post("/v1/batches/failing/retry", json={}),
            await http.post("/v1/schedules/several/run"),
            await http.post("/v1/schedules/several/backfill", json=SHORT),
        ]
        await client.schedule(f"@{tenant.name}/several").delete()

    assert [told(one) for one in answers] == [(429, "TOO_MANY_REQUESTS")] * 3
    assert {"has at most 1 tasks, not 2" in one.json()["detail"] for one in answers} == {True}


@pytest.mark.accepts("H115")
async def test_lists_of_schedules_at_the_same_time_are_one_read(runtime: Runtime) -> None:
    """What is created or deleted while it is read counts as well. A short list is not kept."""
    name, known = secrets.token_hex(4), ScheduleIds()
    caller, own = Caller("a@example.com", name), [f"@{name}/1", f"@{name}/2"]
    async with runtime(DESK, model=FunctionModel(replies)) as client:
        counted, service = counting(client.temporal)
        counted_client = AgentClient.from_temporal(counted)
        await known.of(counted_client, caller)
        alone = service.calls.total()
        reads = [asyncio.create_task(known.of(counted_client, caller)) for _ in range(5)]
        while not service.in_flight.total():  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0)
        known.note(own[0], exists=True)
        known.note(own[1], exists=True)
        known.note(own[1], exists=False)
        seen = await asyncio.gather(*reads)
        together = service.calls.total()
        await known.of(counted_client, caller)

    assert seen == [own[:1]] * 5
    assert (together, service.calls.total()) == (2 * alone, 3 * alone)


@pytest.mark.slow
@pytest.mark.accepts("H115")
async def test_schedule_that_is_deleted_is_no_longer_counted(runtime: Runtime) -> None:
    """Also while a long list is kept."""
    tenant = Tenant(Quota(schedules=1))
    daily = {**DAILY, "task": "a"}
    async with runtime(DESK, model=FunctionModel(replies)) as client:
        gateway = Gateway(client, tenant, OpenRequests(9, 9), schedule_ids=ScheduleIds(few=0))
        served = Starlette(routes=[one.route(gateway) for one in operations_of(schedules)])
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            statuses = [
                (await http.post("/v1/schedules", json={**daily, "id": "a"})).status_code,
                (await http.post("/v1/schedules", json={**daily, "id": "b"})).status_code,
                (await http.delete("/v1/schedules/a")).status_code,
                (await http.post("/v1/schedules", json={**daily, "id": "b"})).status_code,
            ]
            listed = (await http.get("/v1/schedules")).json()["schedules"]
            await http.delete("/v1/schedules/b")

    assert statuses == [200, 429, 204, 200]
    assert [one["id"] for one in listed] == [f"@{tenant.name}/b"]


@pytest.mark.accepts("H115")
async def test_list_of_many_schedules_is_kept_for_a_moment(runtime: Runtime) -> None:
    """A schedule that was created here is in it at once, and one that exists needs no list."""
    name, known = secrets.token_hex(4), ScheduleIds(few=0)
    caller = Caller("a@example.com", name, quota=Quota(schedules=2))
    own = [f"@{name}/{number}" for number in range(4)]
    daily: dict[str, Any] = {"agent": "desk", "task": "a", "cron": "0 7 * * *", "timezone": "UTC"}
    async with runtime(DESK, model=FunctionModel(replies)) as client:
        await client.create_schedule(own[0], **daily)

        async def missing() -> int:
            return int(own[0] not in [one async for one in client.schedule_ids()])

        await until_not(1, missing)
        seen = [await known.of(client, caller)]
        await client.create_schedule(own[1], **daily)
        seen.append(await known.of(client, caller))
        known.note(own[2], exists=True)
        seen.append(await known.of(client, caller))
        await check_schedules(client, caller, own[1], ScheduleIds(few=0))
        with pytest.raises(RefusedError, match="may have 2 schedules"):
            await check_schedules(client, caller, own[3], known)
        for one in own[:2]:
            await client.schedule(one).delete()

    assert seen == [own[:1], own[:1], [own[0], own[2]]]
