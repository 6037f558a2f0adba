"""One shape: the handles of turns, sessions, batches and schedules pass the same tests.

Their worker is a process with a supervisor.
"""

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import Budget, errors
from perdure.clients import AgentClient, Handle, ScheduleStatus, Status

from ..support.e2e.app import AGENT
from ..support.e2e.stories import GONE_S, Story, Tell, asks, says, use

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the processes of a supervisor are found in /proc"
)

BUDGET = Budget(tokens=10**6)
ANNA, BO = "anna@example.com", "Bo Berg"


@pytest.fixture
def has_supervisor() -> bool:
    """Here the workers have one."""
    return True


def new_id(kind: str) -> str:
    """An id that no other test uses."""
    return f"{kind}-{secrets.token_hex(4)}"


async def turn(client: AgentClient) -> Handle[Status]:
    return await client.start(AGENT, "go", id=new_id("turn"), budget=BUDGET)


async def session(client: AgentClient) -> Handle[Status]:
    begun = client.session(new_id("session"), AGENT, budget=BUDGET)
    await begun.say("go")
    return begun


async def batch(client: AgentClient) -> Handle[Status]:
    return await client.start_batch(new_id("batch"), AGENT, ["go"], budget=BUDGET)


async def schedule(client: AgentClient) -> Handle[Status]:
    made = await client.create_schedule(
        new_id("schedule"), AGENT, "go", cron="0 3 1 1 *", timezone="UTC", total=BUDGET
    )
    await made.run_now()
    return made


Make = Callable[[AgentClient], Awaitable[Handle[Status]]]
IDLE: dict[Make, str] = {
    turn: "ended",
    session: "idle",
    batch: "completed",
    schedule: "active",
}
CANCELLED: dict[Make, str] = {
    turn: "ended",
    session: "closed",
    batch: "cancelled",
    schedule: "paused",
}
REACH: dict[Make, Callable[[AgentClient, str], Handle[Status]]] = {
    turn: lambda client, id: client.turn(id),
    session: lambda client, id: client.session(id),
    batch: lambda client, id: client.batch(id),
    schedule: lambda client, id: client.schedule(id),
}
MISSING: dict[Make, type[errors.PerdureError]] = {
    turn: errors.TurnNotFoundError,
    session: errors.SessionNotFoundError,
    batch: errors.BatchNotFoundError,
    schedule: errors.ScheduleNotFoundError,
}


def limit_of(status: Status) -> int | None:
    """The limit of tokens; that of a schedule is its total."""
    budget = status.total if isinstance(status, ScheduleStatus) else status.budget
    return budget.tokens if budget else None


@pytest.fixture(params=list(IDLE), ids=[make.__name__ for make in (turn, session, batch, schedule)])
def make(request: pytest.FixtureRequest) -> Make:
    """Starts a turn, a session, a batch or a schedule, whose turn runs."""
    made: Make = request.param
    return made


async def begun(story: Story, make: Make) -> Handle[Status]:
    """The handle, when its turn runs a tool."""
    await story.worker()
    handle = await make(story.client)
    await story.begun("one")
    return handle


async def refused(call: Awaitable[Any]) -> type[BaseException]:
    """The class of the error of a call."""
    with pytest.raises(errors.PerdureError) as caught:
        await asyncio.wait_for(call, GONE_S)
    return caught.type


@pytest.mark.accepts("E166")
class TestHandle:
    """What all of them have in common."""

    async def test_goes_on_after_a_kill_and_is_waited_for(self, tell: Tell, make: Make) -> None:
        """Budget is added meanwhile. Another handle of the id knows the same."""
        story = await tell(asks(use("fetch", "one", first_s=60)), says("done"))
        handle = await begun(story, make)
        await handle.check()
        running = await handle.wait(timeout=0)
        await handle.add_budget(Budget(tokens=7), by=ANNA)
        await story.replace(story.workers[0])
        ended = await asyncio.wait_for(handle.wait(), GONE_S)
        same = await REACH[make](story.client, handle.id).status()

        assert (running.id, running.agent) == (handle.id, AGENT)
        assert running.state in ("running", "active")
        assert (ended.state, same.state) == (IDLE[make], IDLE[make])
        assert (limit_of(ended), same.spent) == (10**6 + 7, ended.spent)
        assert repr(handle.id) in repr(handle)

    async def test_is_cancelled_once(self, tell: Tell, make: Make) -> None:
        """Its turn ends, and there is nothing to cancel afterwards."""
        story = await tell(asks(use("charge", "one", takes_s=60)), says("late"))
        handle = await begun(story, make)
        was_running = await handle.cancel("wrong customer", by=BO)
        ended = await asyncio.wait_for(handle.wait(), GONE_S)
        is_running = await handle.cancel("again")

        assert (was_running, is_running, ended.state) == (True, False, CANCELLED[make])
        assert [entry.what for entry in story.journal()] == ["one"]

    async def test_unknown_id_is_refused_by_every_verb(self, tell: Tell, make: Make) -> None:
        """With the error of its kind; an argument that is not valid is refused before."""
        story = await tell()
        handle = REACH[make](story.client, new_id("unknown"))
        ends = [
            await refused(call)
            for call in (
                handle.check(),
                handle.status(),
                handle.wait(),
                handle.cancel("why"),
                handle.add_budget(Budget(tokens=1), by=ANNA),
            )
        ]
        invalid = [
            await refused(call)
            for call in (
                handle.wait(timeout=-1),
                handle.cancel(by="two\nlines"),
                handle.add_budget(Budget(tokens=1), by=""),
                handle.add_budget(5),  # type: ignore[arg-type]
            )
        ]

        assert ends == [MISSING[make]] * 5
        assert invalid == [errors.InvalidRequestError] * 4
