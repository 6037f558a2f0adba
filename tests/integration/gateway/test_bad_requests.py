"""Bad requests over HTTP: a clear status and problem, and nothing is started."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from perdure import Agent, limits
from perdure.testing import ScriptedModel, says

from ...conftest import Runtime
from ...support.gateway.served import served, told

DESK = Agent(name="desk", model="main")
GOOD: dict[str, Any] = {"agent": "desk", "task": "Help."}
PREFIX = "@acme/bad"
MANY_LABELS = [f"n{number}=v" for number in range(3_000)]
JSON = {"Content-Type": "application/json"}
NO_FIELD = "there is no such field; /openapi.json has those that there are"
BODIES: dict[str, tuple[bytes | dict[str, Any], tuple[int, str]]] = {
    "nothing": (b"", (422, "INVALID_REQUEST")),
    "not JSON": (b'{"agent": "desk", ', (400, "INVALID_JSON")),
    "not UTF-8": (b'{"agent": "\xff"}', (400, "INVALID_JSON")),
    "a lone surrogate": (b'{"agent": "desk", "task": "\\ud800"}', (400, "INVALID_JSON")),
    "deep": (b"[" * 100_000, (400, "INVALID_JSON")),
    "a list": (b"[]", (422, "INVALID_REQUEST")),
    "a large number": (b'{"max_iterations": ' + b"9" * 5000 + b"}", (400, "INVALID_JSON")),
    "an unknown field": ({**GOOD, "tasks": "x"}, (422, "INVALID_REQUEST")),
    "no agent": ({"task": "Help."}, (422, "INVALID_REQUEST")),
    "an agent's name that is a number": ({**GOOD, "agent": 7}, (422, "INVALID_REQUEST")),
    "an empty task": ({**GOOD, "task": " "}, (422, "INVALID_REQUEST")),
    "a task of a wrong type": ({**GOOD, "task": 7}, (422, "INVALID_REQUEST")),
    "an unknown field of the task": (
        {**GOOD, "task": {"content": "x", "model": "y"}},
        (422, "INVALID_REQUEST"),
    ),
    "iterations as text": ({**GOOD, "max_iterations": "5"}, (422, "INVALID_REQUEST")),
    "no iterations": ({**GOOD, "max_iterations": 0}, (422, "INVALID_REQUEST")),
    "truth as text": ({**GOOD, "live": "yes"}, (422, "INVALID_REQUEST")),
    "money as a float": ({**GOOD, "budget": {"usd": 0.1}}, (422, "INVALID_REQUEST")),
    "a budget of nothing": ({**GOOD, "budget": {}}, (422, "INVALID_REQUEST")),
    "a time that is none": ({**GOOD, "budget": {"time": "soon"}}, (422, "INVALID_REQUEST")),
    "a delay without a zone": ({**GOOD, "delay": "2030-01-01T00:00:00"}, (422, "INVALID_REQUEST")),
    "a deadline that has passed": (
        {**GOOD, "deadline": "2020-01-01T00:00:00Z"},
        (422, "INVALID_REQUEST"),
    ),
    "an option of the provider": (
        {**GOOD, "options": {"extra": {"model": "x"}}},
        (422, "INVALID_REQUEST"),
    ),
    "labels that are no strings": ({**GOOD, "labels": {"a": 1}}, (422, "INVALID_REQUEST")),
    "an empty id": ({**GOOD, "id": ""}, (422, "INVALID_REQUEST")),
    "the prefix as id": ({**GOOD, "id": "@acme/"}, (422, "INVALID_REQUEST")),
    "a reserved id": ({**GOOD, "id": "bad/events"}, (422, "INVALID_REQUEST")),
    "a long id": ({**GOOD, "id": "b" * 99}, (422, "INVALID_REQUEST")),
    "an id of two lines": ({**GOOD, "id": "a\nb"}, (422, "INVALID_REQUEST")),
    "a large task": ({**GOOD, "task": "x" * (limits.TASK_BYTES + 1)}, (413, "TOO_LARGE")),
    "many values": (b"[%s1]" % (b"1," * limits.HTTP_BODY_VALUES), (413, "TOO_LARGE")),
    "many fields": (
        {f"f{number}": 1 for number in range(limits.HTTP_MEMBERS + 1)},
        (413, "TOO_LARGE"),
    ),
    "a history of numbers": ({**GOOD, "history": [1] * 10_000}, (422, "INVALID_REQUEST")),
    "a huge body": (b" " * (limits.HTTP_BODY_BYTES + 1), (413, "TOO_LARGE")),
}


@pytest.mark.accepts("H5", "H129")
async def test_bad_requests_are_refused_and_start_nothing(runtime: Runtime) -> None:
    """Each with a problem that names the part of the body; a good request is served after them."""
    async with runtime(DESK, model=ScriptedModel(says("Yes."))) as client, served(client) as http:
        found: dict[str, httpx.Response] = {}
        for name, (body, _) in BODIES.items():
            if isinstance(body, dict) and "id" not in body:
                body = {**body, "id": f"bad-{len(found)}"}
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            found[name] = await http.post("/v1/turns", content=data, headers=JSON)
        others = {
            "a form": await http.post("/v1/turns", data={"agent": "desk"}),
            "two ids": await http.post(
                "/v1/turns", json={**GOOD, "id": "bad-x"}, headers={"Idempotency-Key": "bad-y"}
            ),
            "a huge stream": await http.post("/v1/turns", content=_huge(), headers=JSON),
            "a method": await http.put("/v1/turns", json=GOOD),
            "a path": await http.get("/v1/nothing"),
            "a query": await http.get("/v1/turns", params={"limit": 0, "what": "x"}),
            "a long wait": await http.get("/v1/turns/x", params={"wait": 61}),
            "no wait": await http.get("/v1/turns/x", params={"wait": "nan"}),
            "two waits": await http.get("/v1/turns/x?wait=1&wait=2"),
            "a state": await http.get("/v1/turns", params={"state": "gone"}),
            "a label": await http.get("/v1/turns", params={"label": "region"}),
            **{
                f"labels of {path}": await http.get(path, params={"label": MANY_LABELS})
                for path in ("/v1/turns", "/v1/sessions", "/v1/approvals")
            },
            "an id with a zero": await http.get("/v1/turns/a%00b"),
            "an id of 5000 letters": await http.get(f"/v1/turns/{'a' * 5000}"),
            "a field": await http.get("/v1/turns/x/events", params={"include": "prompt"}),
        }
        most = [
            await http.get(path, params={"label": MANY_LABELS[: limits.FILTER_LABELS]})
            for path in ("/v1/turns", "/v1/sessions", "/v1/approvals")
        ]
        good = await http.post("/v1/turns", json={**GOOD, "id": "good"})
        await http.get("/v1/turns/good/result", params={"wait": 30})
        started = [one.id async for one in client.turns(id_prefix="@acme/")]

    assert {name: told(one) for name, one in found.items()} == {
        name: wanted for name, (_, wanted) in BODIES.items()
    }
    assert {name: told(one) for name, one in others.items()} == {
        "a form": (415, "UNSUPPORTED_MEDIA_TYPE"),
        "two ids": (422, "INVALID_REQUEST"),
        "a huge stream": (413, "TOO_LARGE"),
        "a method": (405, "METHOD_NOT_ALLOWED"),
        "a path": (404, "NOT_FOUND"),
        **dict.fromkeys(
            ("a query", "a long wait", "no wait", "two waits", "a state", "a label", "a field"),
            (422, "INVALID_REQUEST"),
        ),
        **{
            f"labels of {path}": (422, "INVALID_REQUEST")
            for path in ("/v1/turns", "/v1/sessions", "/v1/approvals")
        },
        "an id with a zero": (404, "TURN_NOT_FOUND"),
        "an id of 5000 letters": (414, "URI_TOO_LONG"),
    }
    assert found["an unknown field of the task"].json()["errors"] == [
        {"pointer": "#/task", "detail": "Input should be a valid string"},
        {"pointer": "#/task/model", "detail": NO_FIELD},
    ]
    assert [one.status_code for one in most] == [200] * 3
    assert good.status_code == 202
    assert [one for one in started if one.startswith(PREFIX)] == []


async def _huge() -> AsyncIterator[bytes]:
    """A body without a length."""
    for _ in range(5):
        yield b" " * 1024 * 1024


@pytest.mark.slow
@pytest.mark.accepts("H5")
async def test_batch_of_many_bad_tasks_is_refused_in_a_moment(runtime: Runtime) -> None:
    """A description of each of them took 44 seconds, in which nobody else was served."""
    body = b'{"id": "b", "agent": "desk", "tasks": [%s1]}'
    found = []
    async with runtime(DESK, model=ScriptedModel()) as client, served(client) as http:
        for count in (limits.HTTP_BATCH_VALUES - 10, limits.HTTP_BODY_BYTES // 2 - 100):
            began = time.process_time()
            data = body % (b"1," * count)
            response = await http.post("/v1/batches", content=data, headers=JSON)
            found.append((told(response), time.process_time() - began < 2))

    assert found == [((422, "INVALID_REQUEST"), True), ((413, "TOO_LARGE"), True)]


@pytest.mark.slow  # it waits for the time limit of a body and for the first comment of a stream
@pytest.mark.accepts("H5", "H6")
async def test_slow_bodies_end_and_quiet_streams_get_comments(runtime: Runtime) -> None:
    """Side by side; others are served meanwhile."""
    async with runtime(DESK, model=ScriptedModel(says("Yes."))) as client, served(client) as http:
        turn = await client.start("desk", "Help.", id="@acme/slow-1", delay=limits.OUTAGE)
        slow = asyncio.create_task(_slowly(http))
        quiet = asyncio.create_task(_first_comment(http))
        began = time.monotonic()
        other = await http.get("/v1/turns")
        took = time.monotonic() - began
        status = await slow
        comment = await quiet
        await turn.cancel()

    assert (other.status_code, took < 5) == (200, True)
    assert b" 408 " in status
    assert comment.startswith(": ping")


async def _slowly(http: httpx.AsyncClient) -> bytes:
    """The first line of the answer to a body that does not end."""
    reading, writing = await asyncio.open_connection(http.base_url.host, http.base_url.port)
    head = (
        "POST /v1/turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer anna\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    writing.write(head.encode())
    line = await reading.readline()
    writing.close()
    return line


async def _first_comment(http: httpx.AsyncClient) -> str:
    async with http.stream("GET", "/v1/turns/slow-1/events") as stream:
        async for line in stream.aiter_lines():
            if line.startswith(":"):
                return line
    raise AssertionError("the stream has ended")
