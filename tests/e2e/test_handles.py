"""One shape: the handles of turns, sessions, batches and schedules pass the same tests.

Their worker is a process with a supervisor.
"""

import asyncio
import contextlib
import json
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure import Budget, errors
from perdure.clients import AgentClient, Entry, Handle, Listing, ScheduleStatus, State, Status

from ..support.e2e.app import AGENT
from ..support.e2e.stories import GONE_S, Story, Tell, asks, says, use

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the processes of a supervisor are found in /proc"
)

BUDGET = Budget(tokens=10**6)
QUIET_S = 5.0
"""How long nothing comes when all was read."""
CORE = {"id", "agent", "state", "started_at", "ended_at", "error"}
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
IDLE: dict[Make, State] = {
    turn: State.ENDED,
    session: State.IDLE,
    batch: State.COMPLETED,
    schedule: State.ACTIVE,
}
CANCELLED: dict[Make, State] = {
    turn: State.ENDED,
    session: State.CLOSED,
    batch: State.CANCELLED,
    schedule: State.PAUSED,
}
REACH: dict[Make, Callable[[AgentClient, str], Handle[Status]]] = {
    turn: lambda client, id: client.turn(id),
    session: lambda client, id: client.session(id),
    batch: lambda client, id: client.batch(id),
    schedule: lambda client, id: client.schedule(id),
}
LISTED: dict[Make, Callable[[AgentClient, str], Listing[Any]]] = {
    turn: lambda client, id: client.turns(id_prefix=id),
    session: lambda client, id: client.sessions(id_prefix=id),
    batch: lambda client, id: client.batches(id_prefix=id),
    schedule: lambda client, id: client.schedules(id_prefix=id),
}
READ: dict[Make, Callable[[Any, str | None], AsyncIterator[Any]]] = {
    turn: lambda handle, after: handle.events(after),
    session: lambda handle, after: handle.events(after),
    batch: lambda handle, after: handle.results(after),
    schedule: lambda handle, after: handle.results(after),
}
LISTED_STATES: dict[Make, tuple[State, State]] = {
    turn: (State.RUNNING, State.ENDED),
    session: (State.OPEN, State.CLOSED),
    batch: (State.RUNNING, State.CANCELLED),
    schedule: (State.ACTIVE, State.PAUSED),
}
CODES: dict[Make, str | None] = {
    turn: "TURN_CANCELLED",
    session: "SESSION_CLOSED",
    batch: "TASK_NOT_STARTED",
    schedule: None,
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


async def listed(client: AgentClient, make: Make, id: str, state: State) -> Entry:
    """The entry in the list, once it has this state."""
    async with asyncio.timeout(GONE_S):
        while True:
            page = await LISTED[make](client, id).page()
            for entry in page.entries:
                if (entry.id, entry.state) == (id, state):
                    return entry  # type: ignore[no-any-return]
            await asyncio.sleep(0.1)


async def read(make: Make, handle: Handle[Status], after: str | None = None) -> list[Any]:
    """What is read after a cursor until nothing more comes."""
    found, reading = [], READ[make](handle, after)
    with contextlib.suppress(TimeoutError, StopAsyncIteration):
        while True:
            found.append(await asyncio.wait_for(anext(reading), QUIET_S))
    return found


async def refused(call: Awaitable[Any]) -> type[BaseException]:
    """The class of the error of a call."""
    with pytest.raises(errors.PerdureError) as caught:
        await asyncio.wait_for(call, GONE_S)
    return caught.type


@pytest.mark.accepts("E166")
class TestHandle:
    """What all of them have in common."""

    @pytest.mark.slow
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
        assert running.state in (State.RUNNING, State.ACTIVE)
        assert (ended.state, same.state) == (IDLE[make], IDLE[make])
        assert (limit_of(ended), same.spent) == (10**6 + 7, ended.spent)
        assert repr(handle.id) in repr(handle)

    @pytest.mark.table(1)
    async def test_is_cancelled_once(self, tell: Tell, make: Make) -> None:
        """Its turn ends, and there is nothing to cancel afterwards."""
        story = await tell(asks(use("charge", "one", takes_s=60)), says("late"))
        handle = await begun(story, make)
        was_running = await handle.cancel("wrong customer", by=BO)
        ended = await asyncio.wait_for(handle.wait(), GONE_S)
        is_running = await handle.cancel("again")

        assert (was_running, is_running, ended.state) == (True, False, CANCELLED[make])
        assert [entry.what for entry in story.journal()] == ["one"]

    @pytest.mark.table(1)
    @pytest.mark.accepts("E171")
    async def test_entry_of_a_list_says_the_same_of_each(self, tell: Tell, make: Make) -> None:
        """While its turn runs, and when it was cancelled: Python, JSON and status agree."""
        story = await tell(asks(use("charge", "one", takes_s=60)), says("late"))
        handle = await begun(story, make)
        running, cancelled = LISTED_STATES[make]
        before = await listed(story.client, make, handle.id, running)
        await handle.cancel("wrong customer", by=BO)
        status = await asyncio.wait_for(handle.wait(), GONE_S)
        after = await listed(story.client, make, handle.id, cancelled)
        code = after.error.code if after.error else None

        assert after.state is not None
        assert (before.agent, before.ended_at, before.error) == (AGENT, None, None)
        assert (after.agent, after.started_at, code) == (AGENT, before.started_at, CODES[make])
        assert (after.ended_at is None) == (make is schedule)
        assert (after.state, after.state.is_over) == (status.state, make is not schedule)
        assert json.loads(after.model_dump_json()).keys() >= CORE  # type: ignore[attr-defined]

    @pytest.mark.slow
    @pytest.mark.accepts("E172")
    async def test_what_happened_is_read_on_after_a_kill(self, tell: Tell, make: Make) -> None:
        """By `events` or `results`: each once, in the same order, after any cursor."""
        story = await tell(asks(use("fetch", "one", first_s=60)), says("done"))
        handle = await begun(story, make)
        await story.replace(story.workers[0])
        await asyncio.wait_for(handle.wait(), GONE_S)
        found = await read(make, handle)
        after = await read(make, handle, found[0].cursor)
        other = READ[make](REACH[make](story.client, new_id("unknown")), None)

        assert found
        assert after == found[1:]
        assert len({item.cursor for item in found}) == len(found)
        with pytest.raises(MISSING[make]):
            await anext(other)
        with pytest.raises(errors.InvalidRequestError, match="is not a cursor"):
            await anext(READ[make](handle, "bad"))

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
