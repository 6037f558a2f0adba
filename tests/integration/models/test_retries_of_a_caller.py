"""The retries of a model that the caller of a turn chooses, on every way to start one."""

from __future__ import annotations

import asyncio
import io
import secrets
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ModelRetryPolicy, errors
from perdure.__main__ import run
from perdure.activities.provider import ModelRequest
from perdure.clients import Session, Turn
from perdure.testing import FunctionModel, call, calls, fails, says
from perdure.testing.scripted import Reply
from perdure.worker import AgentWorker

from ...conftest import ONCE_MORE, RecordingClient, Runtime
from ...support.conversing import until_recorded
from ...support.delegating import delegate
from ...support.gateway.assistants import assistant, use
from ...support.gateway.served import as_, served, told
from ...support.long_turns import MANY, begin, runs_of
from ...support.mcp.tasks import assistant as over_http
from ...support.scheduling import DAILY
from ...support.spending import SOON_S, app, ended, look

BUSY = fails(errors.LLMUnavailableError("overloaded", context={"status": 503}))
AT_ONCE = ModelRetryPolicy(maximum_elapsed=timedelta(milliseconds=1))
"""A turn with it ends after the first attempt; the agents here have two, and their worker many."""
ONCE, TWICE = 1, 2


def attempts(error: object) -> int:
    """How often the model was asked before a turn gave up."""
    assert isinstance(error, errors.LLMUnavailableError)
    count = error.context["attempts"]
    assert isinstance(count, int)
    return count


async def tried(turn: Turn) -> int:
    """How often the model of a turn was asked before it gave up."""
    return attempts(await ended(turn))


def hands_over(request: ModelRequest) -> Reply:
    """A model that hands the turn over."""
    return calls(call("hand_over", agent="clerk", message="you"))


def delegates(request: ModelRequest) -> Reply:
    """A model that delegates, and tells what it got."""
    last = request.messages[-1]
    return says(last.results[0].content) if last.role == "tool" else delegate("clerk", "go")


def hands_over_late(request: ModelRequest) -> Reply:
    """A model that hands the turn over in its second run."""
    steps = sum(message.role == "assistant" for message in request.messages)
    if steps == 2:
        return hands_over(request)
    return calls(*(call("look", number=MANY * steps + one) for one in range(MANY)))


MODELS = {
    "clerk": FunctionModel(lambda _: BUSY),
    "front": FunctionModel(hands_over),
    "boss": FunctionModel(delegates),
    "long": FunctionModel(hands_over_late),
}


def agents() -> AgentWorker:
    """An agent whose provider is down, and agents that give it work."""
    named = {name: f"scripted:{name}" for name in MODELS}
    return app(
        Agent(name="clerk", model=named["clerk"], description="C", model_retry=ONCE_MORE),
        Agent(name="front", model=named["front"], handoffs=["clerk"]),
        Agent(name="boss", model=named["boss"], delegates=["clerk"]),
        Agent(
            name="long",
            model=named["long"],
            tools=[look],
            parallel_tools=True,
            handoffs=["clerk"],
        ),
    )


def new_id() -> str:
    return f"retry-{secrets.token_hex(4)}"


async def _generate(client: RecordingClient) -> int:
    with pytest.raises(errors.LLMUnavailableError) as raised:
        await client.generate("scripted:clerk", "go", str, model_retry=AT_ONCE)
    return attempts(raised.value)


async def _hand_over(client: RecordingClient) -> int:
    return await tried(await client.start("front", "go", model_retry=AT_ONCE))


async def _hand_over_in_a_later_run(client: RecordingClient) -> int:
    turn = await begin(client, "long", model_retry=AT_ONCE)
    found = await tried(turn)
    assert len(await runs_of(client, turn)) == 2
    return found


async def _delegate(client: RecordingClient) -> int:
    report = await client.run("boss", "go", model_retry=AT_ONCE)
    [child] = report.children
    return await tried(client.turn(child.turn_id))


async def _fork(client: RecordingClient) -> int:
    turn = await client.start("front", "go", model_retry=AT_ONCE)
    await ended(turn)
    return await tried(await turn.fork(1))


async def _fork_of_another(client: RecordingClient) -> int:
    turn = await client.start("clerk", "go")
    assert await tried(turn) == TWICE
    return await tried(await turn.fork(0, model_retry=AT_ONCE))


async def _resume(client: RecordingClient) -> int:
    turn = await client.start("front", "go", model_retry=AT_ONCE)
    await ended(turn)
    return await tried(await turn.resume())


async def _resume_otherwise(client: RecordingClient) -> int:
    turn = await client.start("front", "go")
    assert await tried(turn) == TWICE
    return await tried(await client.turn(turn.id).resume(model_retry=AT_ONCE))


async def _two_of_session(session: Session) -> int:
    """The sum of the attempts of two turns, less one."""
    first = await tried(await (await session.say("go")).turn())
    await until_recorded(session, 1)
    return first + await tried(await (await session.say("again")).turn()) - 1


async def _session(client: RecordingClient) -> int:
    return await _two_of_session(client.session(new_id(), "front", model_retry=AT_ONCE))


async def _fork_of_a_session(client: RecordingClient) -> int:
    session = client.session(new_id(), "clerk", model_retry=AT_ONCE)
    await tried(await (await session.say("go")).turn())
    await until_recorded(session, 1)
    return await _two_of_session(await session.fork(1, id=new_id()))


async def _schedule(client: RecordingClient) -> int:
    schedule = await client.create_schedule(new_id(), "clerk", "go", **DAILY, model_retry=AT_ONCE)
    found = await tried(await _scheduled(client, await schedule.run_now()))
    await schedule.delete()
    return found


async def _changed_schedule(client: RecordingClient) -> int:
    schedule = await client.create_schedule(new_id(), "clerk", "go", **DAILY)
    await schedule.change(model_retry=AT_ONCE)
    found = await tried(await _scheduled(client, await schedule.run_now()))
    await schedule.delete()
    return found


async def _scheduled(client: RecordingClient, turn_id: str) -> Turn:
    """A turn of a schedule, once it is started."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await client.turn(turn_id).first_run()
                return client.turn(turn_id)
            except errors.TurnNotFoundError:
                await asyncio.sleep(0.05)


async def _schedule_of_a_session(client: RecordingClient) -> int:
    session = client.session(new_id())
    schedule = await client.create_schedule(
        new_id(), "clerk", "go", **DAILY, session=session.id, model_retry=AT_ONCE
    )
    await schedule.run_now()
    found = await tried(await _scheduled(client, f"{session.id}/1"))
    await schedule.delete()
    await until_recorded(session, 1)
    return found + await tried(await (await session.say("again")).turn()) - 1


async def _batch(client: RecordingClient) -> int:
    batch = await client.start_batch(new_id(), "clerk", ["go"], model_retry=AT_ONCE)
    [result] = [one async for one in batch.results()]
    return await tried(client.turn(result.turn_id))


WAYS: list[Callable[[RecordingClient], Awaitable[int]]] = [
    _generate,
    _hand_over,
    _delegate,
    _fork,
    _fork_of_another,
    _resume,
    _resume_otherwise,
    _session,
    _fork_of_a_session,
    _schedule,
    _changed_schedule,
    _schedule_of_a_session,
    _batch,
]


@pytest.mark.slow
@pytest.mark.accepts("U28", "U29")
async def test_policy_of_a_caller_overrides_that_of_the_agent(runtime: Runtime) -> None:
    """However the turn is started, and in all that follows from it."""
    async with runtime(agents(), model=MODELS) as client:
        found = await asyncio.gather(*(way(client) for way in WAYS))

    assert {way.__name__: one for way, one in zip(WAYS, found, strict=True)} == {
        way.__name__: ONCE for way in WAYS
    }


@pytest.mark.accepts("U29")
async def test_policy_of_a_caller_holds_after_a_handoff_in_a_later_run(runtime: Runtime) -> None:
    async with runtime(agents(), model=MODELS) as client:
        assert await _hand_over_in_a_later_run(client) == ONCE


@pytest.mark.slow
@pytest.mark.accepts("U30")
async def test_policy_is_chosen_over_http(runtime: Runtime) -> None:
    """By callers with the permission `budget`, within bounds."""
    retry = {"model_retry": {"maximum_elapsed": "PT0.001S"}}
    task = {"agent": "clerk", "task": "go"}
    bodies: dict[str, dict[str, Any]] = {
        "turns": {**task, "id": "r1"},
        "turns/r1/fork": {"id": "r2", "at_step": 0},
        "turns/r1/resume": {"id": "r3"},
        "sessions/r4/messages": {"text": "go", "begin": {"agent": "clerk"}},
        "schedules": {**task, **DAILY, "id": "r5"},
        "batches": {"agent": "clerk", "tasks": ["go"], "id": "r6"},
    }
    wrong = [
        {"initial_interval": "PT0.5S"},
        {"initial_interval": 9, "maximum_interval": 2},
        {"maximum_elapsed": 0},
        {"maximum_elapsed": "P4000D"},
        {"backoff_coefficient": 0.5},
        {"attempts": 3},
    ]
    async with runtime(agents(), model=MODELS) as client, served(client) as http:
        begun, refused = [], []
        for path, body in bodies.items():
            named = body if "begin" not in body else {**body, "begin": {**body["begin"], **retry}}
            named = {**named, **retry} if named is body else named
            refused.append(await http.post(f"/v1/{path}", json=named, headers=as_("sam")))
            begun.append(await http.post(f"/v1/{path}", json=named))
            if path == "turns":
                await ended(client.turn("@acme/r1"))
        schedule = "/v1/schedules/r5"
        refused.append(await http.patch(schedule, json={"model_retry": None}, headers=as_("sam")))
        slot = (await http.post(f"{schedule}/run")).json()["id"]
        ids = ["@acme/r1", "@acme/r2", "@acme/r3", "@acme/r4/1", slot]
        found = [await tried(await _scheduled(client, turn_id)) for turn_id in ids]
        results = [one async for one in client.batch("@acme/r6").results()]
        found += [await tried(client.turn(one.turn_id)) for one in results]
        bad = [
            await http.post("/v1/turns", json={**task, "id": "r7", "model_retry": one})
            for one in wrong
        ]
        await http.delete(schedule)

    assert [one.status_code for one in begun] == [202, 202, 202, 202, 200, 202], begun[-1].text
    assert [told(one) for one in refused] == [(403, "FORBIDDEN")] * 7
    assert found == [ONCE] * 6
    assert [one.status_code for one in bad] == [422] * len(wrong)
    assert "initial_interval is 0:00:00.500000; name at least 1.0 s" in bad[0].text


@pytest.mark.accepts("U28", "U30")
async def test_policy_is_chosen_over_mcp(runtime: Runtime) -> None:
    """As a duration; over HTTP, with the permission `budget`."""
    asked = {"agent": "clerk", "task": "go", "model_retry": "PT0.001S"}
    async with (
        runtime(agents(), model=MODELS) as client,
        assistant(client) as local,
        served(client) as http,
        over_http(http, name="sam") as sam,
    ):
        begun = await use(local, "start_turn", **asked)
        bad = await use(local, "start_turn", **{**asked, "model_retry": "PT0S"})
        refused = await use(sam, "start_turn", **asked)
        found = await tried(client.turn(begun["turn"]))

    assert found == ONCE
    assert "model_retry" in bad["error"]
    assert "FORBIDDEN: this needs the permission 'budget'" in refused["error"]


@pytest.mark.slow
@pytest.mark.accepts("U28")
async def test_policy_is_chosen_on_the_command_line(
    runtime: Runtime,
    perdure_server: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """As a duration, for a turn, a fork, a resume, a batch, a schedule and a chat."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('"go"\n')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"go\n")))
    async with runtime(agents(), model=MODELS) as client:
        turn_id = new_id()
        place = ["--address", perdure_server, "--task-queue", client.task_queue]

        async def perdure(*words: str) -> int:
            return await asyncio.to_thread(run, [*words, *place, "--model-retry", "0.001s"])

        codes = [await perdure("run", "clerk", "go", "--id", turn_id)]
        codes.append(await perdure("fork", turn_id, "--at-step", "0", "--id", f"{turn_id}-f"))
        codes.append(await perdure("resume", turn_id, "--id", f"{turn_id}-r"))
        batch = ("run", str(tasks), "--agent", "clerk", "--id", f"{turn_id}-b")
        codes.append(await perdure("batch", *batch))
        codes.append(await perdure("chat", "clerk", "--session", f"{turn_id}-c"))
        times = ("--cron", "0 0 1 1 *", "--timezone", "UTC")
        made = await perdure("schedule", "create", f"{turn_id}-s", "clerk", "go", *times)
        schedule = client.schedule(f"{turn_id}-s")
        scheduled = await _scheduled(client, await schedule.run_now())
        ids = [turn_id, *(f"{turn_id}-{rest}" for rest in ("f", "r", "b/1", "c/1"))]
        found = [await tried(client.turn(one)) for one in ids]
        found.append(await tried(scheduled))
        await schedule.delete()
        capsys.readouterr()
        wrong = await asyncio.to_thread(run, ["run", "clerk", "go", *place, "--model-retry", "0s"])

    assert (codes, found) == ([1] * 5, [ONCE] * 6)
    assert (made, wrong) == (0, 2)
    assert "maximum_elapsed must be a timedelta, longer than zero" in capsys.readouterr().err
