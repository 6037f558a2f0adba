"""Webhooks of the turns of sessions: a real worker, and a receiver on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import errors
from perdure.__main__ import run as command
from perdure.clients import AgentClient, Turn
from perdure.temporal.histories.runs import describe, runs_up_to
from perdure.testing import ScriptedModel, fails, says
from perdure.testing.runtime import local_runtime

from ...conftest import Runtime
from ...support.conversing import Paced, session_of
from ...support.gateway.served import served
from ...support.long_turns import bulky, reader
from ...support.receiver import SECRET, Receiver
from ...support.scheduling import DAILY, new_id
from ...support.session_runs import short_runs
from ...support.spending import SOON_S, app, ended
from ...support.webhooks import delivered, delivery


async def sends_none(client: AgentClient, turn: Turn[Any]) -> bool:
    """Whether a turn, once it is over, has begun no delivery."""
    await ended(turn)
    with pytest.raises(ValueError, match="not enough values"):
        await delivery(client, turn)
    return True


@pytest.mark.slow
@pytest.mark.accepts("H133")
async def test_each_turn_of_a_session_sends_its_webhook(
    runtime: Runtime, receiver: Receiver
) -> None:
    """Also one that fails. Forks and resumes of a turn send none, and neither does a fork of the
    session. No secret is in history.
    """
    model = ScriptedModel(
        *(says("one"), fails(errors.LLMRefusedError("no")), says("forked"), says("resumed")),
        says("copied"),
    )
    async with runtime(app(), model=model) as client:
        session = session_of(client, on_done=receiver.url("/chat"), labels={"case": "7"})
        first = await (await session.say("first")).turn()
        memo = await delivered(client, first)
        second = await (await session.say("second")).turn()
        failed = await delivered(client, second)
        copy = await session.fork(id=f"{session.id}-copy")
        others = [
            await first.fork(say="And now?"),
            await second.resume(),
            await (await copy.say("third")).turn(),
        ]
        silent = [await sends_none(client, turn) for turn in others]
        handle = client.temporal.get_workflow_handle
        histories = [await handle(one).fetch_history() for one in (session.id, first.id)]

    told = [hook.verified() for hook in receiver.hooks]
    assert memo == failed == {"state": "delivered", "status": 204, "attempts": 1}
    assert silent == [True] * 3
    assert [(one["type"], one["data"]["id"]) for one in told] == [
        ("turn.completed", f"{session.id}/1"),
        ("turn.failed", f"{session.id}/2"),
    ]
    assert (told[0]["data"]["output"], told[0]["data"]["labels"]) == ("one", {"case": "7"})
    assert len({hook.headers["webhook-id"] for hook in receiver.hooks}) == 2
    assert not any(SECRET.removeprefix("whsec_") in history.to_json() for history in histories)


@pytest.mark.slow
@pytest.mark.accepts("H133")
async def test_turn_that_its_session_cancels_sends_its_webhook(
    runtime: Runtime, receiver: Receiver
) -> None:
    """After an interrupt, and after a cancel of the session, with the reason."""
    model = Paced(says("never"), says("never"))
    async with runtime(app(), model=model) as client:
        session = session_of(client, on_done=receiver.url("/chat"))
        for stop in (session.interrupt, session.cancel):
            turn = await (await session.say("go")).turn()
            await model.begun.acquire()
            await stop("enough")
            assert await delivered(client, turn) == {
                "state": "delivered",
                "status": 204,
                "attempts": 1,
            }

    told = [hook.verified() for hook in receiver.hooks]
    assert [one["type"] for one in told] == ["turn.cancelled"] * 2
    assert all(one["data"]["error"]["message"].endswith("enough") for one in told)


async def until_a_second_run(client: AgentClient, id: str) -> None:
    """Wait until a workflow has gone on in a new run; a session records its turn first."""
    async with asyncio.timeout(SOON_S):
        while True:
            info = await describe(client.temporal, id)
            if len(await runs_up_to(client.temporal, info)) > 1:
                return
            await asyncio.sleep(0.05)


@pytest.mark.accepts("H133", "H85")
@pytest.mark.slow
async def test_webhook_is_sent_once_in_each_run_of_session_and_turn(receiver: Receiver) -> None:
    """The first turn has several runs, and the session begins a new one after it."""
    model = ScriptedModel(*bulky(8), says("one"), says("two"))
    async with (
        short_runs() as address,
        local_runtime(app(reader()), model=model, address=address) as client,
    ):
        session = client.session(new_id("chat"), "reader", on_done=receiver.url("/chat"))
        turns = []
        for text in ("first", "second"):
            turns.append(await (await session.say(text)).turn())
            await ended(turns[-1])
        await receiver.until("/chat", 2)
        for id in (turns[0].id, session.id):
            await until_a_second_run(client, id)

    assert [hook.verified()["data"]["output"] for hook in receiver.hooks] == ["one", "two"]


@pytest.mark.accepts("H133", "H84")
@pytest.mark.slow
async def test_all_ways_to_begin_a_session_take_a_webhook(
    runtime: Runtime, receiver: Receiver, perdure_server: str
) -> None:
    """HTTP, for a tenant; a schedule that sends messages to a session; the command line."""
    paths = ("/http", "/schedule", "/say")
    model = ScriptedModel(*[says("Done.")] * len(paths))
    ids = {path: new_id("chat") for path in paths}
    async with runtime(app(), model=model) as client:
        url = {path: receiver.url(path) for path in paths}
        async with served(client) as http:
            begin = {"agent": "spender", "on_done": url["/http"]}
            place = f"/v1/sessions/{ids['/http']}/messages"
            sent = await http.post(place, json={"text": "go", "begin": begin})
            wrong = await http.post(
                place, json={"text": "go", "begin": {**begin, "on_done": "http://example.com/"}}
            )
        daily = await client.create_schedule(
            *(new_id("hook"), "spender", "go"),
            **DAILY,
            session=ids["/schedule"],
            on_done=url["/schedule"],
        )
        await daily.run_now()
        connection = ("--address", perdure_server, "--task-queue", client.task_queue)
        say = ["session", "say", ids["/say"], "Hello.", "--begin", "spender"]
        code = await asyncio.to_thread(command, [*say, "--on-done", url["/say"], *connection])
        refused = await asyncio.to_thread(
            command, ["session", "say", ids["/say"], "More.", "--on-done", url["/say"], *connection]
        )
        told = {path: await receiver.until(path) for path in url}
        await daily.delete()

    assert (sent.status_code, wrong.status_code, code) == (202, 422, 0)
    assert refused != 0
    assert wrong.json()["errors"][0]["pointer"] == "#/begin/on_done"
    assert {path: hook[0].verified()["data"]["id"] for path, hook in told.items()} == {
        "/http": f"@acme/{ids['/http']}/1",
        "/schedule": f"{ids['/schedule']}/1",
        "/say": f"{ids['/say']}/1",
    }
    assert {path: len(hooks) for path, hooks in told.items()} == dict.fromkeys(paths, 1)
