"""The tools that a caller allows, and the approval that its task asks for, on every way that goes
on from there.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, Task, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import Session, Turn
from perdure.testing import FunctionModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.values.approvals import PendingApproval
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.conversing import until_recorded
from ...support.long_turns import MANY, begin, runs_of
from ...support.resets import reset, task_ends
from ...support.scheduling import DAILY, existing
from ...support.spending import ended, look

ALLOWED = ["look", "hand_over"]
SENT: list[str] = []


@tool
def send(to: str) -> str:
    """Send a letter, which the callers here do not want."""
    SENT.append(to)
    return f"sent to {to}"


def sends(request: ModelRequest) -> Reply:
    """A model that sends a letter, and is content if it may not."""
    last = request.messages[-1]
    is_told = last.role == "tool" and last.results[0].name == "send"
    return says("done") if is_told else calls(call("send", to="Ann"))


def hands_over(request: ModelRequest) -> Reply:
    """A model that hands the turn over to one that sends a letter."""
    return calls(call("hand_over", agent="clerk", message="you"))


def sends_late(request: ModelRequest) -> Reply:
    """A model that fills a run before it sends a letter."""
    steps = sum(message.role == "assistant" for message in request.messages)
    if steps > 2:
        return says("done")
    if steps == 2:
        return calls(call("send", to="Ann"))
    return calls(*(call("look", number=MANY * steps + one) for one in range(MANY)))


MODELS = {
    "clerk": FunctionModel(sends),
    "front": FunctionModel(hands_over),
    "long": FunctionModel(sends_late),
}
AGENTS = [
    Agent(name="clerk", model="scripted:clerk", description="Writes.", tools=[send, look]),
    Agent(name="front", model="scripted:front", handoffs=["clerk"]),
    Agent(
        name="long",
        model="scripted:long",
        tools=[send, look],
        parallel_tools=True,
        max_iterations="unlimited",
    ),
]

Given = dict[str, Any]


def new_id() -> str:
    return f"limits-{secrets.token_hex(4)}"


async def outcome(turn: Turn[Any]) -> str:
    """What kept the letter from being sent: the class of an error, or a person, who denies it."""
    while (waiting := await _waiting(turn)) is not None:
        if waiting.tool == "send":
            await turn.deny(waiting, "no")
            await ended(turn)
            return "approval"
        await turn.approve(waiting)
    return type(await ended(turn)).__name__


async def _waiting(turn: Turn[Any]) -> PendingApproval | None:
    """The call that waits for a person, or None when the turn is over."""
    await turn.wait(timedelta(seconds=60))
    return next(iter(await turn.pending_approvals()), None)


async def _start(client: RecordingClient, task: Any, given: Given) -> list[str]:
    return [await outcome(await client.start("clerk", task, **given))]


async def _fork(client: RecordingClient, task: Any, given: Given) -> list[str]:
    turn = await client.start("clerk", task, **given)
    found = [await outcome(turn)]
    forked = await turn.fork(0)
    return [*found, await outcome(forked), await outcome(await forked.fork(0))]


async def _resume(client: RecordingClient, task: Any, given: Given) -> list[str]:
    """Of a turn that has not ended its first step, which is made again."""
    turn = await client.start("clerk", task, **given)
    if not (await turn.wait(timedelta(seconds=60))).state.is_over:
        await client.temporal.get_workflow_handle(turn.id).terminate()
    await ended(turn)
    return [await outcome(await turn.resume())]


async def _hand_over(client: RecordingClient, task: Any, given: Given) -> list[str]:
    turn = await client.start("front", task, **given)
    found = [await outcome(turn)]
    return [*found, await outcome(await turn.fork(1))]


async def _later_run(client: RecordingClient, task: Any, given: Given) -> list[str]:
    turn = await begin(client, "long", task, **given)
    found = [await outcome(turn)]
    assert len(await runs_of(client, turn)) == 2
    return [*found, await outcome(await turn.fork(2))]


async def _reset(client: RecordingClient, task: Any, given: Given) -> list[str]:
    turn = await client.start("clerk", task, **given)
    found = [await outcome(turn)]
    history = await client.history(turn)
    return [*found, await outcome(await reset(client, turn, task_ends(history)[0]))]


async def _schedule(client: RecordingClient, task: Any, given: Given) -> list[str]:
    schedule = await client.create_schedule(new_id(), "clerk", task, **DAILY, **given)
    found = [await outcome(await existing(client, await schedule.run_now()))]
    await schedule.delete()
    return found


async def _batch(client: RecordingClient, task: Any, given: Given) -> list[str]:
    batch = await client.start_batch(new_id(), "clerk", [task], **given)
    found = [await outcome(await existing(client, f"{batch.id}/1"))]
    await batch.wait()
    return found


async def _session(client: RecordingClient, task: Any, given: Given) -> list[str]:
    """Its turns, and those of a fork of it."""
    session = client.session(new_id(), "clerk", **given)
    found = await _said(session, task, task)
    forked = await session.fork(1, id=new_id())
    return [*found, *await _said(forked, task)]


async def _said(session: Session, *texts: str) -> list[str]:
    found = []
    for text in texts:
        found.append(await outcome(await (await session.say(text)).turn()))
        await until_recorded(session, len(await session.turns()))
    return found


async def _schedule_of_a_session(client: RecordingClient, task: Any, given: Given) -> list[str]:
    session = client.session(new_id())
    schedule = await client.create_schedule(
        new_id(), "clerk", task, **DAILY, session=session.id, **given
    )
    await schedule.run_now()
    found = [await outcome(await existing(client, f"{session.id}/1"))]
    await schedule.delete()
    return found


Way = Callable[[RecordingClient, Any, Given], Awaitable[list[str]]]
OF_A_TASK: list[Way] = [
    _start,
    _fork,
    _resume,
    _hand_over,
    _later_run,
    _reset,
    _schedule,
    _batch,
]
OF_A_SESSION: list[Way] = [_session, _schedule_of_a_session]


async def all_ways(
    client: RecordingClient, ways: list[Way], task: str | Task, **given: Any
) -> dict[str, set[str]]:
    """What kept the letters from being sent, by the way."""
    found = await asyncio.gather(*(way(client, task, given) for way in ways))
    return {way.__name__: set(one) for way, one in zip(ways, found, strict=True)}


@pytest.mark.slow
@pytest.mark.accepts("Y122")
async def test_tools_that_a_caller_does_not_allow_run_on_no_way(runtime: Runtime) -> None:
    """Not in what a turn, a session, a schedule or a batch goes on with, either."""
    SENT.clear()
    ways = [*OF_A_TASK, *OF_A_SESSION]
    async with runtime(AgentWorker(AGENTS), model=MODELS) as client:
        found = await all_ways(client, ways, "go", allowed_tools=ALLOWED)

    assert found == {way.__name__: {errors.AutonomyBoundaryError.__name__} for way in ways}
    assert SENT == []


@pytest.mark.accepts("Y122")
@pytest.mark.parametrize("way", OF_A_TASK, ids=lambda way: way.__name__.strip("_"))
@pytest.mark.table(3)
async def test_approval_that_a_task_asks_for_is_asked_for_on_every_way(
    runtime: Runtime, way: Way
) -> None:
    """A session has no such tasks."""
    SENT.clear()
    task = Task(content="go", requires_human_approval=True)
    async with runtime(AgentWorker(AGENTS), model=MODELS) as client:
        found = await way(client, task, {})

    assert set(found) == {"approval"}
    assert SENT == []
