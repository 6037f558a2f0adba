"""Sessions, schedules and batches over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from temporalio.client import Client

from perdure import Agent
from perdure.clients import AgentClient
from perdure.clients.reading.cursors import Cursor
from perdure.clients.schedules.results import SchedulePosition
from perdure.session.facts import MessageSent
from perdure.temporal.histories.runs import describe
from perdure.testing import FunctionModel, ModelRequest, Reply, says

from ...conftest import Runtime
from ...support.conversing import Paced
from ...support.counting import CountingService
from ...support.gateway.served import (
    answers_to_others,
    as_,
    messages,
    served,
    told,
    until,
    until_not,
)
from ...support.scheduling import every_second

DESK = Agent(name="desk", model="main", instructions="Be kind.")


def echo(request: ModelRequest) -> Reply:
    """The last message, once more."""
    return says(f"You said: {request.messages[-1].text}")  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.accepts("H11", "H2", "H4")
async def test_session_is_a_conversation_over_http(runtime: Runtime) -> None:
    """A repeated message is said once; its events go on after a cursor; a tenant has its own."""
    async with runtime(DESK, model=FunctionModel(echo)) as client, served(client) as http:
        path = "/v1/sessions/s1"
        begin = {
            "agent": "desk",
            "labels": {"room": "7"},
            "idle": "P1D",
            "budget": {"tokens": 10**6},
        }
        unknown = await http.post(f"{path}/messages", json={"text": "Hello."})
        sent, first = [], []
        for text, key in (("Hello.", "m-1"), ("Hello.", "m-1"), ("Again.", "m-2")):
            message = {"text": text, "begin": begin}
            sent.append(
                await http.post(f"{path}/messages", json=message, headers={"Idempotency-Key": key})
            )
            first.append(await _result(http, sent[-1].json()["turn_id"]))
        seen = await until(http, f"{path}/events", "turn_began")
        more = await http.post(f"{path}/add-budget", json={"budget": {"tokens": 7}})
        status = (await http.get(path)).json()
        said = (await http.get(f"{path}/messages")).json()["messages"]
        turns = (await http.get(f"{path}/turns")).json()["turns"]
        others = await answers_to_others(http, "sessions", "s1")
        lists = [
            (await http.get("/v1/sessions?label=room=7", headers=as_(name))).json()["sessions"]
            for name in ("anna", "otto")
        ]
        forked = await http.post(f"{path}/fork", json={"id": "s2", "at_turn": 1})
        idle = [
            (await http.post(f"{path}/interrupt")).json(),
            (await http.post(f"{path}/resume")).json(),
            (await http.post(f"{path}/unqueue", json={"id": "m-1"})).json(),
        ]
        closed = [await http.post(f"/v1/sessions/{one}/close") for one in ("s1", "s2")]
        late = await http.post(f"{path}/messages", json={"text": "Hello?"})
        rest = [one async for one in messages(http, f"{path}/events", seen[-1][0])]
        end = await http.get(f"{path}/events", headers={"Last-Event-ID": rest[-1][0]})
        bad = await http.get(f"{path}/events", headers={"Last-Event-ID": "bad"})
        [fact] = [
            one.fact
            async for one in client.session("@acme/s1").events()
            if isinstance(one.fact, MessageSent) and one.fact.id == "m-1"
        ]

    assert told(unknown) == (404, "SESSION_NOT_FOUND")
    assert [one.json()["turn_id"] for one in sent] == ["@acme/s1/1", "@acme/s1/1", "@acme/s1/2"]
    assert first == ["You said: Hello.", "You said: Hello.", "You said: Again."]
    assert (more.status_code, status["turns"], status["budget"]["tokens"]) == (204, 2, 10**6 + 7)
    assert [one["role"] for one in said].count("user") == 2
    assert [one["turn_id"] for one in turns] == ["@acme/s1/1", "@acme/s1/2"]
    assert others == {(404, "SESSION_NOT_FOUND")}
    assert [[one["id"] for one in entries] for entries in lists] == [["@acme/s1"], []]
    assert (forked.status_code, forked.json()["id"]) == (202, "@acme/s2")
    assert idle == [{"cancelled": False}, {"changed": False}, {"changed": False}]
    assert [one.json() for one in closed] == [{"unread": []}] * 2
    assert told(late) == (409, "SESSION_CLOSED")
    kinds = [data["kind"] for _, data in [*seen, *rest]]
    assert (kinds[0], kinds[-1], kinds.count("turn_began")) == (
        "session_started",
        "session_closed",
        2,
    )
    assert (end.status_code, told(bad)) == (204, (422, "INVALID_REQUEST"))
    assert fact.by == "anna@example.com"


@pytest.mark.accepts("H150")
async def test_messages_with_images_over_http(runtime: Runtime) -> None:
    """To a session, also one that waits, and to a running turn; readers name the kind and size."""
    image = {"type": "media", "media_type": "image/png", "data": "YWJj"}
    parts, brief = [image, {"type": "text", "text": "Be quick."}], "[image/png, 3 bytes] Be quick."
    model = Paced(says("one"), says("two"))
    async with runtime(DESK, model=model) as client, served(client) as http:
        path, begin = "/v1/sessions/s9", {"agent": "desk"}
        message = {"text": "What is it?", "parts": [image], "id": "m-1", "begin": begin}
        sent = await http.post(f"{path}/messages", json=message)
        again = await http.post(f"{path}/messages", json={**message, "text": "other"})
        await model.begun.acquire()
        steered = await http.post("/v1/turns/s9/1/steer", json={"parts": parts, "id": "m-2"})
        queued = await http.post(f"{path}/messages", json={"parts": parts, "id": "m-3"})
        status = (await http.get(path)).json()
        empty = [
            await http.post(f"{path}/messages", json={}),
            await http.post("/v1/turns/s9/1/steer", json={"parts": [{**image, "data": "%"}]}),
            await http.post(f"{path}/messages", json={"parts": [{"type": "media"}]}),
        ]
        model.let_go(2)
        await _result(http, "@acme/s9/1")
        stream = messages(http, "/v1/turns/s9/1/events", include="task")
        events = [one async for one in stream]
        told_session = await until(http, f"{path}/events", "message_sent")
        await _result(http, "@acme/s9/2")
        said = (await http.get("/v1/turns/s9/2/messages")).json()["messages"]

    assert again.json() == sent.json()
    assert (steered.status_code, queued.json()["disposition"]) == (202, "queued")
    assert [(one["id"], one["text"]) for one in status["queue"]] == [("m-3", brief)]
    assert [told(one) for one in empty] == [(422, "INVALID_REQUEST")] * 3
    texts = {data["kind"]: data["text"] for _, data in events if "text" in data}
    assert texts["turn_started"] == "What is it? [image/png, 3 bytes]"
    assert texts["said"] == brief
    assert told_session[-1][1]["text"] == "What is it? [image/png, 3 bytes]"
    assert "YWJj" not in str([status, events, told_session])
    assert [one["parts"] for one in said if one["role"] == "user"] == [
        [{"type": "text", "text": "What is it?"}, {**image, "url": None}],
        [{**image, "url": None}, parts[1]],
        [{**image, "url": None}, parts[1]],
    ]


async def _result(http: httpx.AsyncClient, turn: str) -> Any:
    """The output of a turn, which a session may not have begun yet."""
    path = f"/v1/turns/{turn}/result"

    async def status() -> int:
        return (await http.get(path)).status_code

    await until_not(404, status)
    return (await http.get(path, params={"wait": 30})).json()["output"]


@pytest.mark.accepts("B23")
async def test_schedule_runs_batches_over_http(runtime: Runtime) -> None:
    """They are the tenant's; who may not set limits changes no batch."""
    definition = {
        "id": "nightly",
        "agent": "desk",
        "batch": {"tasks": ["one", {"task": "two", "id": "b"}], "at_once": 2},
        "cron": "0 2 * * *",
        "timezone": "UTC",
    }
    limited = {**definition, "batch": {"tasks": ["one"], "turn_budget": {"usd": "1"}}}
    async with runtime(DESK, model=FunctionModel(echo)) as client, served(client) as http:
        made = [await http.post("/v1/schedules", json=definition) for _ in range(2)]
        both = await http.post("/v1/schedules", json={**definition, "id": "x", "task": "Go."})
        path = "/v1/schedules/nightly"
        run = (await http.post(f"{path}/run")).json()["id"]
        output = await _result(http, f"{run}/b".removeprefix("@acme/"))
        other = {"batch": {"tasks": ["three"]}, "task": ""}
        changed = await http.patch(path, json=other)
        status = (await http.get(path)).json()
        priority = (await describe(client.temporal, run)).workflow_execution_info.priority
        sam = as_("sam")
        refused = [
            await http.post("/v1/schedules", json={**limited, "id": "y"}, headers=sam),
            await http.patch(path, json=other, headers=sam),
            await http.patch(path, json={"task": "Go."}, headers=sam),
        ]
        deleted = await http.delete(path)

    assert [one.status_code for one in made] == [200, 200]
    assert made[0].json()["tasks"] == 2
    assert both.status_code == 422
    assert run.startswith("@acme/nightly-")
    assert output.startswith("You said: ")
    assert changed.json()["tasks"] == 1
    assert status["last"][0]["batch"]["total"] == 2
    assert priority.fairness_key == "acme"
    assert deleted.status_code == 204
    assert [one.status_code for one in refused] == [403, 403, 403]


@pytest.mark.slow
@pytest.mark.accepts("H11", "E171")
async def test_schedules_are_listed_page_by_page(runtime: Runtime) -> None:
    """In the order of their ids, each once; another tenant has none of them."""
    ids = [f"paged-{number}" for number in (2, 3, 1)]
    daily = {"agent": "desk", "task": "Go.", "cron": "0 3 1 1 *", "timezone": "UTC"}
    async with runtime(DESK, model=FunctionModel(echo)) as client, served(client) as http:
        for id in ids:
            await http.post("/v1/schedules", json={**daily, "id": id})

        async def seen(**query: str) -> tuple[list[str], str | None]:
            page = (await http.get("/v1/schedules", params={"limit": "2", **query})).json()
            return [one["id"] for one in page["schedules"]], page["next"]

        async def listed() -> int:
            return int((await seen(after="@acme/paged-1"))[0] == ["@acme/paged-2", "@acme/paged-3"])

        await until_not(0, listed)
        first, following = await seen(after="@acme/paged-")
        second, _ = await seen(after=following or "")
        others = await http.get("/v1/schedules?after=@acme/paged-", headers=as_("otto"))
        for id in ids:
            await http.delete(f"/v1/schedules/{id}")

    assert (first, following) == (["@acme/paged-1", "@acme/paged-2"], "@acme/paged-2")
    assert second[0] == "@acme/paged-3"  # other tests may have more after it
    assert [one for one in others.json()["schedules"] if "paged" in one["id"]] == []


@pytest.mark.accepts("H11", "H2")
@pytest.mark.slow
async def test_schedule_is_created_run_changed_and_deleted_over_http(runtime: Runtime) -> None:
    """The same definition is the same schedule; its turns are the tenant's."""
    definition = {
        "id": "digest",
        "agent": "desk",
        "task": "Write it.",
        "cron": "0 7 * * 1-5",
        "timezone": "Europe/Berlin",
        "catch_up": "PT2H",
    }
    async with runtime(DESK, model=FunctionModel(echo)) as client, served(client) as http:
        made = [
            await http.post("/v1/schedules", json={**definition, **change})
            for change in ({}, {}, {"cron": "0 8 * * *"}, {"id": "x", "timezone": "Europe/Nowhere"})
        ]
        path = "/v1/schedules/digest"
        run = await http.post(f"{path}/run")
        output = await _result(http, run.json()["id"])
        others = await answers_to_others(http, "schedules", "digest")
        changed = await http.patch(path, json={"cron": "0 9 * * *", "labels": {"a": "b"}})
        paused = await http.post(f"{path}/pause", json={"reason": "holiday"})
        status = (await http.get(path)).json()
        resumed = await http.post(f"{path}/resume")
        filled = await http.post(
            f"{path}/backfill",
            json={"start": "2026-01-05T00:00:00Z", "end": "2026-01-05T23:00:00Z"},
        )
        too_old = await http.post(
            f"{path}/backfill",
            json={"start": "0001-01-01T00:00:00Z", "end": "2026-01-05T23:00:00Z"},
        )
        turns = await http.get(f"{path}/turns")
        deleted = await http.delete(path)
        gone = await http.get(path)

    assert [one.status_code for one in made] == [200, 200, 409, 422]
    assert made[0].json()["id"] == "@acme/digest"
    assert run.json()["id"].startswith("@acme/digest-")
    assert output.startswith("You said: ")
    assert others == {(404, "SCHEDULE_NOT_FOUND")}
    assert (changed.json()["cron"], changed.json()["labels"]) == ("0 9 * * *", {"a": "b"})
    assert (paused.status_code, resumed.status_code, deleted.status_code) == (204, 204, 204)
    assert (status["is_paused"], status["reason"], status["catch_up"]) == (True, "holiday", "PT2H")
    assert [one[:16] for one in filled.json()["slots"]] == ["2026-01-05T09:00"]
    assert told(too_old) == (422, "INVALID_REQUEST")
    assert turns.status_code == 200
    assert told(gone) == (404, "SCHEDULE_NOT_FOUND")


@pytest.mark.accepts("H11", "H2", "H6")
@pytest.mark.slow
async def test_batch_is_started_and_its_results_are_streamed(runtime: Runtime) -> None:
    """Each result once, also after every cursor; the same tasks are the same batch."""
    tasks = ["One.", {"task": "Two.", "id": "second", "labels": {"a": "b"}}, {"task": "Three."}]
    async with runtime(DESK, model=FunctionModel(echo)) as client, served(client) as http:
        begun = [
            await http.post("/v1/batches", json={"id": "b1", "agent": "desk", "tasks": given})
            for given in (tasks, tasks, ["Other."], [], [{"task": 5}])
        ]
        path = "/v1/batches/b1"
        found = [one async for one in messages(http, f"{path}/results")]
        again = [
            [cursor async for cursor, _ in messages(http, f"{path}/results", after)]
            for after, _ in found[:-1]
        ]
        end = await http.get(f"{path}/results", headers={"Last-Event-ID": found[-1][0]})
        bad = await http.get(f"{path}/results", params={"after": "bad"})
        status = (await http.get(path)).json()
        others = await answers_to_others(http, "batches", "b1")
        cancelled = await http.post(f"{path}/cancel")
        retried = await http.post(f"{path}/retry", json={"at_once": 2})
        unknown = await http.get("/v1/batches/b2/results")

    assert [one.status_code for one in begun] == [202, 202, 409, 422, 422]
    assert {data["id"]: data["output"] for _, data in found} == {
        "1": "You said: One.",
        "second": "You said: Two.",
        "3": "You said: Three.",
    }
    cursors = [cursor for cursor, _ in found]
    assert again == [cursors[number:] for number in (1, 2)]
    assert (end.status_code, told(bad)) == (204, (422, "INVALID_REQUEST"))
    assert (status["state"], status["done"]) == ("completed", 3)
    assert others == {(404, "BATCH_NOT_FOUND")}
    assert cancelled.json() == {"cancelled": False}
    assert (retried.status_code, retried.json()["round"]) == (202, 1)
    assert told(unknown) == (404, "BATCH_NOT_FOUND")


@pytest.mark.slow
@pytest.mark.accepts("A16", "E171", "E172", "H2", "H11")
async def test_names_lists_and_results_stay_within_the_tenant(runtime: Runtime) -> None:
    """The name is the caller's, whatever the body says; another tenant finds nothing."""
    definition = {
        "id": "named-digest",
        "agent": "desk",
        "task": "Write it.",
        "cron": "0 3 1 1 *",
        "timezone": "UTC",
    }
    async with runtime(DESK, model=FunctionModel(echo)) as client, served(client) as http:
        await http.post("/v1/schedules", json=definition)
        path, started = "/v1/schedules/named-digest", []
        for _ in range(2):
            started.append((await http.post(f"{path}/run")).json()["id"])
            await _result(http, started[-1])
        await http.post(f"{path}/pause", json={"reason": "holiday"})
        seen = await first_messages(http, f"{path}/results", 2)
        [after] = await first_messages(http, f"{path}/results", 1, seen[0][0])
        foreign = SchedulePosition.of(seen[0][0]).model_copy(
            update={"open": {turn: datetime.now(UTC) for turn in ("@other/o1", "2026-01-01")}}
        )
        bad = [
            await http.get(f"{path}/results", params={"after": after})
            for after in ("bad", foreign.cursor())
        ]
        others = await http.get(f"{path}/results", headers=as_("otto"))
        status = (await http.get(path)).json()
        forged = {"id": "named-copy", "at_step": 0, "by": "otto@example.com"}
        refused = await http.post(f"/v1/turns/{started[0]}/fork", json=forged)
        forked = await http.post(
            f"/v1/turns/{started[0]}/fork", json={"id": "named-copy", "at_step": 0}
        )
        fork = await _forked_from(http, "named-copy")
        await http.post(
            "/v1/sessions/named/messages", json={"text": "a", "begin": {"agent": "desk"}}
        )
        session = await http.post(
            "/v1/sessions/named/fork", json={"id": "named-fork", "at_turn": 0}
        )
        await http.post("/v1/batches", json={"id": "named-batch", "agent": "desk", "tasks": ["a"]})
        await until_listed(http, "named-batch")
        lists = [
            (await http.get("/v1/batches?agent=desk", headers=as_(name))).json()["batches"]
            for name in ("anna", "otto")
        ]
        for id in ("named", "named-fork"):
            await http.post(f"/v1/sessions/{id}/close")
        await http.delete(path)

    assert [data["id"] for _, data in seen] == started
    assert after == seen[1]
    assert [data["by"] for _, data in seen] == ["anna@example.com"] * 2
    assert [told(one) for one in bad] == [(422, "INVALID_REQUEST")] * 2
    assert told(others) == (404, "SCHEDULE_NOT_FOUND")
    assert [(entry["verb"], entry["by"]) for entry in status["log"]] == [
        ("paused", "anna@example.com"),
        ("run", "anna@example.com"),
        ("run", "anna@example.com"),
    ]
    assert (refused.status_code, forked.status_code) == (422, 202)
    assert fork["by"] == "anna@example.com"
    assert session.status_code == 202, session.text
    assert session.json()["forked_from"] == {
        "session_id": "@acme/named",
        "at_turn": 0,
        "by": "anna@example.com",
    }
    assert ["@acme/named-batch" in {entry["id"] for entry in entries} for entries in lists] == [
        True,
        False,
    ]
    assert lists[0][0].keys() >= {"id", "agent", "state", "started_at", "ended_at", "error"}


async def first_messages(
    http: httpx.AsyncClient, path: str, count: int, after: str = ""
) -> list[tuple[str, dict[str, Any]]]:
    """The first messages of a stream; then the client disconnects."""
    seen: list[tuple[str, dict[str, Any]]] = []
    async with contextlib.aclosing(messages(http, path, after)) as stream:  # type: ignore[type-var]
        async for one in stream:
            seen.append(one)
            if len(seen) == count:
                break
    return seen


async def until_listed(http: httpx.AsyncClient, batch_id: str) -> None:
    """Wait until the list has a batch."""
    async with asyncio.timeout(60):
        while batch_id not in (await http.get("/v1/batches")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def _forked_from(http: httpx.AsyncClient, turn_id: str) -> dict[str, Any]:
    """From where a turn goes on, by its result."""
    result = (await http.get(f"/v1/turns/{turn_id}/result?wait=60")).json()
    origin: dict[str, Any] = result["forked_from"]
    return origin


@pytest.mark.accepts("H113")
async def test_limits_of_a_schedule_are_changed_by_callers_with_the_permission_alone(
    runtime: Runtime,
) -> None:
    """Also by null, by a task without them, and by options; the rest may be changed."""
    limited = {"content": "Write it.", "allowed_tools": [], "requires_human_approval": True}
    made = {
        "id": "report",
        "agent": "desk",
        "task": limited,
        "cron": "0 7 * * *",
        "timezone": "UTC",
        "budget": {"tokens": 5},
        "max_iterations": 2,
        "allowed_tools": [],
        "options": {"max_output_tokens": 9},
        "total": {"tokens": 90},
    }
    changes: list[dict[str, Any]] = [
        {"budget": None},
        {"max_iterations": None},
        {"allowed_tools": None},
        {"options": None},
        {"total": None},
        {"task": "Write it."},
        {"task": {**limited, "requires_human_approval": False}},
    ]
    path = "/v1/schedules/report"
    options = {"options": {"max_output_tokens": 9}}
    begin = {"agent": "desk", **options}
    schedule = {"id": "other", "agent": "desk", "task": "a", "cron": "0 7 * * *", "timezone": "UTC"}
    starts: dict[str, dict[str, Any]] = {
        "/v1/turns": {"agent": "desk", "task": "a", **options},
        "/v1/sessions/talk/messages": {"text": "a", "begin": begin},
        "/v1/batches": {"id": "many", "agent": "desk", "tasks": ["a"], **options},
        "/v1/schedules": {**schedule, **options},
        "/openai/v1/responses": {"model": "desk", "input": "a", "max_output_tokens": 16},
    }
    async with runtime(DESK, model=FunctionModel(echo)) as client, served(client) as http:
        await http.post("/v1/schedules", json=made)
        refused = [await http.patch(path, json=one, headers=as_("sam")) for one in changes]
        refused += [
            await http.post(path, json=body, headers=as_("sam")) for path, body in starts.items()
        ]
        total = {**schedule, "total": {"tokens": 90}}
        refused.append(await http.post("/v1/schedules", json=total, headers=as_("sam")))
        other_text = {"task": {**limited, "content": "Write more."}, "labels": {"a": "b"}}
        taken = await http.patch(path, json=other_text, headers=as_("sam"))
        lifted = await http.patch(path, json={"budget": None})
        added = await http.post(f"{path}/add-budget", json={"budget": {"tokens": 9}})
        last = (await http.get(path)).json()
        await http.delete(path)

    assert [one.status_code for one in refused] == [403] * (len(changes) + len(starts) + 1)
    assert (added.status_code, last["total"]["tokens"]) == (204, 99)
    assert [(one["verb"], one["by"]) for one in last["log"]] == [
        ("budget_added", "anna@example.com"),
        ("changed", "anna@example.com"),
        ("changed", "sam@example.com"),
    ]
    assert (taken.status_code, taken.json()["budget"]["tokens"]) == (200, 5)
    assert (lifted.status_code, lifted.json()["budget"]) == (200, None)


class SlowService(CountingService):
    """Passes every request on after a second."""

    async def _rpc_call(self, *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(1)
        return await super()._rpc_call(*arguments, **options)


def slowly(client: AgentClient) -> AgentClient:
    """A client of the same server whose requests each take a second longer."""
    temporal = client.temporal
    service = SlowService(temporal.service_client)
    return AgentClient.from_temporal(Client(service, namespace=temporal.namespace))


@pytest.mark.accepts("H5", "H11")
async def test_stream_of_an_unknown_id_is_not_found_however_slow_temporal_is(
    runtime: Runtime,
) -> None:
    """Also after a cursor, and for the id of something else: no stream begins that then fails."""
    async with runtime(DESK, model=FunctionModel(echo)) as client:
        turn = await client.start("desk", "Hello.", id="@acme/slow")
        await turn.result()
        run_id = await turn.first_run()
        after = str(Cursor(run_id, run_id, 1))
        async with served(slowly(client)) as http:
            streams = await asyncio.gather(
                http.get("/v1/sessions/none/events"),
                http.get("/v1/sessions/none/events", params={"after": after}),
                http.get("/v1/sessions/slow/events"),
                http.get("/v1/batches/none/results"),
                http.get("/v1/batches/slow/results"),
            )

    assert [told(one) for one in streams] == [
        *[(404, "SESSION_NOT_FOUND")] * 3,
        *[(404, "BATCH_NOT_FOUND")] * 2,
    ]


@pytest.mark.slow
@pytest.mark.accepts("H11")
async def test_stream_without_more_is_empty_however_slow_temporal_is(runtime: Runtime) -> None:
    """204 keeps a client from asking again for what is over."""
    async with runtime(DESK, model=FunctionModel(echo)) as client:
        batch = await client.start_batch("@acme/over", "desk", ["Hello."])
        results = [result async for result in batch.results()]
        session = client.session("@acme/closed", "desk")
        await (await session.say("Hello.")).result()
        await session.close()
        events = [event async for event in session.events()]
        async with served(slowly(client)) as http:
            streams = await asyncio.gather(
                http.get("/v1/batches/over/results", params={"after": results[-1].cursor}),
                http.get("/v1/sessions/closed/events", params={"after": events[-1].cursor}),
            )

    assert [one.status_code for one in streams] == [204, 204]


@pytest.mark.slow
@pytest.mark.accepts("H11")
async def test_schedule_that_another_program_has_changed_is_run_over_http(runtime: Runtime) -> None:
    """Its turns are listed, too. Only its definition cannot be read."""
    daily = {"id": "s9", "agent": "desk", "task": "Hello.", "cron": "0 7 * * *", "timezone": "UTC"}
    async with runtime(DESK, model=FunctionModel(echo)) as client, served(client) as http:
        await http.post("/v1/schedules", json=daily)
        await every_second(client.temporal, "@acme/s9")
        status = await http.get("/v1/schedules/s9")
        started = await http.post("/v1/schedules/s9/run")
        await _result(http, started.json()["id"])

        async def listed() -> int:
            return len((await http.get("/v1/schedules/s9/turns")).json()["turns"])

        count = await until_not(0, listed)
        await client.schedule("@acme/s9").delete()

    assert told(status) == (409, "SCHEDULE_CONFLICT")
    assert started.status_code == 202
    assert count == 1
