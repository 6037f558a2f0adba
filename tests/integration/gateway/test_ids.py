"""Ids of what callers create: the same everywhere in a URL, over HTTP and in the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from perdure import Agent, errors, tool
from perdure.clients import AgentClient
from perdure.clients.gateway import A2AAgent
from perdure.testing import ByTask, ScriptedModel, call, calls, says

from ...conftest import Runtime
from ...support.gateway.served import A2A, send_message, served

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ...support.mcp.tasks import assistant, use

UNSAFE = "../@other/payroll"
OVER, TALK = "h110-over", "h110-talk"
"""A turn that is over, and a session."""
CRON = {"cron": "0 7 * * *", "timezone": "UTC"}
Try = Callable[[AgentClient], Awaitable[Any]]


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


DESK = Agent(name="desk", model="main", tools=[refund])


def user(id: str) -> dict[str, Any]:
    """A message of AG-UI."""
    return {"id": id, "role": "user", "content": "a"}


def over_http(unsafe: str) -> dict[str, tuple[str, dict[str, Any], dict[str, str]]]:
    """Requests that would create something with an id: path, body and headers."""
    key = {"Idempotency-Key": unsafe}
    start = {"agent": "desk", "task": "over"}
    said = [{"type": "message", "role": "user", "content": "hello"}]
    empty: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    thread = {**empty, "runId": "r"}
    return {
        "turn": ("turns", {**start, "id": unsafe}, {}),
        "turn by key": ("turns", start, key),
        "agent": ("turns", {"agent": "..", "task": "over"}, {}),
        "session": (f"sessions/{unsafe}/messages", {"text": "a", "begin": {"agent": "desk"}}, {}),
        "fork of a session": (f"sessions/{TALK}/fork", {"id": unsafe}, {}),
        "message": (f"sessions/{TALK}/messages", {"text": "a", "id": unsafe}, {}),
        "message by key": (f"sessions/{TALK}/messages", {"text": "a"}, key),
        "batch": ("batches", {"id": unsafe, "agent": "desk", "tasks": ["over"]}, {}),
        "task": (
            "batches",
            {"id": "b", "agent": "desk", "tasks": [{"task": "over", "id": unsafe}]},
            {},
        ),
        "schedule": ("schedules", {**start, **CRON, "id": unsafe}, {}),
        "steer": (f"turns/{OVER}/steer", {"text": "a", "id": unsafe}, {}),
        "fork": (f"turns/{OVER}/fork", {"id": unsafe, "say": "go on"}, {}),
        "fork by key": (f"turns/{OVER}/fork", {"say": "go on"}, key),
        "resume": (f"turns/{OVER}/resume", {"id": unsafe}, {}),
        "response": ("/openai/v1/responses", {"model": "desk", "input": said}, key),
        "conversation": (
            "/openai/v1/responses",
            {"model": "desk", "input": said, "conversation": unsafe},
            {},
        ),
        "completion": ("/openai/v1/chat/completions", {"model": "desk", "messages": said}, key),
        "thread": ("/agui/desk", {**thread, "threadId": unsafe, "messages": [user("m")]}, {}),
        "message of a thread": (
            "/agui/desk",
            {**thread, "threadId": "h110-thread", "messages": [user(unsafe)]},
            {},
        ),
        "context": ("/a2a/desk", send_message("m", contextId=".."), A2A),
        "message of a context": ("/a2a/desk", send_message(unsafe), A2A),
    }


def in_python(unsafe: str) -> dict[str, Try]:
    """Calls of the client that would create something with an id."""
    return {
        "turn": lambda client: client.start("desk", "over", id=unsafe),
        "session": lambda client: client.session(unsafe, "desk").say("a"),
        "fork of a session": lambda client: client.session(f"@acme/{TALK}").fork(id=unsafe),
        "message": lambda client: client.session(f"@acme/{TALK}").say("a", id=unsafe),
        "batch": lambda client: client.start_batch(unsafe, "desk", ["over"]),
        "task": lambda client: client.start_batch("b", "desk", [{"task": "over", "id": unsafe}]),
        "schedule": lambda client: client.create_schedule(unsafe, "desk", "over", **CRON),
        "session of a schedule": lambda client: client.create_schedule(
            "s", "desk", "over", session=unsafe, **CRON
        ),
        "steer": lambda client: client.turn(f"@acme/{OVER}").steer("a", id=unsafe),
        "fork": lambda client: client.turn(f"@acme/{OVER}").fork(say="go on", id=unsafe),
        "resume": lambda client: client.turn(f"@acme/{OVER}").resume(id=unsafe),
    }


def detail_of(answer: httpx.Response) -> str:
    """What an error says: a problem, or an error of OpenAI's API or of JSON-RPC."""
    told = answer.json()
    return str(told["detail"] if "detail" in told else told["error"]["message"])


@pytest.mark.slow
@pytest.mark.accepts("H110")
async def test_id_that_a_url_would_change_is_refused_wherever_something_is_created(
    runtime: Runtime,
) -> None:
    """Nothing is created over any API or by the client; existing things are not changed."""
    details, raised = {}, {}
    async with (
        runtime(
            DESK, model=ByTask({"over": ScriptedModel(says("done")), "a": ScriptedModel(says("b"))})
        ) as client,
        served(client, a2a_agents=[A2AAgent("desk", "Answers.")]) as http,
        assistant(http) as mcp,
    ):
        await (await client.start("desk", "over", id=f"@acme/{OVER}")).result()
        await (await client.session(f"@acme/{TALK}", "desk").say("a")).result()
        before = await existing(client)
        for what, (path, body, headers) in over_http(UNSAFE).items():
            full = path if path.startswith("/") else f"/v1/{path.replace('..', '%2E%2E')}"
            url = http.base_url.copy_with(raw_path=full.encode())
            details[what] = detail_of(await http.post(url, json=body, headers=headers))
        start = await use(mcp, "start_turn", agent="desk", task="over", id=UNSAFE)
        steer = await use(mcp, "steer_turn", turn=UNSAFE, text="a")
        details |= {"start over MCP": start["refused"], "steer over MCP": repr(steer["refused"])}
        for what, attempt in in_python(UNSAFE).items():
            with pytest.raises(errors.InvalidRequestError) as refused:
                await attempt(client)
            raised[what] = refused.value.message
        after = await existing(client)
        made = [one.id async for one in client.turns() if "payroll" in one.id or ".." in one.id]

    assert {what: said for what, said in details.items() if ".." not in said} == {}
    assert {what: said for what, said in raised.items() if "'..'" not in said} == {}
    assert after == before
    assert set(before) == {f"@acme/{OVER}", f"@acme/{TALK}/1"}
    assert made == []


async def existing(client: AgentClient) -> dict[str, tuple[int, str]]:
    """The turns of this test, and the session: how many messages and what state they have."""
    found: dict[str, tuple[int, str]] = {}
    async with asyncio.timeout(60):
        while len(found) < 2:
            listed = [one.id async for one in client.turns(id_prefix="@acme/h110-")]
            for one in listed:
                turn = client.turn(one)
                events = len([event async for event in turn.events()])
                found[one] = (events, str((await turn.status()).outcome))
    queue = (await client.session(f"@acme/{TALK}").status()).queue
    assert not queue
    return found


@pytest.mark.slow
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
