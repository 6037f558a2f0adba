"""Ids of what callers create: the same everywhere in a URL, over HTTP and in the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import Agent, errors, tool
from perdure.clients import AgentClient
from perdure.testing import ByTask, ScriptedModel, call, calls, says

from ..conftest import Runtime
from .gateway import served

UNSAFE = "../@other/payroll"
CRON = {"cron": "0 7 * * *", "timezone": "UTC"}
Try = Callable[[AgentClient], Awaitable[Any]]


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


DESK = Agent(name="desk", model="main", tools=[refund])


def over_http(unsafe: str) -> dict[str, tuple[str, dict[str, Any], dict[str, str]]]:
    """Requests that would create something with an id: path, body and headers."""
    key = {"Idempotency-Key": unsafe}
    start = {"agent": "desk", "task": "over"}
    said = [{"type": "message", "role": "user", "content": "hello"}]
    thread: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {
        "turn": ("turns", {**start, "id": unsafe}, {}),
        "turn by key": ("turns", start, key),
        "agent": ("turns", {"agent": "..", "task": "over"}, {}),
        "session": (f"sessions/{unsafe}/messages", {"text": "a", "begin": {"agent": "desk"}}, {}),
        "fork of a session": ("sessions/talk/fork", {"id": unsafe}, {}),
        "message": ("sessions/talk/messages", {"text": "a", "id": unsafe}, {}),
        "message by key": ("sessions/talk/messages", {"text": "a"}, key),
        "batch": ("batches", {"id": unsafe, "agent": "desk", "tasks": ["over"]}, {}),
        "task": (
            "batches",
            {"id": "b", "agent": "desk", "tasks": [{"task": "over", "id": unsafe}]},
            {},
        ),
        "schedule": ("schedules", {**start, **CRON, "id": unsafe}, {}),
        "steer": ("turns/over/steer", {"text": "a", "id": unsafe}, {}),
        "fork": ("turns/over/fork", {"id": unsafe, "say": "go on"}, {}),
        "fork by key": ("turns/over/fork", {"say": "go on"}, key),
        "resume": ("turns/over/resume", {"id": unsafe}, {}),
        "response": ("/openai/v1/responses", {"model": "desk", "input": said}, key),
        "conversation": (
            "/openai/v1/responses",
            {"model": "desk", "input": said, "conversation": unsafe},
            {},
        ),
        "thread": (
            "/agui/desk",
            {
                **thread,
                "threadId": unsafe,
                "runId": "r",
                "messages": [{"id": "m", "role": "user", "content": "a"}],
            },
            {},
        ),
    }


def in_python(unsafe: str) -> dict[str, Try]:
    """Calls of the client that would create something with an id."""
    return {
        "turn": lambda client: client.start("desk", "over", id=unsafe),
        "session": lambda client: client.session(unsafe, "desk").say("a"),
        "fork of a session": lambda client: client.session("@acme/talk").fork(id=unsafe),
        "message": lambda client: client.session("@acme/talk").say("a", id=unsafe),
        "batch": lambda client: client.start_batch(unsafe, "desk", ["over"]),
        "task": lambda client: client.start_batch("b", "desk", [{"task": "over", "id": unsafe}]),
        "schedule": lambda client: client.create_schedule(unsafe, "desk", "over", **CRON),
        "session of a schedule": lambda client: client.create_schedule(
            "s", "desk", "over", session=unsafe, **CRON
        ),
        "steer": lambda client: client.turn("@acme/over").steer("a", id=unsafe),
        "fork": lambda client: client.turn("@acme/over").fork(say="go on", id=unsafe),
        "resume": lambda client: client.turn("@acme/over").resume(id=unsafe),
    }


@pytest.mark.accepts("H110")
async def test_id_that_a_url_would_change_is_refused_wherever_something_is_created(
    runtime: Runtime,
) -> None:
    """Nothing is created over any API or by the client; existing things are not changed."""
    answers, raised = {}, {}
    async with (
        runtime(
            DESK, model=ByTask({"over": ScriptedModel(says("done")), "a": ScriptedModel(says("b"))})
        ) as client,
        served(client) as http,
    ):
        await (await client.start("desk", "over", id="@acme/over")).result()
        await (await client.session("@acme/talk", "desk").say("a")).result()
        for what, (path, body, headers) in over_http(UNSAFE).items():
            full = path if path.startswith("/") else f"/v1/{path.replace('..', '%2E%2E')}"
            url = http.base_url.copy_with(raw_path=full.encode())
            answers[what] = (await http.post(url, json=body, headers=headers)).status_code
        for what, attempt in in_python(UNSAFE).items():
            with pytest.raises(errors.InvalidRequestError) as refused:
                await attempt(client)
            raised[what] = "'..'" in refused.value.message
        turns = {one.id async for one in client.list() if "payroll" in one.id or ".." in one.id}

    assert {what: status for what, status in answers.items() if status not in (400, 422)} == {}
    assert {what for what, has_reason in raised.items() if not has_reason} == set()
    assert turns == set()


@pytest.mark.accepts("H111")
async def test_denial_with_the_token_of_another_call_is_refused(runtime: Runtime) -> None:
    """The call goes on waiting; its own token denies it."""
    asks = ScriptedModel(calls(call("refund", euros=40)), says("done"))
    async with runtime(DESK, model=ByTask({"pay": asks})) as client, served(client) as http:
        turn = await client.start("desk", "pay", id="@acme/pay")
        waits = (await http.get("/v1/turns/pay", params={"wait": 30})).json()["waits"]
        [shown] = [one["call"] for one in waits]
        denials = [
            await http.post(
                "/v1/turns/pay/deny", json={"call_id": shown["call_id"], "token": token}
            )
            for token in ("000000000000", shown["token"])
        ]
        report = await turn.result()

    assert [one.status_code for one in denials] == [409, 204]
    assert denials[0].json()["code"] == "APPROVAL_CONFLICT"
    assert report.output == "done"
