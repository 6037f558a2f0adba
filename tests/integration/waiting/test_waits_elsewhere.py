"""Turns that wait in sessions, batches and schedules, and events over HTTP and from a terminal."""

from __future__ import annotations

import asyncio
import json
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, errors, tool
from perdure.events import Emitted, WaitBegan
from perdure.testing import FunctionModel, ModelRequest, Reply, ScriptedModel, call, calls, says
from perdure.toolboxes import waiting
from perdure.values.messages import ToolMessage

from ...conftest import Runtime
from ...support.conversing import session_of, until_recorded
from ...support.e2e.command_line import InProcess
from ...support.gateway.served import as_, served
from ...support.keyed_events import MODEL, key_of_test, task
from ...support.keyed_events import waiter as keyed_waiter
from ...support.scheduling import new_id
from ...support.spending import ended, look, until


def waiter(**fields: Any) -> Agent:
    """An agent that waits."""
    given = {"name": "spender", "model": "scripted:spender", "tools": [look]}
    return Agent(**{**given, "toolboxes": [waiting()], **fields})


MONDAYS: dict[str, Any] = {"cron": "30 6 * * MON", "timezone": "America/New_York"}
WAIT = call("wait", seconds=3600, note="the build")


@pytest.mark.slow
@pytest.mark.accepts("W18")
async def test_messages_wait_for_a_turn_that_waits_or_end_its_wait(runtime: Runtime) -> None:
    """Of a session: a queued one is read by the next turn, and a steered one by this turn."""
    model = ScriptedModel(calls(WAIT), says("one"), says("two"))
    async with runtime(waiter(), model=model) as client:
        session = session_of(client)
        first = await session.say("first")
        turn = await first.turn()
        await until(turn, WaitBegan)
        queued = await session.say("second")
        status = await session.status()
        steered = await session.say("third", if_busy="steer")
        report = await first.result()
        await queued.result()
        messages = await until_recorded(session, 2)

    assert (queued.disposition, steered.disposition) == ("queued", "steered")
    assert status.state == "running"
    [result] = report.steps[0].results
    assert "the user has sent a message" in result.content
    assert [message.text for message in messages if message.role == "user"] == [
        "first",
        "third",
        "second",
    ]


@pytest.mark.accepts("W18")
async def test_interrupt_of_a_session_ends_a_wait(runtime: Runtime) -> None:
    """The turn is cancelled, and the message is read by the next one."""
    model = ScriptedModel(calls(WAIT), says("two"))
    async with runtime(waiter(), model=model) as client:
        session = session_of(client)
        first = await session.say("first")
        await until(await first.turn(), WaitBegan)
        second = await session.say("second", if_busy="interrupt")
        report = await second.result()
        with pytest.raises(errors.TurnCancelledError):
            await first.result()

    assert report.output == "two"


def waits_once(request: ModelRequest) -> Reply:
    """Wait for an event, and then say what came."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return says(last.results[0].content)
    return calls(call("wait_for", event="built", note="the build"))


@pytest.mark.slow
@pytest.mark.accepts("W18")
async def test_turns_of_a_batch_and_of_a_schedule_wait(runtime: Runtime) -> None:
    """Each gets the event that is sent to its own turn."""
    async with runtime(waiter(), model=FunctionModel(waits_once)) as client:
        weekly = await client.create_schedule(new_id("waits"), "spender", "Go.", **MONDAYS)
        scheduled = client.turn(await weekly.run_now())
        batch = await client.start_batch(new_id("waits"), "spender", ["one"])
        await until(scheduled, WaitBegan)
        await scheduled.emit("built", "a")
        first = await scheduled.result()
        async for entry in client.turns(parent=batch.id):
            turn = client.turn(entry.id)
            await until(turn, WaitBegan)
            await turn.emit("built", "b")
        status = await batch.wait()
        await weekly.delete()

    assert first.output.endswith('It holds:\n"a"')
    assert status.done == 1


@pytest.mark.accepts("W17")
async def test_call_that_ends_the_turn_does_not_wait_for_the_waits_beside_it(
    runtime: Runtime,
) -> None:
    """An error of a resolver ends the turn at once, and not in an hour."""
    looked = []

    @tool(read_only=True)
    def found() -> str:
        """Find something."""
        return "found"

    class Resolver:
        """Finds the tool when the turn begins, and fails when it is called."""

        def resolve(self, name: str) -> Any:
            looked.append(name)
            if len(looked) > 1:
                raise RuntimeError("the catalogue is away")
            return found

    model = ScriptedModel(calls(WAIT, call("found")), says("unused"))
    agent = waiter(parallel_tools=True, resolver=Resolver())
    async with runtime(agent, model=model) as client:
        turn = await client.start("spender", "go", allowed_tools=["wait", "found"])
        end = await ended(turn)

    assert isinstance(end, errors.ToolResolverError)
    assert end.report is not None
    assert end.report.duration < timedelta(minutes=5)


@pytest.mark.accepts("W27")
async def test_event_is_sent_over_http(runtime: Runtime) -> None:
    """With a key, so that it may be sent again; its author is the caller."""
    turn_id = f"built-{secrets.token_hex(4)}"
    async with (
        runtime(waiter(), model=FunctionModel(waits_once)) as client,
        served(client) as http,
    ):
        begun = {"agent": "spender", "task": "go", "id": turn_id}
        assert (await http.post("/v1/turns", json=begun)).status_code == 202
        turn = client.turn(f"@acme/{turn_id}")
        await until(turn, WaitBegan)
        path = f"/v1/turns/{turn_id}/events"
        key = {"Idempotency-Key": "e-1"}
        other = {"name": "other", "body": [1]}
        sent = [await http.post(path, json=other, headers=key) for _ in range(2)]
        wrong = [
            await http.post(path, json={"body": 1}),
            await http.post(path, json={"name": ""}),
            await http.post(path, json={"name": "other", "body": "x" * 50_000}),
        ]
        status = (await http.get(f"/v1/turns/{turn_id}")).json()
        built = await http.post(path, json={"name": "built", "body": {"ok": True}})
        result = (await http.get(f"/v1/turns/{turn_id}/result", params={"wait": 30})).json()
        facts = [event.fact async for event in turn.events() if isinstance(event.fact, Emitted)]
        late = await http.post(path, json={"name": "built"})

    assert [answer.status_code for answer in (*sent, built)] == [202] * 3
    assert sent[0].json() == {"id": "e-1"}
    assert [answer.json()["code"] for answer in wrong] == [
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        "TOO_LARGE",
    ]
    [wait] = status["waits"]
    assert (wait["kind"], wait["reason"]) == ("event", "built: the build")
    assert wait["until"] is not None
    assert result["output"].endswith('It holds:\n{"ok":true}')
    assert [(fact.event.name, fact.by) for fact in facts] == [
        ("other", "anna@example.com"),
        ("built", "anna@example.com"),
    ]
    assert late.json()["code"] == "TURN_OVER"


@pytest.mark.accepts("W48")
async def test_event_by_key_is_sent_over_http_and_from_a_terminal(
    runtime: Runtime, perdure_server: str, tmp_path: Path
) -> None:
    """With an id, so that it may be sent again; it needs the permission to control turns."""
    key = key_of_test()
    here = InProcess(tmp_path)
    async with runtime(keyed_waiter(), model=MODEL) as client, served(client) as http:
        body = {"name": "built", "key": key, "body": 1}
        headers = {"Idempotency-Key": "e-1"}
        sent = [await http.post("/v1/events", json=body, headers=headers) for _ in range(2)]
        wrong = [
            await http.post("/v1/events", json={"name": "built"}),
            await http.post("/v1/events", json={**body, "key": ""}),
            await http.post("/v1/events", json={**body, "body": "x" * 50_000}),
        ]
        forbidden = [
            await http.post("/v1/events", json=body, headers=as_(name)) for name in ("rita", "sam")
        ]
        told = task([{"key": key}], [{"key": key}])
        turn = await client.start("waiter", told, id=f"@acme/{key}")
        await until(turn, WaitBegan, 2)
        at = ("--address", perdure_server, "--task-queue", client.task_queue)
        line = ("emit", "--key", f"@acme/{key}", "built", "[2]", "--id", "e-2", *at)
        printed = await asyncio.to_thread(here, *line, "--json")
        noted = await asyncio.to_thread(here, *line)
        report = await turn.result()
        lines = (("emit", "a"), ("emit", "--key", "k", "a", "1", "b"))
        mistaken = [await asyncio.to_thread(here, *words) for words in lines]

    assert [answer.status_code for answer in sent] == [202, 202]
    assert sent[0].json() == {"id": "e-1"}
    assert [answer.status_code for answer in (*wrong, *forbidden)] == [422, 422, 413, 403, 403]
    assert json.loads(printed.stdout) == {"key": f"@acme/{key}", "event": "e-2"}
    assert noted.stderr == f"the event built of @acme/{key} is there for an hour\n"
    first, second = [step.results[0].content for step in report.steps[:2]]
    assert (first[-1], second[-3:]) == ("1", "[2]")
    assert [done.returncode for done in mistaken] == [2, 2]
    assert "--key KEY NAME [BODY]" in mistaken[1].stderr
