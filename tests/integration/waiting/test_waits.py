"""Calls that wait for a time: the turn itself waits, and what ends the wait is the result."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import Agent, AgentReport, Budget, Delegate, Observer, TurnInfo, errors, tool
from perdure.clients import Turn, TurnStatus
from perdure.events import WaitBegan, WaitEnded
from perdure.testing import ScriptedModel, call, calls, says, skip_time
from perdure.toolboxes import waiting
from perdure.values.messages import ToolOutcome, ToolResult
from perdure.values.states import State

from ...conftest import Runtime
from ...support.listing import entry_of
from ...support.long_turns import SHORT_TASK, begin, runs_of
from ...support.resets import reset, task_ends
from ...support.spending import SOON_S, ended, look, until
from ...support.waiting import memo_of
from ...support.web_ui import card_of

DAY = timedelta(days=1)
OWN_EVENTS = {
    EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_TIMER_FIRED,
    EventType.EVENT_TYPE_TIMER_CANCELED,
}


def waiter(**fields: Any) -> Agent:
    """An agent that waits, and looks."""
    given = {"name": "waiter", "model": "scripted:waiter", "tools": [look]}
    boxes = [waiting(longest=timedelta(days=40))]
    return Agent(**{**given, "toolboxes": boxes, "max_iterations": "unlimited", **fields})


def wait(seconds: Any = 3 * 24 * 3600, note: Any = "the build", **more: Any) -> Any:
    """A call that waits for three days."""
    return call("wait", seconds=seconds, note=note, **more)


def results(report: AgentReport) -> list[ToolResult]:
    """The results of all calls of a turn."""
    return [result for step in report.steps for result in step.results]


async def until_waiting(turn: Turn[Any]) -> TurnStatus:
    """The status of a turn once it, or a turn below it, waits."""
    async with asyncio.timeout(SOON_S):
        while True:
            status = await turn.status()
            if status.waits:
                return status
            await asyncio.sleep(0.1)


class Sees(Observer):
    """Records what a turn waited for."""

    def __init__(self) -> None:
        self.waits: list[tuple[str, str]] = []

    async def on_wait(self, turn: TurnInfo, kind: str, reason: str) -> None:
        self.waits.append((kind, reason))


@pytest.mark.accepts("W1", "W2")
async def test_turn_waits_for_days_and_shows_it_everywhere(runtime: Runtime) -> None:
    """Nothing runs meanwhile: a timer, two records, and one workflow task after it."""
    model, sees = ScriptedModel(calls(wait()), says("done")), Sees()
    async with runtime(waiter(observers=[sees]), model=model) as client:
        turn = await client.start("waiter", "go")
        began = (await until(turn, WaitBegan)).fact
        entry = await entry_of(client, turn.id, agent="waiter", state=State.WAITING)
        status, memo = await turn.status(), await memo_of(client, turn)
        card = await card_of(client.temporal, turn.id)
        early = await turn.wait(timeout=0.1)
        await skip_time(client, turn, 3 * DAY + timedelta(minutes=1))
        report = await turn.result()
        facts = [event.fact async for event in turn.events()]
        after = await memo_of(client, turn)

    assert isinstance(began, WaitBegan)
    assert (began.kind, began.reason) == ("timer", "the build")
    assert began.until is not None
    assert began.since is not None
    assert began.until - began.since == 3 * DAY
    [shown] = status.waits
    assert (status.state, shown.kind, shown.reason) == ("waiting", "timer", "the build")
    assert (shown.since, shown.until) == (began.since, began.until)
    assert status.doing == f"waits until {began.until:%Y-%m-%d %H:%M:%S} UTC: the build"
    assert early.state == "waiting"
    assert entry.waits_for == "timer"
    assert memo["perdure_waits_for"]["reason"] == "the build"
    assert "**Waits until" in card
    assert "the build" in card
    [result] = results(report)
    assert result.content == f"Waited 3 d, until {began.until:%Y-%m-%d %H:%M:%S} UTC."
    assert (result.outcome, report.tool_calls) == (ToolOutcome.DONE, 1)
    assert report.spent.tool_calls == 1
    assert report.duration > 3 * DAY
    assert [type(fact) for fact in facts if isinstance(fact, WaitBegan | WaitEnded)] == [
        WaitBegan,
        WaitEnded,
    ]
    assert "kind" not in (after["perdure_waits_for"] or {})
    assert sees.waits == [("timer", "the build")]


@pytest.mark.accepts("W3")
async def test_wait_has_six_events_in_history(runtime: Runtime) -> None:
    """And the three of the workflow task that goes on after it; no activity, and nothing polls."""
    model = ScriptedModel(calls(wait(0.2)), says("done"))
    async with runtime(waiter(), model=model) as client:
        turn = await client.start("waiter", "go")
        await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
    types = [event.event_type for event in history.events]
    scheduled = [
        place
        for place, kind in enumerate(types)
        if kind == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    model_calls = scheduled[-2:]
    between = types[model_calls[0] : model_calls[1]]
    own = [kind for kind in between if kind in OWN_EVENTS]
    # an activity and its workflow task are six of the others: the first model call
    tasks = [kind for kind in between if kind == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]

    assert len(own) <= 6, own
    assert len(between) - len(own) == 9
    assert len(tasks) == 2


INVALID = {
    "a thousand years": (wait(1000 * 365.25 * 24 * 3600), "the longest wait is 40 d"),
    "a number without end": (wait(10**400), "the longest wait is 40 d"),
    "a negative time": (wait(-1), "seconds is not more than 0"),
    "no time at all": (wait(0), "seconds is not more than 0"),
    "no number": (wait("soon"), "seconds is no number"),
    "true": (wait(True), "seconds is no number"),
    "neither": (wait(None), "give either seconds or until"),
    "both": (wait(5, until="2030-12-01T18:00:00Z"), "give either seconds or until"),
    "no date": (wait(None, until="tomorrow"), "until is no date with a time zone"),
    "no zone": (wait(None, until="2030-12-01T18:00:00"), "until is no date with a time zone"),
    "the end of the calendar": (
        wait(None, until="9999-12-31T23:59:59-12:00"),
        "until is no date with a time zone",
    ),
    "the past": (wait(None, until="2020-01-01T00:00:00Z"), "until is in the past: it is 20"),
    "an empty note": (wait(5, note="  "), "note is missing, or no text"),
    "no note": (call("wait", seconds=5), "note is missing, or no text"),
    "a long note": (wait(5, note="x" * 201), "note has more than 200 characters"),
    "an event without a name": (call("wait_for", note="x"), "event is missing, or no text"),
    "a timeout that is no number": (
        call("wait_for", event="built", timeout="1 h", note="x"),
        "timeout is no number",
    ),
}


@pytest.mark.accepts("W4")
async def test_wait_that_cannot_be_is_an_error_at_once(runtime: Runtime) -> None:
    """Each says what is wrong; nothing is waited for, and nothing is charged."""
    asked = [reply for reply, _ in INVALID.values()]
    model = ScriptedModel(calls(*asked), says("done"))
    async with runtime(waiter(parallel_tools=True), model=model) as client:
        turn = await client.start("waiter", "go", budget=Budget(tool_calls=1))
        report = await turn.result()
        facts = [event.fact async for event in turn.events()]

    found = dict(zip(INVALID, results(report), strict=True))
    for name, (_, message) in INVALID.items():
        assert found[name].is_error, name
        assert found[name].outcome is ToolOutcome.NOT_RUN
        assert f": nothing was waited for: {message}" in found[name].content, name
    assert report.spent.tool_calls == 0
    assert not any(isinstance(fact, WaitBegan) for fact in facts)


@pytest.mark.slow
async def test_wait_for_not_a_number_is_an_error(runtime: Runtime) -> None:
    """Some models write it, and JSON parsers read it."""
    asked = call("wait").model_copy(update={"arguments": '{"seconds": NaN, "note": "x"}'})
    torn = call("wait").model_copy(update={"arguments": '{"seconds": 5'})
    model = ScriptedModel(calls(asked, torn), says("done"))
    async with runtime(waiter(), model=model) as client:
        report = await client.run("waiter", "go")

    assert [result.content for result in results(report)] == [
        "wait: nothing was waited for: seconds is no number.",
        "wait: nothing was waited for: its arguments are no JSON.",
    ]


@pytest.mark.table(1)
@pytest.mark.accepts("W5")
@pytest.mark.parametrize("ends", ["fail", "finish", "pause"])
async def test_wait_longer_than_the_time_of_the_turn_is_refused(
    runtime: Runtime, ends: str
) -> None:
    """At once, whatever happens when the budget is spent; so is one beyond the deadline."""
    model = ScriptedModel(*[calls(wait(7200)), says("done")] * 2)
    async with runtime(waiter(on_exhausted=ends), model=model) as client:
        limited = await client.run("waiter", "go", budget=Budget(time=timedelta(hours=1)))
        dated = await client.run("waiter", "go", deadline=timedelta(hours=1))

    for report in (limited, dated):
        [result] = results(report)
        assert result.content.startswith("wait: nothing was waited for: 2 h is longer than the 5")
        assert report.output == "done"


@pytest.mark.accepts("W6")
async def test_message_ends_a_wait_early(runtime: Runtime) -> None:
    """Its result says so, and the model reads the message after it, as any other."""
    model = ScriptedModel(calls(wait()), says("done"))
    async with runtime(waiter(), model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        await turn.steer("Stop waiting.")
        report = await turn.result()

    [result] = results(report)
    assert re.match(r"Waited \d+ s of 3 d: the user has sent a message", result.content)
    assert [message.role for message in report.messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert report.unread == ()


@pytest.mark.accepts("W7")
async def test_cancel_ends_a_wait(runtime: Runtime) -> None:
    """The turn ends as it does in a tool, and waits for nothing afterwards."""
    model = ScriptedModel(calls(wait()), says("unused"))
    async with runtime(waiter(), model=model) as client:
        first = await client.start("waiter", "go")
        await until(first, WaitBegan)
        await first.cancel("enough")
        with pytest.raises(errors.TurnCancelledError, match="enough"):
            await first.result()
        status, memo = await first.status(), await memo_of(client, first)

    assert (status.state, status.waits) == ("ended", ())
    assert "perdure_waits_for" not in memo


@pytest.mark.accepts("W8")
async def test_waits_overlap_with_other_calls_of_an_answer(runtime: Runtime) -> None:
    """Of an agent with parallel tools; otherwise one follows the other, and each is a call."""
    model = ScriptedModel(
        calls(wait(2 * 24 * 3600, "two"), wait(24 * 3600, "one"), call("look")), says("done")
    )
    async with runtime(waiter(parallel_tools=True), model=model) as client:
        turn = await client.start("waiter", "go")
        began = (await until(turn, WaitBegan)).fact
        await skip_time(client, turn, DAY + timedelta(minutes=1))
        status = await turn.status()
        await skip_time(client, turn, DAY)
        report = await turn.result()
        ends = [event async for event in turn.events() if isinstance(event.fact, WaitEnded)]

    assert isinstance(began, WaitBegan)
    assert began.reason == "one (and 1 more)"
    assert [shown.reason for shown in status.waits] == ["two"]
    assert status.state == "waiting"
    contents = [result.content for result in results(report)]
    assert contents[0].startswith("Waited 2 d")
    assert contents[1].startswith("Waited 1 d")
    assert contents[2] == "seen 1"
    assert len(ends) == 2
    assert report.duration < 2 * DAY + timedelta(hours=1)


@pytest.mark.accepts("W9")
async def test_budget_added_while_a_turn_waits(runtime: Runtime) -> None:
    """It counts for what comes after the wait, which goes on."""
    model = ScriptedModel(calls(wait(3000)), calls(wait(7200)), says("done"))
    async with runtime(waiter(), model=model) as client:
        turn = await client.start("waiter", "go", budget=Budget(time=timedelta(hours=1)))
        await until(turn, WaitBegan)
        await turn.add_budget(Budget(time=timedelta(hours=3)))
        await skip_time(client, turn, timedelta(hours=3))
        report = await turn.result()

    first, second = [result.content for result in results(report)]
    assert first.startswith("Waited 50 min")  # or a second longer, on a busy machine
    assert second.startswith("Waited 2 h")


@pytest.mark.accepts("W10")
async def test_equal_waits_are_no_loop(runtime: Runtime) -> None:
    """An agent that looks again every 15 minutes does not repeat itself, with any `on_loop`."""
    again = calls(wait(900), call("look"))
    model = ScriptedModel(*[again] * 5, says("done"))
    async with runtime(waiter(parallel_tools=True), model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        await skip_time(client, turn, timedelta(hours=2))
        report = await turn.result()

    assert report.output == "done"
    assert not any("in a row" in result.content for result in results(report))


@pytest.mark.accepts("W11")
async def test_wait_goes_on_in_a_new_run(runtime: Runtime) -> None:
    """Its time goes on, and history says in each run what the turn waits for."""
    agent = waiter(parallel_tools=True)
    model = ScriptedModel(calls(wait()), says("done"))
    async with runtime(agent, model=model) as client:
        turn = await begin(client, "waiter", timeout=SHORT_TASK)
        began = (await until(turn, WaitBegan)).fact
        for number in range(100):
            await turn.emit("step", number)
            if len(await runs_of(client, turn)) > 1:
                break
        status = await turn.status()
        await skip_time(client, turn, 3 * DAY + timedelta(minutes=1))
        report = await turn.result()
        runs = await runs_of(client, turn)

    assert isinstance(began, WaitBegan)
    assert len(runs) > 1
    assert [(shown.kind, shown.until) for shown in status.waits] == [("timer", began.until)]
    [result] = results(report)
    assert result.content.startswith("Waited 3 d, until")
    assert report.spent.tool_calls == 1


@pytest.mark.accepts("W12")
async def test_turn_is_reset_into_a_wait(runtime: Runtime) -> None:
    """The new run waits for the rest of the time, and ends as the first would have."""
    model = ScriptedModel(calls(wait()), says("done"), says("done"))
    async with runtime(waiter(), model=model) as client:
        turn = await client.start("waiter", "go")
        began = (await until(turn, WaitBegan)).fact
        await skip_time(client, turn, 3 * DAY + timedelta(minutes=1))
        await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        started = next(
            event
            for event in history.events
            if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED
        )
        at = max(end for end in task_ends(history) if end < started.event_id)
        again = await reset(client, turn, at)
        report = await again.result()

    assert isinstance(began, WaitBegan)
    [result] = results(report)
    assert result.content.startswith("Waited 3 d, until")


@pytest.mark.accepts("W13")
async def test_turn_that_was_cancelled_in_a_wait_goes_on(runtime: Runtime) -> None:
    """Its call has a result that says that nothing came of it; the model may wait again."""
    model = ScriptedModel(calls(wait()), calls(wait(0.1)), says("done"))
    async with runtime(waiter(), model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        await turn.cancel("a break")
        await ended(turn)
        resumed = await turn.resume()
        report = await resumed.result()

    assert report.output == "done"
    assert results(report)[-1].content.startswith("Waited ")


@pytest.mark.accepts("W14")
async def test_delegate_waits_and_its_parent_with_it(runtime: Runtime) -> None:
    """The time counts for both, and a cancel of the parent ends the wait."""
    boss = Agent(name="boss", model="scripted:boss", delegates=[Delegate("waiter")])
    asked = call("delegate_to_agent", agent="waiter", task="wait")
    model = ScriptedModel(calls(asked), calls(wait()), says("unused"))
    async with runtime([boss, waiter()], model=model) as client:
        turn = await client.start("boss", "go")

        status = await until_waiting(turn)
        await turn.cancel("enough")
        end = await ended(turn)

    [shown] = status.waits
    assert shown.turn_id != turn.id
    assert isinstance(end, errors.TurnCancelledError)
    assert end.report is not None
    assert [child.outcome for child in end.report.children] == ["cancelled"]


@pytest.mark.accepts("W15")
async def test_wait_that_needs_approval(runtime: Runtime) -> None:
    """A person may edit its arguments; a denied one is not begun."""
    agent = waiter(approval="all")
    model = ScriptedModel(calls(wait(3600)), says("done"))
    async with runtime(agent, model=model) as client:
        turn = await client.start("waiter", "go")
        await until(turn, WaitBegan)
        [pending] = await turn.pending_approvals()
        await turn.approve(pending, arguments={"seconds": 0.1, "note": "short"})
        report = await turn.result()

    [result] = results(report)
    assert result.content.startswith("Waited ")
    assert "3600" in pending.arguments
    assert report.duration < timedelta(minutes=5)


def test_function_of_the_tool_is_for_a_turn_alone() -> None:
    """Called by itself it says so; the tools keep what they are under another name."""
    box = waiting(longest=DAY).prefixed("my_")
    waits = [(item.name, item.wait.action) for item in box.tools if item.wait]

    with pytest.raises(errors.ConfigurationError, match="only a turn can wait"):
        box.tools[0]()
    assert waits == [("my_wait", "wait"), ("my_wait_for", "wait_for")]
    assert [item.name for item in box.tools if item.needs_session] == [
        "my_remind",
        "my_reminders",
        "my_forget_reminder",
    ]
    with pytest.raises(errors.ConfigurationError, match="longest"):
        waiting(longest=timedelta())


async def test_tool_of_a_user_may_have_the_name(runtime: Runtime) -> None:
    """What a tool is follows from its definition, not from its name."""

    @tool(name="wait", read_only=True)
    def own(note: str) -> str:
        return f"own {note}"

    model = ScriptedModel(calls(call("wait", note="x")), says("done"))
    async with runtime(waiter(toolboxes=[], tools=[own]), model=model) as client:
        report = await client.run("waiter", "go")

    assert [result.content for result in results(report)] == ["own x"]
