"""Ids of another kind: no handle does anything with them."""

import asyncio
import secrets
from typing import Any

import pytest
from temporalio.client import Schedule, ScheduleActionStartWorkflow, ScheduleSpec, ScheduleState

from perdure import Budget, errors
from perdure.clients import AgentClient, Status
from perdure.testing import ScriptedModel, says

from ...conftest import Runtime
from ...support.conversing import session_of
from ...support.spending import SOON_S, Held, app
from ...support.verbs import MISSING, READS, WRITES, Verb, end_of, handles


async def schedule_of_others(client: AgentClient) -> str:
    """The id of a schedule that starts a workflow of another program; it is paused."""
    action = ScheduleActionStartWorkflow("Theirs", id="theirs", task_queue="theirs")
    state = ScheduleState(paused=True)
    made = Schedule(action=action, spec=ScheduleSpec(), state=state)
    handle = await client.temporal.create_schedule(f"theirs-{secrets.token_hex(4)}", made)
    return handle.id


@pytest.mark.slow
@pytest.mark.accepts("E165")
async def test_no_verb_of_a_handle_takes_the_id_of_another_kind(runtime: Runtime) -> None:
    """Each raises the error of one that is not there, while what has the id goes on unchanged."""
    model = Held(*[says("done")] * 3)
    model.let_go.set()
    name = secrets.token_hex(4)
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        await (await session.say("hello")).result()
        model.let_go.clear()
        turn = await client.start("spender", "go", budget=Budget(tool_calls=5))
        batch = await client.start_batch(f"batch-{name}", "spender", ["go"])
        theirs = await schedule_of_others(client)
        known: dict[str, Any] = {"turn": turn, "session": session, "batch": batch}
        before: list[Status] = [await turn.status(), await session.status()]
        rows = [
            (kind, one.id)
            for kind in ("turn", "session", "batch", "schedule")
            for its, one in known.items()
            if kind != its
        ]
        expected: dict[tuple[str, str, str], type[errors.PerdureError]] = {}
        ends: dict[tuple[str, str, str], type[BaseException] | None] = {}
        for kind, id in [*rows, ("schedule", theirs)]:
            handle = handles(client, dict.fromkeys(MISSING, id))[kind]
            verbs: dict[str, Verb] = {
                **READS[kind],
                **WRITES[kind],
                "check": lambda handle: handle.check(),
            }
            for verb, call in verbs.items():
                if (kind, verb) == ("schedule", "turns"):
                    continue  # a list, which is empty
                expected[kind, verb, id] = MISSING[kind]
                ends[kind, verb, id] = await end_of(call(handle))
        after: list[Status] = [await turn.status(), await session.status()]
        for one in known.values():
            await one.check()
        is_running = (await batch.status()).ended_at is None
        model.let_go.set()
        await turn.result()
        await batch.wait()
        await client.temporal.get_schedule_handle(theirs).delete()

    assert {row: end for row, end in ends.items() if end != expected[row]} == {}
    assert len(ends) > 60
    assert is_running
    assert [(one.state, one.budget) for one in after] == [(one.state, one.budget) for one in before]


@pytest.mark.accepts("E165")
async def test_wait_for_a_batch_refuses_the_id_of_a_running_turn(runtime: Runtime) -> None:
    """At once, and not when the turn is over."""
    model = Held(says("done"))
    async with runtime(app(), model=model) as client:
        turn = await client.start("spender", "go")
        with pytest.raises(errors.BatchNotFoundError, match="AgentTurn, not a batch"):
            await asyncio.wait_for(client.batch(turn.id).wait(), SOON_S)
        is_over = (await turn.status()).ended_at is not None
        model.let_go.set()
        await turn.result()

    assert not is_over


@pytest.mark.accepts("E165")
async def test_session_changes_nothing_of_a_turn(runtime: Runtime) -> None:
    """Turns have updates of the same names."""
    model = Held(says("done"))
    async with runtime(app(), model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(tool_calls=5))
        session = client.session(turn.id)
        for verb in (
            session.add_budget(Budget(tool_calls=2)),
            session.resume(),
            session.close(),
            session.interrupt(),
            session.unqueue("m-1"),
        ):
            with pytest.raises(errors.SessionNotFoundError, match="AgentTurn, not a session"):
                await verb
        with pytest.raises(errors.SessionNotFoundError, match="AgentTurn, not a session"):
            await session.say("hello")
        left = (await turn.status()).budget
        model.let_go.set()
        await turn.result()
        with pytest.raises(errors.SessionNotFoundError, match="AgentTurn, not a session"):
            await session.say("hello")

    assert left is not None
    assert left.tool_calls == 5


@pytest.mark.slow
@pytest.mark.accepts("E165")
async def test_events_of_a_session_refuse_the_cursor_of_another_workflow(runtime: Runtime) -> None:
    """Of a turn and of another session as stale; a session that does not exist is not found."""
    model = ScriptedModel(says("one"), says("two"), says("three"))
    async with runtime(app(), model=model) as client:
        session, other = session_of(client), session_of(client)
        turn = await client.start("spender", "go")
        await turn.result()
        for one in (session, other):
            await (await one.say("hello")).result()
            await one.close()
        own = [event.cursor async for event in session.events()]
        theirs = [event.cursor async for event in other.events()]
        of_turn = [event.cursor async for event in turn.events()]
        rest = [event.cursor async for event in session.events(after=own[0])]
        for cursor in (theirs[0], of_turn[0]):
            with pytest.raises(errors.StaleCursorError, match="belongs to another session"):
                await anext(session.events(after=cursor))
        with pytest.raises(errors.SessionNotFoundError, match="AgentTurn, not a session"):
            await anext(client.session(turn.id).events(after=of_turn[0]))
        with pytest.raises(errors.SessionNotFoundError):
            await anext(session_of(client).events(after=own[0]))

    assert rest == own[1:]
