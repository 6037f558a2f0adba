"""Schedules on a real server: what they start, what their turns are told, and what happens when
turns overlap, fail, or are missed.

The server would wait a minute for the next time of a cron expression, so most tests use a backfill,
which runs times of the past like those of the schedule, or start turns by hand.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.operatorservice.v1 import RemoveSearchAttributesRequest
from temporalio.client import (
    ScheduleIntervalSpec,
    ScheduleSpec,
)
from temporalio.converter import DataConverter, ExternalStorage

from perdure import Budget, Outcome, RequestOptions, Task, errors, limits
from perdure.clients import AgentClient
from perdure.clients.schedules.definition import turn_id_of
from perdure.clients.schedules.stored import definition_of, schedule_of
from perdure.temporal import schedule_updates, search_attributes
from perdure.testing import Runtime as PlainRuntime
from perdure.testing import ScriptedModel, fails, says
from perdure.turn.facts import TurnStarted
from perdure.values.messages import UserMessage
from perdure.values.states import State
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support import encrypting
from ...support.listing import bare_server, eventually_listed
from ...support.long_turns import bulky, reader, runs_of
from ...support.scheduling import (
    BERLIN,
    DAILY,
    REPORTER,
    at,
    entry_when,
    every_second,
    existing,
    new_id,
    status_when,
    turns_of,
)
from ...support.spending import PRICE, Held, app, ended, usage
from ...support.storage import Folder

MONDAYS: dict[str, Any] = {"cron": "30 6 * * MON", "timezone": "America/New_York"}


def told(model: ScriptedModel) -> list[str]:
    """The first message of each request."""
    firsts = [request.messages[0] for request in model.requests]
    return [first.text for first in firsts if isinstance(first, UserMessage)]


@pytest.mark.accepts("E8", "E62")
async def test_turns_know_their_slots_over_the_change_to_summer_time(runtime: Runtime) -> None:
    """Each local time comes once, and the first request has it; what has run is not run again."""
    model = ScriptedModel(*[says(f"report {number}") for number in range(5)])
    async with runtime(REPORTER, model=model) as client:
        daily = await client.create_schedule(
            new_id("summer"), REPORTER, "Write.", **DAILY, context={"who": "Jo"}, labels={"a": "b"}
        )
        slots = await daily.backfill(at(27), at(31, hour=7))
        turns = await turns_of(client, daily, slots)
        reports = [await turn.result() for turn in turns]
        again = await daily.backfill(at(26, hour=8), at(31, hour=8))
        started = [fact async for fact in turns[0].events() if isinstance(fact.fact, TurnStarted)]
        listed = [entry async for entry in client.turns(schedule=daily.id, labels={"a": "b"})]

    assert slots == tuple(at(day, hour=7) for day in range(27, 32))
    assert [turn.id for turn in turns[1:4]] == [
        f"{daily.id}-2026-03-28T06:00:00Z",
        f"{daily.id}-2026-03-29T05:00:00Z",
        f"{daily.id}-2026-03-30T05:00:00Z",
    ]
    assert again == ()
    assert told(model) == [
        f"<who>\nJo\n</who>\n\n<schedule>\nScheduled for {day}, 2026-03-{date} 07:00 Europe/Berlin"
        f" (UTC+0{offset}:00).\n</schedule>\n\nWrite."
        for day, date, offset in [
            *[("Friday", 27, 1), ("Saturday", 28, 1)],
            *[("Sunday", 29, 2), ("Monday", 30, 2), ("Tuesday", 31, 2)],
        ]
    ]
    assert [report.output for report in reports] == [f"report {number}" for number in range(5)]
    assert reports[2].messages[0] == model.requests[2].messages[0]
    assert isinstance(started[0].fact, TurnStarted)
    assert started[0].fact.slot is not None
    assert started[0].fact.slot.at == slots[0]
    assert started[0].public()["schedule"] == {"id": daily.id, "at": "2026-03-27T06:00:00Z"}
    assert {entry.id for entry in listed} <= {turn.id for turn in turns}


@pytest.mark.slow
@pytest.mark.accepts("E62")
@pytest.mark.parametrize(
    ("month", "days", "expected"),
    [
        (3, (28, 31), ["2026-03-28T02:30+01:00", "2026-03-30T02:30+02:00"]),
        (
            10,
            (24, 27),
            ["2026-10-24T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-26T02:30+01:00"],
        ),
    ],
    ids=["forward", "back"],
)
async def test_time_in_the_hour_of_the_change_is_skipped_or_runs_once(
    runtime: Runtime, month: int, days: tuple[int, int], expected: list[str]
) -> None:
    """A time that does not exist has no turn; of one that exists twice, the second one counts."""
    model = ScriptedModel(*[says("done")] * len(expected))
    async with runtime(REPORTER, model=model) as client:
        nightly = await client.create_schedule(
            new_id("change"), "reporter", "Go.", cron="30 2 * * *", timezone="Europe/Berlin"
        )
        slots = await nightly.backfill(*(at(day, month=month) for day in days), at_once=True)
        for turn in await turns_of(client, nightly, slots):
            await turn.result()

    assert [slot.isoformat(timespec="minutes") for slot in slots] == expected
    assert len(model.requests) == len(expected)


@pytest.mark.slow
@pytest.mark.accepts("E62")
async def test_jitter_moves_turns_and_not_their_slots(runtime: Runtime) -> None:
    """The slots of a backfill are those of the cron expression, and all of them run."""
    model = ScriptedModel(*[says("done")] * 8)
    async with runtime(REPORTER, model=model) as client:
        often = await client.create_schedule(
            new_id("jitter"),
            "reporter",
            "Go.",
            cron="*/5 * * * *",
            timezone="UTC",
            jitter=timedelta(minutes=30),
        )
        first = datetime(2026, 3, 2, tzinfo=UTC)
        slots = await often.backfill(first, first + timedelta(minutes=38), at_once=True)
        turns = await turns_of(client, often, slots)
        for turn in turns:
            await turn.result()
        following = (await often.status()).next

    wanted = [first + timedelta(minutes=5 * number) for number in range(8)]
    assert list(slots) in (wanted, wanted[:-1])  # the last may be after the range
    assert {slot.minute % 5 for slot in slots} == {0}
    assert any(slot.second for slot in following)


@pytest.mark.accepts("E60")
async def test_same_definition_is_the_same_schedule_and_another_one_is_a_conflict(
    runtime: Runtime,
) -> None:
    """The error names what differs and how to change it; nothing is changed."""
    async with runtime(REPORTER, model=ScriptedModel()) as client:
        name = new_id("same")
        wanted: dict[str, Any] = {
            **DAILY,
            "budget": Budget(usd="0.5"),
            "labels": {"b": "1", "a": "2"},
            "context": {"who": "Jo"},
            "options": RequestOptions(temperature=0.5),
            "allowed_tools": [],
            "output": int,
            "starts": at(1, month=12),
            "ends": datetime(2026, 12, 24, tzinfo=UTC),
            "jitter": timedelta(seconds=90.5),
            "catch_up": timedelta(minutes=5),
            "on_failure": "pause",
            "if_running": "cancel",
            "priority": 2,
        }
        made = await client.create_schedule(name, REPORTER, "Write.", **wanted)
        again = await client.create_schedule(
            name, "reporter", Task(content="Write."), **{**wanted, "cron": " 0  7 * * *"}
        )
        other = {
            **wanted,
            "labels": {"a": "2"},
            "timezone": "UTC",
            "output": None,
            "catch_up": limits.CATCH_UP,
        }
        with pytest.raises(errors.ScheduleConflictError) as raised:
            await client.create_schedule(name, "reporter", "Write!", **other)
        status = await made.status()

    assert (made.id, again.id) == (name, name)
    assert raised.value.context["differs"] == ["labels", "task", "timezone", "catch_up", "output"]
    assert "Schedule.change" in raised.value.message
    told_of = status.model_dump(include=set(wanted))
    assert told_of == {name: value for name, value in wanted.items() if name in told_of} | {
        "budget": Budget(usd="0.5").model_dump()
    }


@pytest.mark.slow
@pytest.mark.accepts("E63")
async def test_turn_that_is_started_by_hand_says_so(runtime: Runtime) -> None:
    """Also while the schedule is paused; two in one second are two turns."""
    model = ScriptedModel(*[says("done")] * 2)
    async with runtime(REPORTER, model=model) as client:
        weekly = await client.create_schedule(
            new_id("hand"), "reporter", "Go.", **MONDAYS, if_running="allow"
        )
        await weekly.pause("for a test")
        ids = {await weekly.run_now(), await weekly.run_now()}
        for turn_id in ids:
            await client.turn(turn_id).result()
        status = await weekly.status()

    assert len(ids) == 2
    assert all(
        text.startswith("<schedule>\nStarted by hand, outside its schedule, on ")
        and "America/New_York (UTC-0" in text
        for text in told(model)
    )
    assert {turn.id for turn in status.last if turn.is_by_hand} == ids
    assert (status.is_paused, status.reason, status.next) == (True, "for a test", ())


@pytest.mark.accepts("E64", "E63")
async def test_running_turn_is_left_alone_queued_behind_cancelled_or_joined(
    runtime: Runtime,
) -> None:
    """One schedule, whose policy is changed while its turns run."""
    model = Held(*[says(f"answer {number}") for number in range(5)])
    async with runtime(REPORTER, model=model) as client:
        often = await client.create_schedule(new_id("overlap"), "reporter", "Go.", **DAILY)
        first = await existing(client, await often.run_now())
        with pytest.raises(errors.ScheduleBusyError, match=first.id):
            await often.run_now()
        # as at a time of the schedule, without a look at what runs
        await client.temporal.get_schedule_handle(often.id).trigger()
        skipped = await status_when(often, "skipped", 1)
        await often.change(if_running="queue")
        queued = await often.run_now()
        with pytest.raises(errors.ScheduleBusyError):
            await often.run_now()
        with pytest.raises(errors.TurnNotFoundError):
            await client.turn(queued).status()
        model.let_go.set()
        second = await existing(client, queued)
        reports = [await first.result(), await second.result()]
        model.let_go.clear()
        await often.change(if_running="cancel")
        third = await existing(client, await often.run_now())
        fourth = await existing(client, await often.run_now())
        cancelled = await ended(third)
        await often.change(if_running="allow")
        fifth = await existing(client, await often.run_now())
        running = (await often.status()).running
        model.let_go.set()
        reports += [await fourth.result(), await fifth.result()]

    assert skipped.last[0].id == first.id
    assert reports[1].turn_id == queued
    assert isinstance(cancelled, errors.TurnCancelledError)
    assert cancelled.report is not None
    assert cancelled.report.outcome is Outcome.CANCELLED
    assert running == (fourth.id,)
    assert [report.outcome for report in reports] == [Outcome.COMPLETED] * 4


@pytest.mark.accepts("E65")
async def test_turn_gets_the_output_of_the_last_one_that_completed(runtime: Runtime) -> None:
    """Also after one that failed; a long one is clipped. Without `remember_last` there is none."""
    model = ScriptedModel(
        says("first"),
        fails(errors.LLMRefusedError("no")),
        says("é" * 20_000),
        says("fourth"),
        says("fifth"),
    )
    async with runtime(REPORTER, model=model) as client:
        daily = await client.create_schedule(
            new_id("last"), "reporter", "Go on.", **DAILY, remember_last=True
        )
        slots = await daily.backfill(at(2), at(6))
        for turn in await turns_of(client, daily, slots):
            await ended(turn)
        await daily.change(remember_last=False)
        await client.turn(await daily.run_now()).result()

    _, second, third, fourth, fifth = (
        text.partition("<last_output>\n")[2].partition("\n</last_output>")[0]
        for text in told(model)
    )
    assert [second, third, fifth] == ["first", "first", ""]
    assert fourth.startswith("é" * 8_000)
    assert fourth.endswith("bytes]")
    assert len(fourth.encode()) <= limits.LAST_OUTPUT_BYTES
    assert "</schedule>\n\n<last_output>" in told(model)[1]


@pytest.mark.accepts("E66", "E71")
async def test_schedule_pauses_after_a_turn_that_spent_its_budget(runtime: Runtime) -> None:
    """The times come by the server's clock here. The reason names the turn."""
    model = ScriptedModel(*[says("expensive", usage=usage(300))] * 3)
    async with runtime(app(REPORTER), model=model) as client:
        name = new_id("fails")
        often = await client.create_schedule(
            name,
            "reporter",
            "Go.",
            cron="* * * * *",
            timezone="UTC",
            on_failure="pause",
            budget=Budget(usd="0.01"),
            catch_up=timedelta(seconds=10),
        )
        await every_second(client.temporal, name)
        entry = await entry_when(client, name, paused=True)
        listed = [one.outcome async for one in often.turns()]
        with pytest.raises(errors.ScheduleConflictError, match="was changed by another program"):
            await often.status()
        with pytest.raises(errors.ScheduleConflictError):
            await often.change(task="Other.")
        await often.delete()

    assert set(listed) <= {None, Outcome.BUDGET_EXHAUSTED}
    assert entry.reason.startswith("paused due to workflow failure")
    assert f"{name}-20" in entry.reason
    assert entry.error is not None
    assert entry.error.code == "SCHEDULE_CONFLICT"
    assert (entry.agent, entry.task, entry.cron) == ("reporter", "Go.", "")


@pytest.mark.slow
@pytest.mark.accepts("E8", "E66")
async def test_time_of_the_schedule_comes_by_the_clock(runtime: Runtime) -> None:
    """Within a minute; the turn fails, and the schedule pauses."""
    model = ScriptedModel(fails(errors.LLMRefusedError("no")))
    async with runtime(REPORTER, model=model) as client:
        often = await client.create_schedule(
            new_id("clock"), REPORTER, "Go.", cron="* * * * *", timezone="UTC", on_failure="pause"
        )
        due = (await often.status()).next[0]
        async with asyncio.timeout(90):
            entry = None
            while entry is None or not entry.is_paused:
                await asyncio.sleep(0.5)
                entry = await often.status()
        turn = client.turn(turn_id_of(often.id, due))
        await ended(turn)
        await often.resume()
        resumed = await often.status()
        await often.delete()

    assert turn.id in entry.reason
    assert (entry.last[0].id, entry.last[0].outcome) == (turn.id, Outcome.FAILED)
    assert not entry.last[0].is_by_hand
    assert f"Scheduled for {due:%A}, {due:%Y-%m-%d %H:%M} UTC (UTC+00:00)." in told(model)[0]
    assert (resumed.is_paused, resumed.reason) == (False, "")


@pytest.mark.accepts("E67", "E68", "P55")
async def test_schedule_says_what_it_does(runtime: Runtime) -> None:
    """Its definition, its next times in its zone, its last turns with outcome and cost; also in the
    list.
    """
    model = ScriptedModel(
        says("good", usage=usage(300)), fails(errors.LLMRefusedError("no")), says("x")
    )
    async with runtime(app(REPORTER), model=model) as client:
        daily = await client.create_schedule(new_id("says"), "reporter", "Write\nit.", **DAILY)
        slots = await daily.backfill(at(2), at(4))
        for turn in await turns_of(client, daily, slots):
            await ended(turn)
        status = await daily.status()
        await daily.pause("the source is down")
        paused = await entry_when(client, daily.id, paused=True)
        await daily.resume()
        resumed = await entry_when(client, daily.id, paused=False)
        found = client.schedule(daily.id)
        entries = [entry.id async for entry in found.turns(limit=1)]

    assert repr(found) == f"Schedule('{daily.id}')"
    assert (status.agent, status.task, status.cron) == ("reporter", "Write it.", "0 7 * * *")
    assert [time.utcoffset() for time in status.next] == [
        time.astimezone(BERLIN).utcoffset() for time in status.next
    ]
    assert {(time.hour, time.minute) for time in status.next} == {(7, 0)}
    assert len(status.next) == 10
    second, first = status.last
    assert [one.at for one in (first, second)] == list(slots)
    assert (first.state, first.outcome, first.spent) == (
        State.ENDED,
        Outcome.COMPLETED,
        PRICE.input * 300 / 10**6,
    )
    assert (second.outcome, second.spent) == (Outcome.FAILED, Decimal(0))
    assert (status.started, status.skipped, status.missed, status.running) == (2, 0, 0, ())
    assert (paused.reason, paused.next, resumed.reason) == ("the source is down", (), "")
    assert resumed.next[:1] == status.next[:1]
    assert len(entries) <= 1


@pytest.mark.accepts("E69")
async def test_deleted_schedule_leaves_its_turns_alone(runtime: Runtime) -> None:
    """A running one goes on; the schedule is unknown then, and its id is free."""
    model = Held(says("done"))
    async with runtime(REPORTER, model=model) as client:
        daily = await client.create_schedule(new_id("gone"), "reporter", "Go.", **DAILY)
        turn = client.turn(await daily.run_now())
        await daily.delete()
        for refused in (
            daily.status(),
            daily.pause(),
            daily.resume(),
            daily.run_now(),
            daily.change(task="Other."),
            daily.backfill(at(2), at(4)),
            daily.delete(),
            client.schedule(daily.id).status(),
        ):
            with pytest.raises(errors.ScheduleNotFoundError, match=daily.id):
                await refused
        model.let_go.set()
        report = await turn.result()
        another = await client.create_schedule(daily.id, "reporter", "Another.", **MONDAYS)
        await another.delete()

    assert report.output == "done"


@pytest.mark.accepts("E70")
async def test_change_keeps_what_it_does_not_name(runtime: Runtime) -> None:
    """A running turn is not affected; a change that is not valid changes nothing."""
    model = Held(says("before"), says('{"value": 7}'))
    async with runtime(REPORTER, model=model) as client:
        daily = await client.create_schedule(
            new_id("changed"),
            "reporter",
            "Write.",
            **DAILY,
            labels={"a": "1"},
            context={"who": "Jo"},
            budget=Budget(usd="1", model_calls=5),
            jitter=timedelta(seconds=2),
            if_running="allow",
        )
        running = client.turn(await daily.run_now())
        await daily.pause("kept")
        before = await daily.status()
        invalid: list[dict[str, Any]] = [
            {"cron": "0 25 * * *"},
            {"agent": ""},
            {"remember_last": True},
        ]
        for wrong in invalid:
            with pytest.raises(errors.InvalidRequestError):
                await daily.change(**{"task": "Other.", **wrong})
        with pytest.raises(TypeError, match="no option 'crom'; did you mean 'cron'"):
            await daily.change(crom="0 7 * * *")  # type: ignore[call-arg]
        unchanged = await daily.status()
        await daily.change(
            task="Count.",
            timezone="Asia/Kolkata",
            labels={"b": "2"},
            budget=Budget(model_calls=2),
            jitter=None,
            output=int,
        )
        after = await daily.status()
        turn = client.turn(await daily.run_now())
        model.let_go.set()
        old, new = await running.result(), await turn.result()

    assert unchanged == before.model_copy(update={"last": unchanged.last})
    assert after == before.model_copy(
        update={
            "task": "Count.",
            "timezone": "Asia/Kolkata",
            "labels": {"b": "2"},
            "budget": Budget(model_calls=2),
            "jitter": None,
            "created_at": after.created_at,
            "last": after.last,
            "log": after.log,
        }
    )
    assert [entry.verb for entry in after.log] == ["changed", "paused", "run"]
    assert (after.is_paused, after.reason) == (True, "kept")
    assert old.output == "before"
    assert new.output == 7
    text = told(model)[1]
    assert text.startswith("<who>\nJo\n</who>")
    assert text.endswith("Count.")
    assert "Asia/Kolkata (UTC+05:30)" in text


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "a schedule's id has 1 to 78 characters"),
    ({"id": "x" * 79}, "a schedule's id has 1 to 78 characters"),
    ({"id": "😀" * 70}, "at most 255 bytes"),
    ({"id": "it's"}, "printable characters only"),
    ({"id": "a\nb"}, "printable characters only"),
    ({"id": 7}, "id must be a string"),
    ({"agent": ""}, "agent"),
    ({"task": ""}, "the task is empty"),
    ({"task": "half \ud800"}, ""),
    ({"cron": "0 7 * *"}, "five"),
    ({"cron": "0 7 * * 9"}, "day of the week"),
    ({"cron": None}, "cron must be a string"),
    ({"timezone": "Berlin"}, "there is no time zone"),
    ({"timezone": None}, "timezone must be a string"),
    ({"if_running": "wait"}, "if_running must be"),
    ({"on_failure": "stop"}, "on_failure must be"),
    ({"remember_last": "yes"}, "remember_last must be"),
    ({"remember_last": True, "if_running": "allow"}, "one after another"),
    ({"on_failure": "pause", "if_running": "allow"}, "one after another"),
    ({"catch_up": timedelta(seconds=9)}, "catch_up must be a timedelta of 10 seconds"),
    ({"catch_up": 60}, "catch_up must be"),
    ({"jitter": timedelta()}, "jitter must be"),
    ({"starts": datetime(2026, 1, 1)}, "starts must be a datetime with a time zone"),
    ({"starts": "2026-01-01"}, "starts must be"),
    ({"starts": at(2), "ends": at(2)}, "not after its start"),
    ({"priority": 6}, "priority must be"),
    ({"context": {"schedule": "mine"}}, "a block 'schedule'"),
    ({"labels": ["a"]}, "labels"),
    ({"max_iterations": 0}, "max_iterations"),
]


@pytest.mark.accepts("E61")
async def test_mistake_is_refused_before_anything_exists(runtime: Runtime) -> None:
    """Typed, at once, with the argument; also a backfill and a pause."""
    async with runtime(REPORTER, model=ScriptedModel()) as client:
        name = new_id("refused")
        for given, said in REFUSED:
            wanted = {"id": name, "agent": "reporter", "task": "Go.", **DAILY, **given}
            with pytest.raises(errors.InvalidRequestError) as raised:
                await client.create_schedule(**wanted)
            assert said in raised.value.message, (given, raised.value.message)
            assert raised.value.message.isprintable()
        with pytest.raises(errors.TooLargeError):
            await client.create_schedule(name, "reporter", "x" * 2_000_000, **DAILY)
        with pytest.raises(errors.ScheduleNotFoundError):
            await client.schedule(name).status()
        daily = await client.create_schedule(name, "reporter", "Go.", **DAILY, remember_last=True)
        for call, said in (
            (daily.backfill(at(2), datetime(2026, 3, 4)), "end must be"),
            (daily.backfill(at(4), at(2)), "has 0 times"),
            (daily.backfill(at(2), at(2).replace(year=2200)), "a backfill has 1 to 500"),
            (daily.backfill(at(2), at(4), at_once=True), "cannot run at once"),
            (daily.pause("two\nlines"), "reason must be"),
        ):
            with pytest.raises(errors.InvalidRequestError) as raised:
                await call
            assert said in raised.value.message
        status = await daily.status()

    assert (status.started, status.is_paused) == (0, False)


@pytest.mark.accepts("E109")
async def test_changes_at_the_same_moment_do_not_undo_each_other(runtime: Runtime) -> None:
    """One of them takes place, and the others are refused typed; pauses are no conflict."""
    async with runtime(REPORTER, model=ScriptedModel()) as client:
        daily = await client.create_schedule(new_id("both"), "reporter", "Go.", **DAILY)
        others = [client.schedule(daily.id) for _ in range(5)]
        refused: list[errors.ScheduleConflictError] = []
        async with asyncio.timeout(60):
            while not refused:  # until two of them were not one after another
                tasks = [f"Task {secrets.token_hex(4)}." for _ in others]
                ends = await asyncio.gather(
                    *(one.change(task=task) for one, task in zip(others, tasks, strict=True)),
                    return_exceptions=True,
                )
                done = [task for task, end in zip(tasks, ends, strict=True) if end is None]
                refused = [end for end in ends if isinstance(end, errors.ScheduleConflictError)]
                assert len(done) + len(refused) == len(ends)
        status = await daily.status()
        stale = await daily._handle.describe()
        definition = await definition_of(client.temporal, daily.id, stale.raw_description)
        await asyncio.gather(daily.change(cron="0 8 * * *"), daily.pause("now"))
        late = replace(definition, updates=("mine",))
        made = schedule_of(client.temporal, late, None, stale.schedule.state)
        was_made = await schedule_updates.update(
            client.temporal, daily.id, stale.raw_description, made, "mine"
        )
        last = await daily.status()
        await daily.delete()

    assert status.task in done
    assert {str(end.context["differs"]) for end in refused} == {"['task']"}
    assert (was_made, last.cron, last.is_paused, last.reason) == (False, "0 8 * * *", True, "now")


@pytest.mark.slow
@pytest.mark.accepts("E71")
async def test_schedule_of_another_program_is_not_taken_for_one_of_turns(runtime: Runtime) -> None:
    """It is in no list, cannot be found, and its id is a conflict. One that starts turns can be run
    and deleted, but not described.
    """
    model = ScriptedModel(says("done"))
    async with runtime(REPORTER, model=model) as client:
        name = new_id("theirs")
        made = await client.create_schedule(name, "reporter", "Go.", **DAILY)
        handle = client.temporal.get_schedule_handle(name)
        theirs = (await handle.describe()).schedule
        await made.delete()
        theirs.action.workflow = "Theirs"  # type: ignore[attr-defined]
        await client.temporal.create_schedule(name, theirs)
        with pytest.raises(errors.ScheduleNotFoundError, match="no turns of Perdure"):
            await client.schedule(name).status()
        with pytest.raises(errors.ScheduleConflictError, match="choose another id"):
            await client.create_schedule(name, "reporter", "Go.", **DAILY)
        listed = [entry.id async for entry in client.schedules()]
        await handle.delete()
        theirs.action.workflow = "AgentTurn"  # type: ignore[attr-defined]
        theirs.action.args = [{"agent": "reporter", "task": "By hand."}]  # type: ignore[attr-defined]
        theirs.spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(days=3))])
        await client.temporal.create_schedule(name, theirs)
        by_hand = client.schedule(name)
        with pytest.raises(errors.ScheduleConflictError, match="was created by another program"):
            await by_hand.status()
        turn = client.turn(await by_hand.run_now())
        await turn.result()
        entry = await entry_when(client, name, paused=False)
        await by_hand.delete()

    assert name not in listed
    assert told(model) == ["By hand."]
    assert (entry.agent, entry.task) == ("reporter", "By hand.")


@pytest.mark.accepts("E72")
async def test_input_of_a_schedule_is_encrypted(
    perdure_runtime: PlainRuntime, perdure_server: str
) -> None:
    """A client without the key lists the schedule with an error; one with it reads all of it."""
    model, secret = ScriptedModel(says("out canary-1"), says("done")), "canary-1"
    async with perdure_runtime(
        REPORTER, model=model, data_converter=encrypting.converter
    ) as client:
        name = new_id("secret")
        daily = await client.create_schedule(
            name, "reporter", f"Write {secret}.", **DAILY, remember_last=True
        )
        slots = await daily.backfill(at(2), at(4))
        turns = await turns_of(client, daily, slots)
        reports = [await turn.result() for turn in turns]
        status = await daily.status()
        stored = await client.temporal.get_schedule_handle(name).describe()
        plain = await AgentClient.connect(perdure_server)
        without = plain.schedule(name)
        [entry] = [one async for one in plain.schedules() if one.id == name]
        with pytest.raises(errors.PayloadDecodeError):
            await without.status()
        with pytest.raises(errors.PayloadDecodeError):
            await without.change(task="Other.")
        await without.delete()

    assert status.task == "Write canary-1."
    assert secret.encode() not in stored.raw_description.SerializeToString()
    assert "<last_output>\nout canary-1\n</last_output>" in told(model)[1]
    assert reports[1].messages[0] == model.requests[1].messages[0]
    assert entry.error is not None
    assert (entry.error.code, entry.agent, entry.task) == ("PAYLOAD_DECODE", "", "")


@pytest.mark.slow
@pytest.mark.accepts("E72")
async def test_large_input_is_in_the_external_storage(
    perdure_runtime: PlainRuntime, tmp_path: Path
) -> None:
    """Each turn reads it from there, and so does a change."""
    model = ScriptedModel(*[says("done")] * 2)
    converter = replace(
        DataConverter.default, external_storage=ExternalStorage(drivers=[Folder(tmp_path)])
    )
    async with perdure_runtime(REPORTER, model=model, data_converter=converter) as client:
        daily = await client.create_schedule(
            new_id("large"), "reporter", "x" * 1_000_000, **DAILY, history=()
        )
        await client.turn(await daily.run_now()).result()
        await daily.change(cron="0 8 * * *")
        await client.turn(await daily.run_now()).result()
        stored = await client.temporal.get_schedule_handle(daily.id).describe()

    assert [text.count("x") for text in told(model)] == [1_000_000] * 2
    assert len(stored.raw_description.SerializeToString()) < 20_000


@pytest.mark.slow
@pytest.mark.accepts("E62")
async def test_fork_of_a_turn_of_a_schedule_keeps_its_slot(runtime: Runtime) -> None:
    """It is a turn of its own: the schedule does not list it."""
    model = ScriptedModel(says("one"), says("two"))
    async with runtime(REPORTER, model=model) as client:
        daily = await client.create_schedule(new_id("forked"), "reporter", "Go.", **DAILY)
        [slot] = await daily.backfill(at(2), at(3))
        [turn] = await turns_of(client, daily, [slot])
        await turn.result()
        fork = await turn.fork(0)
        report = await fork.result()
        handle = client.temporal.get_workflow_handle(fork.id)
        attributes = (await handle.describe()).typed_search_attributes

    assert model.requests[1].messages == model.requests[0].messages
    assert "Scheduled for Monday, 2026-03-02 07:00" in told(model)[1]
    assert report.output == "two"
    assert not [pair for pair in attributes if pair.key.name.startswith("TemporalScheduled")]


@pytest.mark.slow
@pytest.mark.accepts("E68")
async def test_schedule_works_without_search_attributes() -> None:
    """In a namespace that never had them, and for a client from which they were taken away.

    The worker starts later: it asks for them once.
    """
    for types in ({}, search_attributes.TYPES):
        async with bare_server(search_attributes=types) as address:
            client = await AgentClient.connect(address)
            if types:
                await client.create_schedule(
                    "before", "reporter", "Go.", **DAILY, labels={"a": "b"}
                )
                request = RemoveSearchAttributesRequest(
                    namespace="default",
                    search_attributes=[search_attributes.LABELS.name, search_attributes.AGENT.name],
                )
                await client.temporal.operator_service.remove_search_attributes(request)
            model = ScriptedModel(says("done"))
            worker = AgentWorker(REPORTER, providers={"scripted": model})
            async with worker.running(client.temporal):
                daily = await client.create_schedule(
                    "daily", "reporter", "Go.", **DAILY, labels={"a": "b"}
                )
                turn_id = await daily.run_now()
                report = await client.turn(turn_id).result()
                await eventually_listed(client, [turn_id], schedule="daily")
                await daily.change(labels={"a": "c"})
                status = await daily.status()

        assert report.output == "done"
        assert (status.labels, status.last[0].id) == ({"a": "c"}, turn_id)


@pytest.mark.slow
@pytest.mark.accepts("E62", "E65", "E68", "E112")
async def test_turn_of_a_schedule_goes_on_in_a_new_run(runtime: Runtime) -> None:
    """It keeps its slot, the schedule knows its end and its cost, and the next turn its output."""
    model = ScriptedModel(*bulky(8), says("the end"), says("next"))
    async with runtime(reader(), model=model) as client:
        daily = await client.create_schedule(
            new_id("long"),
            "reader",
            "Go.",
            **DAILY,
            remember_last=True,
            total=Budget(tokens=10**9),
        )
        slots = await daily.backfill(at(2), at(4))
        turns = await turns_of(client, daily, slots)
        reports = [await turn.result() for turn in turns]
        runs = await runs_of(client, turns[0])
        status = await daily.status()
        handle = client.temporal.get_workflow_handle(turns[0].id)
        attributes = (await handle.describe()).typed_search_attributes

    assert len(runs) == 2
    assert status.spent.model_calls == sum(report.model_calls for report in reports)
    assert "Scheduled for Monday, 2026-03-02 07:00 Europe/Berlin" in told(model)[0]
    assert len(set(told(model)[:9])) == 1
    assert "<last_output>\nthe end\n</last_output>" in told(model)[9]
    assert [report.output for report in reports] == ["the end", "next"]
    assert [one.outcome for one in status.last] == [Outcome.COMPLETED] * 2
    assert attributes.get(search_attributes.SCHEDULE) == daily.id
