"""Who approved, denied or added to a budget: recorded with the decision, and shown wherever the
decision is shown.
"""

import asyncio
import getpass
import io
import json
import logging
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from perdure import Agent, Budget, ModelRetryPolicy, errors, tool
from perdure.clients import AgentClient, State
from perdure.clients.cli.common import sender
from perdure.clients.cli.drawing.progress import Progress
from perdure.clients.cli.running.approvals import ApprovalOptions, decide
from perdure.clients.turns.updates import ask
from perdure.session.facts import (
    SessionBudgetAdded,
    SessionClosed,
    SessionResumed,
    TurnInterrupted,
)
from perdure.session.wire import SessionFork, SessionReason
from perdure.temporal import access
from perdure.temporal.names import (
    ADD_BUDGET,
    BATCH,
    CLOSE,
    DECIDE,
    INTERRUPT,
    MEMO_BATCH,
    RESUME,
)
from perdure.temporal.payloads import pack
from perdure.testing import ByTask, FunctionModel, ScriptedModel, call, calls, fails, says
from perdure.turn.facts import BudgetAdded, CancelRequested, Decided, Resumed, WaitBegan
from perdure.turn.wire import Resume
from perdure.values.approvals import Decision
from perdure.values.budgets import BudgetUpdate
from perdure.values.reports import ForkedFrom

from ...conftest import Runtime
from ...support.approving import pending
from ...support.long_turns import delete
from ...support.scheduling import entry_when, every_second
from ...support.spending import SOON_S, Held, until
from ...support.web_ui import card_of, rows_of

ANNA = "anna@example.com"


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


clerk = Agent(name="clerk", model="scripted:clerk", tools=[send])


@pytest.mark.accepts("A11")
async def test_decision_says_who_made_it_everywhere(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """One call approved with other arguments, one denied, one approved without a name: event,
    terminal, log, web UI and report agree.
    """
    caplog.set_level(logging.INFO, "perdure.turns")
    model = ScriptedModel(
        calls(*(call("send", to=name) for name in ("Ann", "Bob", "Cy"))), says("done")
    )
    out = io.StringIO()
    async with runtime(clerk, model=model) as client:
        turn = await client.start("clerk", "go")
        ann, bob, cy = await pending(turn, 3)
        await client.turn(turn.id).approve(
            ann.call_id, by=ANNA, arguments={"to": "Anne"}, reason="her name"
        )
        await turn.deny(bob, "Bob has moved", by="Bo Berg")
        card = await card_of(client.temporal, turn.id)
        await turn.approve(cy)
        report = await turn.result()
        events = [event async for event in turn.events()]
        rows = await rows_of(client.temporal, (await client.history(turn)).events)
    progress = Progress(out)
    for event in events:
        progress.show(event)
    decided = tuple(event.fact.decision for event in events if isinstance(event.fact, Decided))
    # a field that Perdure adds to the record
    lines = [getattr(record, "perdure") for record in caplog.records]  # noqa: B009
    told = {
        line["event_id"][-6:]: line.get("decided_by")
        for line in lines
        if line["event"] == "tool_call"
    }

    assert [(one.by, one.approve, one.reason) for one in decided] == [
        (ANNA, True, "her name"),
        ("Bo Berg", False, "Bob has moved"),
        (None, True, ""),
    ]
    assert report.steps[0].decisions == decided
    assert report.steps[1].decisions == ()
    shown = out.getvalue()
    assert (
        'call_1_1 approved by anna@example.com, with other arguments: {"to": "Anne"}: her name\n'
        in shown
    )
    assert "call_1_2 denied by Bo Berg: Bob has moved\n" in shown
    assert "call_1_3 approved\n" in shown
    assert told == {"call-1": ANNA, "call-2": "Bo Berg", "call-3": None}
    assert (
        f"Decided: send (call\\_1\\_1) approved by {ANNA}, with other arguments: her name" in card
    )
    assert 'step 1: {"to": "Anne"}, approved by anna@example.com' in rows


@pytest.mark.accepts("A12")
async def test_budget_that_was_added_says_who_added_it(runtime: Runtime) -> None:
    """In the event and in the terminal; without a name the event has none."""
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    out = io.StringIO()
    async with runtime(clerk, model=model) as client:
        turn = await client.start("clerk", "go", budget=Budget(tool_calls=5))
        [ann] = await pending(turn)
        await client.turn(turn.id).add_budget(Budget(tool_calls=2), by=ANNA)
        left = await turn.add_budget(Budget(tool_calls=1))
        await turn.approve(ann)
        await turn.result()
        events = [event async for event in turn.events()]
    progress = Progress(out)
    for event in events:
        progress.show(event)
    added = [event.fact for event in events if isinstance(event.fact, BudgetAdded)]

    assert left.tool_calls == 8
    assert added == [BudgetAdded(Budget(tool_calls=2), ANNA), BudgetAdded(Budget(tool_calls=1))]
    assert f"budget added by {ANNA}: 2 tool calls\n" in out.getvalue()


@pytest.mark.slow
@pytest.mark.accepts("A15")
async def test_cancel_and_resume_of_a_turn_say_who_asked(runtime: Runtime) -> None:
    """In the events and in the terminal; a turn that goes on as a new one says it there."""
    later = fails(errors.LLMRateLimitError("slow", context={"status": 429, "retry_after_s": 900}))
    model = ScriptedModel(later, calls(call("send", to="Ann")), says("done"))
    out = io.StringIO()
    async with runtime(replace(clerk, model_retry=ModelRetryPolicy()), model=model) as client:
        turn = await client.start("clerk", "go")
        await until(turn, WaitBegan)
        await turn.resume(by=ANNA)
        await pending(turn)
        await client.turn(turn.id).cancel("not now", by="Bo Berg")
        with pytest.raises(errors.TurnCancelledError, match="not now"):
            await turn.result()
        events = [event async for event in turn.events()]
        again = await turn.resume(by=ANNA, id=f"{turn.id}-again")
        same = await turn.resume(by="Bo Berg", id=again.id)
        report = await again.result()
        status = await same.status()
    progress = Progress(out)
    for event in events:
        progress.show(event)
    asked = [event.fact for event in events if isinstance(event.fact, Resumed | CancelRequested)]

    assert asked == [Resumed(ANNA), CancelRequested("not now", "Bo Berg")]
    assert f"resumed by {ANNA}\n" in out.getvalue()
    assert "cancel requested by Bo Berg: not now\n" in out.getvalue()
    assert report.forked_from is not None
    assert (report.forked_from.by, status.forked_from) == (ANNA, report.forked_from)


@pytest.mark.slow
@pytest.mark.accepts("A15")
async def test_requests_to_a_session_say_who_asked(runtime: Runtime) -> None:
    """To interrupt, resume, pay for and cancel it; without a name they have none."""
    model = Held(says("one"), says("two"))
    async with runtime(clerk, model=model) as client:
        session = client.session(
            f"named-{secrets.token_hex(4)}", "clerk", budget=Budget(tokens=10**6)
        )
        await (await session.say("go")).turn()
        await session.interrupt("wait", by=ANNA)
        await session.say("go on", by="Bo Berg")
        await session.resume(by="Bo Berg")
        await session.add_budget(Budget(tokens=5), by=ANNA)
        await session.add_budget(Budget(tokens=6))
        was_open = await session.cancel("wrong customer", by=ANNA)
        events = [event.fact async for event in session.events()]
        was_closed = await session.cancel()

    kinds = TurnInterrupted | SessionResumed | SessionBudgetAdded | SessionClosed
    assert [fact for fact in events if isinstance(fact, kinds)][:-1] == [
        TurnInterrupted("wait", ANNA),
        SessionResumed("Bo Berg"),
        SessionBudgetAdded(Budget(tokens=5), ANNA),
        SessionBudgetAdded(Budget(tokens=6)),
        SessionClosed("wrong customer", ANNA),
    ]
    assert (was_open, was_closed) == (True, False)


@pytest.mark.accepts("A15")
async def test_schedule_says_who_paused_it(runtime: Runtime) -> None:
    """Beside the reason, which is the same without a name."""
    async with runtime(clerk, model=ScriptedModel()) as client:
        schedule = await client.create_schedule(
            f"named-{secrets.token_hex(4)}", "clerk", "go", cron="0 3 1 1 *", timezone="UTC"
        )
        statuses = [await schedule.status()]
        for change in (
            schedule.pause("moving", by=ANNA),
            schedule.resume(by=ANNA),
            schedule.pause("moving"),
            schedule.cancel("two\nlines", by="Bo Berg"),
        ):
            await change
            statuses.append(await schedule.status())
        await schedule.delete()

    assert [(one.state, one.reason, one.by) for one in statuses] == [
        ("active", "", None),
        ("paused", "moving", ANNA),
        ("active", "", None),
        ("paused", "moving", None),
        ("paused", "two lines", "Bo Berg"),
    ]


@pytest.mark.slow
@pytest.mark.accepts("A16")
async def test_schedule_remembers_who_asked_for_what(runtime: Runtime) -> None:
    """The last ten requests with a name, the newest first. They are no part of the definition, and
    a change at the same moment is no conflict.
    """
    definition: dict[str, Any] = {
        "cron": "0 3 1 1 *",
        "timezone": "UTC",
        "total": Budget(tokens=10**6),
    }
    async with runtime(clerk, model=FunctionModel(lambda _: says("done"))) as client:
        id = f"logged-{secrets.token_hex(4)}"
        schedule = await client.create_schedule(id, "clerk", "go", **definition)
        await schedule.pause("moving", by=ANNA)
        await schedule.resume()
        turn_id = await schedule.run_now(by="Bo Berg")
        await client.turn(turn_id).result()
        await schedule.wait()
        await schedule.add_budget(Budget(tokens=5), by=ANNA)
        await schedule.cancel("two\nlines", by="Bo Berg")
        status = await schedule.status()
        more = {**definition, "total": Budget(tokens=10**6 + 5)}
        await client.create_schedule(id, "clerk", "go", **more)
        names = [f"{number}" for number in range(9)]
        await schedule.change(labels={"a": "b"})
        for name in names:
            await schedule.resume(by=name)
        changing = schedule.change(labels={"c": "d"})
        await asyncio.gather(changing, schedule.resume(by="9"), schedule.resume(by="10"))
        later = await schedule.status()
        year = datetime.now(UTC).year - 1
        january = (datetime(year, 1, 1, tzinfo=UTC), datetime(year, 1, 2, tzinfo=UTC))
        slots = await schedule.backfill(*january, by=ANNA)
        await schedule.backfill(*january, by="nobody")
        await schedule.change(cron="0 4 1 1 *", by="Bo Berg")
        last = await schedule.status()
        await schedule.delete()

    assert len(slots) == 1
    assert [(one.verb, one.by) for one in last.log[:3]] == [
        ("changed", "Bo Berg"),
        ("backfilled", ANNA),
        (later.log[0].verb, later.log[0].by),
    ]
    assert [(one.verb, one.by, one.reason, one.id) for one in status.log] == [
        ("cancelled", "Bo Berg", "two lines", ""),
        ("budget_added", ANNA, "", ""),
        ("run", "Bo Berg", "", turn_id),
        ("paused", ANNA, "moving", ""),
    ]
    assert [one.by for one in status.last] == ["Bo Berg"]
    assert [one.at for one in status.log] == sorted((one.at for one in status.log), reverse=True)
    assert {one.by for one in later.log[:2]} == {"9", "10"}
    assert [one.by for one in later.log[2:]] == names[:0:-1]
    assert (later.labels, later.total) == ({"c": "d"}, more["total"])


@pytest.mark.accepts("A16")
async def test_pause_that_cannot_be_recorded_is_made_all_the_same(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a schedule whose times another program has changed."""
    async with runtime(clerk, model=ScriptedModel()) as client:
        schedule = await client.create_schedule(
            f"logged-{secrets.token_hex(4)}", "clerk", "go", cron="0 3 1 1 *", timezone="UTC"
        )
        await every_second(client.temporal, schedule.id)
        with caplog.at_level(logging.WARNING, logger="perdure"):
            await schedule.pause("too often", by=ANNA)
        entry = await entry_when(client, schedule.id, paused=True)
        await schedule.delete()

    assert (entry.reason, entry.by) == ("too often", ANNA)
    assert "has no record of paused" in caplog.text


@pytest.mark.slow
@pytest.mark.accepts("A16")
async def test_fork_says_who_made_it(runtime: Runtime) -> None:
    """A fork of the fork has a name of its own, or none. The name is no part of what is asked."""
    async with runtime(clerk, model=FunctionModel(lambda _: says("done"))) as client:
        turn = await client.start("clerk", "go")
        await turn.result()
        fork = await turn.fork(0, by=ANNA)
        report = await fork.result()
        same = await turn.fork(0, id=fork.id, by="Bo Berg")
        again, unnamed = await fork.fork(0, by="Bo Berg"), await fork.fork(0)
        ends = [await one.result() for one in (again, unnamed)]
        status = await again.status()

    assert report.forked_from == ForkedFrom(turn_id=turn.id, step=0, by=ANNA)
    assert same.id == fork.id
    assert [end.forked_from.by for end in ends if end.forked_from] == ["Bo Berg", None]
    assert status.forked_from == ForkedFrom(turn_id=fork.id, step=0, by="Bo Berg")


@pytest.mark.slow
@pytest.mark.accepts("A16")
async def test_fork_of_a_session_says_who_made_it(runtime: Runtime) -> None:
    """Also a fork of the fork, and without a name; the session itself says nothing."""
    async with runtime(clerk, model=FunctionModel(lambda _: says("done"))) as client:
        id = f"named-{secrets.token_hex(4)}"
        session = client.session(id, "clerk")
        await (await session.say("go")).result()
        fork = await session.fork(id=f"{id}-a", by=ANNA)
        await (await fork.say("go on")).result()
        again = await fork.fork(1, id=f"{id}-b", by="Bo Berg")
        unnamed = await fork.fork(id=f"{id}-c")
        points = [(await one.status()).forked_from for one in (session, fork, again, unnamed)]
        for one in (session, fork, again, unnamed):
            await one.cancel()

    assert points == [
        None,
        SessionFork(session_id=session.id, at_turn=1, by=ANNA),
        SessionFork(session_id=fork.id, at_turn=1, by="Bo Berg"),
        SessionFork(session_id=fork.id, at_turn=2),
    ]


@pytest.mark.slow
@pytest.mark.accepts("A16")
async def test_batch_says_who_cancelled_it_and_who_ran_it_again(runtime: Runtime) -> None:
    """The name of a cancel is that of its round, and the name of a retry stays when it is over."""
    model = Held(says("one"), says("two"), says("three"))
    async with runtime(clerk, model=model) as client:
        batch = await client.start_batch(
            f"named-{secrets.token_hex(4)}", "clerk", ["a", "b"], at_once=1
        )
        running = await batch.status()
        await batch.cancel("wrong prompt", by=ANNA)
        cancelled = await batch.wait()
        model.let_go.set()
        await batch.retry(by="Bo Berg")
        done = await batch.wait()
        with pytest.raises(errors.InvalidRequestError, match="by must be one line"):
            await batch.retry(by="two\nlines")

    assert (running.by, running.retried_by) == (None, None)
    assert (cancelled.reason, cancelled.by, cancelled.retried_by) == ("wrong prompt", ANNA, None)
    assert (done.state, done.by, done.retried_by) == (State.COMPLETED, None, "Bo Berg")


@pytest.mark.accepts("A16")
async def test_batch_of_an_earlier_release_has_no_names(runtime: Runtime) -> None:
    """Its memo lacks the field; a cancel of Temporal's own has no name."""
    old = {"agent": "clerk", "items": 2, "at_once": 1, "rounds": [], "stop": "cancelled"}
    async with runtime(clerk, model=ScriptedModel()) as client:
        id = f"old-{secrets.token_hex(4)}"
        handle = await client.temporal.start_workflow(
            BATCH, id=id, task_queue=f"{id}-none", memo={MEMO_BATCH: old}
        )
        before = await client.batch(id).status()
        await handle.cancel()
        after = await client.batch(id).status()
        await handle.terminate()

    assert (before.by, before.retried_by, before.agent) == (None, None, "clerk")
    assert (after.by, after.retried_by) == (None, None)


@workflow.defn(name=BATCH, sandboxed=False)
class GoesOn:
    """A batch that goes on in a second run once it is cancelled, and stays there."""

    @workflow.run
    async def run(self) -> None:
        """Wait for the cancel."""
        if workflow.info().continued_run_id is None:
            try:
                await workflow.wait_condition(lambda: False)
            except asyncio.CancelledError:
                workflow.continue_as_new()
        await workflow.wait_condition(lambda: False)


@pytest.mark.slow
@pytest.mark.accepts("A16")
async def test_cancelled_batch_has_a_status_without_the_run_that_was_cancelled(
    runtime: Runtime,
) -> None:
    """The name is in the history of that run, and goes with it."""
    old = {"agent": "clerk", "items": 2, "at_once": 1, "rounds": [], "stop": "cancelled"}
    id = f"gone-{secrets.token_hex(4)}"
    async with (
        runtime(clerk, model=ScriptedModel()) as client,
        Worker(client.temporal, task_queue=id, workflows=[GoesOn]),
    ):
        handle = await client.temporal.start_workflow(
            BATCH, id=id, task_queue=id, memo={MEMO_BATCH: old}
        )
        await client.batch(id).cancel(by=ANNA)
        await until_it_goes_on(client.temporal, id, str(handle.first_execution_run_id))
        named = await client.batch(id).status()
        await delete(client, id, str(handle.first_execution_run_id))
        unnamed = await client.batch(id).status()
        await client.temporal.get_workflow_handle(handle.id).terminate()

    assert (named.by, unnamed.by) == (ANNA, None)
    assert unnamed == named.model_copy(update={"by": None})


async def until_it_goes_on(client: Client, id: str, run_id: str) -> None:
    """Wait until a workflow has a later run than this."""
    async with asyncio.timeout(SOON_S):
        while True:
            if (await client.get_workflow_handle(id).describe()).run_id != run_id:
                return
            await asyncio.sleep(0.05)


@pytest.mark.accepts("A13")
async def test_name_that_is_not_one_visible_line_is_refused(runtime: Runtime) -> None:
    """By the client before any request, and by the turn for other clients; the call keeps
    waiting.
    """
    model = ScriptedModel(calls(call("send", to="Ann")), says("hello"), says("done"))
    async with runtime(clerk, model=model) as client:
        turn = await client.start("clerk", "go", budget=Budget(tool_calls=5))
        [ann] = await pending(turn)
        at = client.temporal, access.TURN, [await turn.first_run()], turn.id
        session = client.session(f"named-{secrets.token_hex(4)}", "clerk")
        await (await session.say("hello")).turn()
        there = client.temporal, access.SESSION, [""], session.id
        for by in ("", "  ", "anna\nbob", "anna\x1b[2K", "anna\u202e", "a" * 201):
            decision = Decision(call_id=ann.call_id, digest=ann.digest, approve=True, by=by)
            for attempt in (
                turn.approve(ann, by=by),
                turn.add_budget(Budget(tool_calls=1), by=by),
                ask(*at, DECIDE, pack(decision)),
                ask(*at, ADD_BUDGET, pack(BudgetUpdate(tool_calls=1, by=by))),
                turn.cancel(by=by),
                turn.resume(by=by),
                ask(*at, RESUME, pack(Resume(by=by))),
                session.cancel(by=by),
                session.close(by=by),
                ask(*there, RESUME, pack(Resume(by=by))),
                ask(*there, CLOSE, pack(SessionReason(by=by))),
                ask(*there, INTERRUPT, pack(SessionReason(by=by))),
            ):
                with pytest.raises(
                    errors.InvalidRequestError,
                    match="by must be one line of 1 to 200 visible characters",
                ):
                    await attempt
        assert [one.call_id for one in await turn.pending_approvals()] == [ann.call_id]
        await turn.approve(ann, by="a" * 200)
        await turn.result()
        await session.cancel()


@pytest.mark.accepts("A11", "P14")
async def test_command_names_the_person_and_filters_by_agent_and_label(
    runtime: Runtime, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--by`, or `PERDURE_BY`, or the login name; of two turns that wait, the list has the one with
    the label.
    """
    monkeypatch.setenv("PERDURE_BY", "Bo Berg")

    async def approvals(asked: ApprovalOptions) -> list[dict[str, str]]:
        await decide(client, replace(asked, as_json=True))
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    scripts = {
        team: ScriptedModel(calls(call("send", to="Ann"), call("send", to="Bob")), says("done"))
        for team in ("north", "south")
    }
    async with runtime(clerk, model=ByTask(scripts)) as client:
        north, south = [
            await client.start("clerk", team, labels={"team": team}) for team in scripts
        ]
        async with asyncio.timeout(60):
            both = {north.id, south.id}
            # the list lags, so it is polled
            while not {line["turn"] for line in await approvals(ApprovalOptions())} >= both:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        found = await approvals(ApprovalOptions(labels={"team": "north"}, agent="clerk"))
        none = await approvals(ApprovalOptions(agent="nobody"))
        by_option = await approvals(ApprovalOptions(north.id, approve=["call_1_1"], by=ANNA))
        by_environment = await approvals(ApprovalOptions(north.id, approve=["call_1_2"]))
        report = await north.result()
        for one in await south.pending_approvals():
            await south.deny(one)
        await south.result()

    assert ({line["turn"] for line in found}, none) == ({north.id}, [])
    assert [line["by"] for line in (*by_option, *by_environment)] == [ANNA, "Bo Berg"]
    assert [one.by for one in report.steps[0].decisions] == [ANNA, "Bo Berg"]


def test_login_name_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is not valid for a record, the decision has no name; an invalid option is not
    replaced.
    """
    monkeypatch.delenv("PERDURE_BY", raising=False)
    login, usual = getpass.getuser(), sender(None)
    monkeypatch.setenv("LOGNAME", "a\nb")
    odd = sender(None)

    assert (usual, odd) == (login, None)
    assert sender("") == ""


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (ApprovalOptions("ticket-1", by="anna"), "--by belongs to a decision"),
        (ApprovalOptions("ticket-1", labels={"team": "north"}), "leave the turn's id out"),
        (ApprovalOptions("ticket-1", agent="clerk"), "leave the turn's id out"),
        (
            ApprovalOptions("ticket-1", approve=["call_1_1"], deny=["call_1_2"]),
            "either approve calls, or deny them",
        ),
        (
            ApprovalOptions("ticket-1", deny=["call_1_1"], arguments="{}"),
            "--arguments goes with one --approve",
        ),
        (
            ApprovalOptions(approve=["call_1_1"]),
            "name the turn of the call: perdure approvals TURN --approve CALL",
        ),
    ],
)
async def test_options_that_mean_nothing_are_refused(asked: ApprovalOptions, said: str) -> None:
    """Before any request."""
    client = AgentClient.from_temporal(await Client.connect("localhost:1", lazy=True))
    with pytest.raises(errors.InvalidRequestError, match=said):
        await decide(client, asked)
