"""What a schedule has started, as it comes: each turn, batch or message once, with a cursor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Outcome, errors
from perdure.clients import BatchOf, Schedule, ScheduleResult, State
from perdure.clients.schedules.definition import turn_id_of
from perdure.clients.schedules.results import SchedulePosition
from perdure.clients.schedules.status import Start
from perdure.testing import FunctionModel, ModelRequest, Reply, ScriptedModel, fails, says
from perdure.values.answers import ModelAnswer

from ...conftest import Runtime
from ...support.scheduling import DAILY, REPORTER, SOON_S, at, existing, new_id
from ...support.spending import app

AT_THE_SAME_TIME: dict[str, Any] = {**DAILY, "if_running": "allow"}


class FirstWaits(ScriptedModel):
    """A model whose first answer comes when it is released."""

    def __init__(self, *replies: Reply | str) -> None:
        super().__init__(*replies)
        self.is_first = True
        self.let_go = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        is_first, self.is_first = self.is_first, False
        if is_first:
            await self.let_go.wait()
        return await super().complete(request)


def done(_: ModelRequest) -> Reply:
    """The same answer to each request."""
    return says("done")


async def first(
    schedule: Schedule, count: int, after: str | None = None, within_s: float = SOON_S
) -> list[ScheduleResult]:
    """The first results after a cursor, as many as `count`, or as there are within the time."""
    found: list[ScheduleResult] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s), contextlib.aclosing(schedule.results(after)) as ends:
            async for result in ends:
                found.append(result)
                if len(found) == count:
                    break
    return found


async def over(schedule: Schedule, count: int) -> None:
    """Wait until the schedule has started this many, and nothing of it runs."""
    async with asyncio.timeout(SOON_S):
        while (await schedule.status()).started < count or (await schedule.status()).running:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def ids(results: Sequence[ScheduleResult]) -> list[str]:
    """The ids of what is over."""
    return [result.id for result in results]


@pytest.mark.slow
@pytest.mark.accepts("E172")
async def test_results_come_once_and_are_read_on_after_any_of_them(runtime: Runtime) -> None:
    """Also those of turns that come later; each is an entry like that of a list."""
    async with runtime(app(REPORTER), model=FunctionModel(done)) as client:
        daily = await client.create_schedule(new_id("read"), REPORTER, "go", **DAILY)
        slots = await daily.backfill(at(2), at(5))
        before = await first(daily, 3)
        by_hand = await daily.run_now(by="Bo Berg")
        later = await first(daily, 4)
        cursors = [result.cursor for result in later[:-1]]
        after = [ids(await first(daily, 3 - place, one)) for place, one in enumerate(cursors)]
        nothing = await first(daily, 1, later[-1].cursor, within_s=3)
        await daily.delete()

    last = later[-1]
    assert ids(before) == [turn_id_of(daily.id, slot) for slot in slots]
    assert ids(later) == [*ids(before), by_hand]
    assert after == [ids(later)[place:] for place in (1, 2, 3)]
    assert nothing == []
    assert (last.agent, last.state, last.outcome, last.error, last.by) == (
        "reporter",
        State.ENDED,
        Outcome.COMPLETED,
        None,
        "Bo Berg",
    )
    assert last.ended_at is not None
    assert last.started_at <= last.ended_at


@pytest.mark.slow
@pytest.mark.accepts("E172")
async def test_results_that_the_server_has_forgotten_are_read_from_its_list(
    runtime: Runtime,
) -> None:
    """It remembers ten starts: a reader who comes back after more of them misses none."""
    async with runtime(app(REPORTER), model=FunctionModel(done)) as client:
        daily = await client.create_schedule(new_id("many"), REPORTER, "go", **DAILY)
        await daily.run_now()
        [known] = await first(daily, 1)
        slots = await daily.backfill(at(2), at(1, month=4), at_once=True)
        await over(daily, 1 + len(slots))
        found = await first(daily, len(slots), known.cursor)
        rest = await first(daily, len(slots) - 3, found[2].cursor)
        recent = await first(daily, 11, within_s=5)
        await daily.delete()

    assert len(slots) == 30
    assert sorted(ids(found)) == [turn_id_of(daily.id, slot) for slot in slots]
    assert sorted(ids(rest)) == sorted(ids(found)[3:])
    assert len(recent) == 10


@pytest.mark.slow
@pytest.mark.accepts("E172")
async def test_turns_side_by_side_come_in_the_order_of_their_ends(runtime: Runtime) -> None:
    """A cursor between the two has the one that goes on. A turn that failed has its code."""
    model = FirstWaits(says("second"), fails(errors.LLMAuthError("secret-text")))
    async with runtime(app(REPORTER), model=model) as client:
        schedule = await client.create_schedule(new_id("both"), REPORTER, "go", **AT_THE_SAME_TIME)
        long = await existing(client, await schedule.run_now())
        async with asyncio.timeout(SOON_S):
            while model.is_first:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        quick = await schedule.run_now()
        [ended] = await first(schedule, 1)
        waiting = await first(schedule, 1, ended.cursor, within_s=3)
        model.let_go.set()
        [failed] = await first(schedule, 1, ended.cursor)
        nothing = await first(schedule, 1, failed.cursor, within_s=3)
        await schedule.delete()

    assert (ended.id, failed.id) == (quick, long.id)
    assert (waiting, nothing) == ([], [])
    assert failed.error is not None
    assert (failed.outcome, failed.error.code) == (Outcome.FAILED, "LLM_AUTH")
    assert "secret-text" not in failed.model_dump_json()


@pytest.mark.slow
@pytest.mark.accepts("E172")
async def test_results_end_with_the_schedule_and_refuse_the_cursor_of_another_one(
    runtime: Runtime,
) -> None:
    """Also of one of the same id that was deleted; what is no cursor is refused."""
    async with runtime(app(REPORTER), model=FunctionModel(done)) as client:
        daily = await client.create_schedule(new_id("gone"), REPORTER, "go", **DAILY)
        await daily.run_now()
        [result] = await first(daily, 1)
        following = asyncio.create_task(first(daily, 2))
        await asyncio.sleep(1)
        await daily.delete()
        until_deleted = await asyncio.wait_for(following, SOON_S)
        with pytest.raises(errors.ScheduleNotFoundError):
            await first(daily, 1)
        again = await client.create_schedule(daily.id, REPORTER, "go", **DAILY)
        with pytest.raises(errors.StaleCursorError, match="was deleted"):
            await first(again, 1, result.cursor)
        known = SchedulePosition.of(result.cursor)
        foreign = [{"of-another-one": known.at}, {"2026-01-01": known.at}]
        for after in ("bad", *(known.model_copy(update={"open": one}).cursor() for one in foreign)):
            with pytest.raises(errors.InvalidRequestError, match="is not a cursor of the results"):
                await first(again, 1, after)
        await again.delete()

    assert ids(until_deleted) == [result.id]


@pytest.mark.slow
@pytest.mark.accepts("E172")
async def test_batches_and_messages_of_a_schedule_are_results(runtime: Runtime) -> None:
    """A batch when all of its tasks are, a message when the turn that read it is over, or when it
    was skipped or was never read.
    """
    async with runtime(app(REPORTER), model=FunctionModel(done)) as client:
        many = await client.create_schedule(
            new_id("batch"), REPORTER, batch=BatchOf(["one", "two"]), **DAILY
        )
        batch_id = await many.run_now()
        [batch] = await first(many, 1)
        session_id = new_id("talk")
        talk = await client.create_schedule(
            new_id("talk"), REPORTER, "go", session=session_id, **DAILY
        )
        message_id = await talk.run_now()
        [read] = await first(talk, 1)
        session = client.session(session_id)
        await session.cancel()
        await session.wait()
        refused_id = await talk.run_now()
        [refused] = await first(talk, 1, read.cursor)
        for schedule in (many, talk):
            await schedule.delete()

    assert (batch.id, batch.state, batch.agent, batch.error) == (
        batch_id,
        State.COMPLETED,
        "reporter",
        None,
    )
    assert batch.batch is not None
    assert batch.batch.done == 2
    assert (read.message, read.id, read.outcome) == (
        message_id,
        f"{session_id}/1",
        Outcome.COMPLETED,
    )
    assert (refused.message, refused.id) == (refused_id, "")
    assert refused.error is not None
    assert refused.error.code == errors.SessionClosedError.code


def test_position_stays_short() -> None:
    """Of many starts at once, a position has some open ones, and takes the others later."""
    starts = [Start(f"s-{number}", "", at(1, hour=number % 24)) for number in range(50)]
    position = SchedulePosition(created=at(1), at=at(1)).after(starts, 50)
    after = position.without("s-3").after(starts[20:], 50)

    assert (len(position.open), position.number, position.last) == (20, 20, "s-19")
    assert (len(after.open), after.number, after.last) == (20, 21, "s-20")
    assert len(position.cursor()) < 2_000
    assert SchedulePosition.of(position.cursor()) == position
