"""Calls that wait for a person: which calls wait, which decisions are valid, and what happens to
the call.
"""

import asyncio
import secrets
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Allow,
    Budget,
    Deny,
    Outcome,
    ProposedCall,
    RequireApproval,
    Task,
    errors,
    tool,
)
from perdure.activities.provider import ModelRequest
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text
from perdure.worker import AgentWorker

from ...conftest import Runtime, check_history
from ...support.approving import agent, pending, sent
from ...support.spending import Queue, queue, report_of, skipping, sleep_through, time_left


class Answering(ScriptedModel):
    """A model for many turns: it sends a letter to the person in the task, and then answers."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        asked: Any = request.messages[0]
        done = AssistantMessage(parts=(Text(text="done"),))
        return ModelAnswer(
            message=done
            if len(request.messages) > 1
            else AssistantMessage(parts=(call("send", to=asked.text),))
        )


@pytest.mark.accepts("A1")
async def test_approved_call_runs_and_a_denied_one_is_a_result_with_the_reason(
    runtime: Runtime,
) -> None:
    """Two calls wait at once; each is decided separately."""
    sent.clear()
    model = ScriptedModel(
        calls(call("send", to="Ann"), call("send", to="Bob"), call("look")), says("done")
    )
    async with runtime(agent(), model=model) as client:
        turn = await client.start("clerk", "go")
        ann, bob = await pending(turn, 2)
        await turn.deny(bob, "Bob has moved")
        assert [one.call_id for one in await turn.pending_approvals()] == [ann.call_id]
        await turn.approve(ann)
        report = await turn.result()

    assert (report.outcome, sent) == (Outcome.COMPLETED, ["Ann"])
    contents = [(result.content, result.is_error) for result in report.steps[0].results]
    assert contents == [
        ("sent to Ann", False),
        ("This call was not run: it was denied: Bob has moved", True),
        ("seen 1", False),
    ]


@pytest.mark.accepts("A2")
async def test_approval_is_bound_to_arguments_and_used_once(runtime: Runtime) -> None:
    """A wrong digest is refused, the first decision counts, and a second one is refused."""
    model = ScriptedModel(calls(call("send", to="Ann"), call("send", to="Bob")), says("done"))
    async with runtime(agent(), model=model) as client:
        turn = await client.start("clerk", "go")
        ann, bob = await pending(turn, 2)
        with pytest.raises(errors.ApprovalConflictError, match="names the arguments"):
            await turn.approve(ann.model_copy(update={"digest": bob.digest}))
        await turn.approve(ann)
        with pytest.raises(errors.ApprovalConflictError, match="was already approved"):
            await turn.deny(ann)
        await turn.approve(bob)
        report = await turn.result()

    assert [result.is_error for result in report.steps[0].results] == [False, False]


@pytest.mark.accepts("A3")
async def test_silence_is_a_no(runtime: Runtime) -> None:
    """Without a decision in time the call does not run, and the model gets an error result."""

    def policy(proposed: ProposedCall) -> Allow | RequireApproval:
        return RequireApproval(expires=timedelta(seconds=1)) if proposed.tool == "note" else Allow()

    model = ScriptedModel(calls(call("note", text="x"), call("look")), says("done"))
    async with runtime(agent(policy=policy), model=model) as client:
        report = await client.run("clerk", "go")

    assert [result.is_error for result in report.steps[0].results] == [True, False]
    assert "nobody approved it" in report.steps[0].results[0].content


@pytest.mark.slow
@pytest.mark.accepts("A3")
async def test_silence_while_no_worker_lives_is_a_no(perdure_server: str) -> None:
    """The wait is over when the next worker starts, which has only the history; decisions made in
    time count.
    """
    sent.clear()

    def policy(proposed: ProposedCall) -> RequireApproval:
        return RequireApproval(expires=timedelta(seconds=4))

    app = AgentWorker(agent(policy=policy))
    model = ScriptedModel(calls(call("send", to="Ann"), call("send", to="Bob")), says("done"))
    async with queue(perdure_server) as work:
        async with work.worker(app, model):
            turn = await work.client.start("clerk", "go")
            ann, _ = await pending(turn, 2)
            await turn.approve(ann)
        await asyncio.sleep(5)
        assert await turn.pending_approvals() == ()
        async with work.worker(app, model):
            report = await report_of(turn)

    assert (report.outcome, sent) == (Outcome.COMPLETED, ["Ann"])
    assert [result.content for result in report.steps[0].results] == [
        "sent to Ann",
        "This call was not run: nobody approved it within 0:00:04.",
    ]


@pytest.mark.accepts("A3", "A6")
async def test_wait_of_days_is_no_time_of_the_turn_and_ends_after_one() -> None:
    """A turn with a time budget of a minute waits for 23 hours, is approved on another worker, and
    still has its minute; the next call waits for a day and expires.
    """
    sent.clear()
    app, model = (
        AgentWorker(agent()),
        ScriptedModel(calls(call("send", to="Ann")), calls(call("send", to="Bob")), says("done")),
    )
    async with skipping() as environment:
        work = Queue(environment.client)
        async with work.worker(app, model):
            turn = await work.client.start("clerk", "go", budget=Budget(time=timedelta(minutes=1)))
            [ann] = await pending(turn)
            await sleep_through(environment, turn, timedelta(hours=23))
        async with work.worker(app, model):
            await turn.approve(ann)
            async with asyncio.timeout(60):
                # history is polled
                while await turn.pending_approvals() in ((), (ann,)):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await sleep_through(environment, turn, timedelta(hours=25))
            report = await report_of(turn)
        await check_history(environment.client, turn.id, await turn.first_run())

    assert (report.outcome, sent) == (Outcome.COMPLETED, ["Ann"])
    assert (
        report.steps[1].results[0].content
        == "This call was not run: nobody approved it within 1 day, 0:00:00."
    )
    assert timedelta(hours=47) < report.duration < timedelta(hours=49)
    assert all(
        timedelta(seconds=20) < time_left(request) <= timedelta(minutes=1)
        for request in model.requests
    )


@pytest.mark.accepts("A5")
async def test_what_waits_of_all_turns_can_be_listed_and_decided(runtime: Runtime) -> None:
    """The list has the turn and the complete arguments of each call, filtered by agent or label,
    until it is decided.
    """
    name, other = (f"clerk-{secrets.token_hex(4)}" for _ in range(2))
    sent.clear()
    model = Answering()
    async with runtime(AgentWorker([agent(name=name), agent(name=other)]), model=model) as client:
        long = "x" * 5000
        for owner, task in ((name, "Ann"), (name, long), (other, "Cid")):
            await client.start(owner, task, id=f"{owner}-{task[:3]}", labels={"to": task[:3]})

        async def listed(agent_name: str, **labels: str) -> dict[str, str]:
            return {
                entry.id: one.arguments
                async for entry, one in client.pending_approvals(agent_name, labels=labels or None)
            }

        async with asyncio.timeout(60):
            # the list lags behind, so it is polled
            while len(await listed(name)) + len(await listed(other)) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert await listed(name) == {
            f"{name}-Ann": '{"to": "Ann"}',
            f"{name}-xxx": f'{{"to": "{long}"}}',
        }
        assert await listed(other) == {f"{other}-Cid": '{"to": "Cid"}'}
        assert await listed(name, to="Ann") == {f"{name}-Ann": '{"to": "Ann"}'}
        everything = [(entry.id, one) async for entry, one in client.pending_approvals()]
        for turn_id, one in everything:
            if turn_id.startswith((name, other)):
                await client.turn(turn_id).approve(one.call_id)
        reports = [
            await client.turn(turn_id).result()
            for turn_id in (f"{name}-Ann", f"{name}-xxx", f"{other}-Cid")
        ]
        assert await listed(name) == {}

    assert {report.outcome for report in reports} == {Outcome.COMPLETED}
    assert sorted(sent) == ["Ann", "Cid", long]


@pytest.mark.accepts("A4")
async def test_edited_arguments_run_and_invalid_ones_do_not(runtime: Runtime) -> None:
    """The edited arguments are what runs, after the same validation as the model's own."""
    sent.clear()
    model = ScriptedModel(calls(call("send", to="Ann"), call("send", to="Bob")), says("done"))
    async with runtime(agent(), model=model) as client:
        turn = await client.start("clerk", "go")
        ann, bob = await pending(turn, 2)
        await turn.approve(ann, arguments={"to": "Anna"})
        await turn.approve(bob, arguments={"whom": "Bob"})
        report = await turn.result()

    assert sent == ["Anna"]
    assert [result.is_error for result in report.steps[0].results] == [False, True]


async def test_policy_allows_denies_and_fails(runtime: Runtime) -> None:
    """A denied call does not run; a policy that raises denies; a policy cannot lift the tool's own
    requirement.
    """

    async def policy(proposed: ProposedCall) -> Allow | Deny:
        if proposed.arguments == '{"number": 2}':
            raise OSError("no database")
        return Deny(reason="no notes") if proposed.tool == "note" else Allow()

    model = ScriptedModel(
        calls(call("note", text="x"), call("look"), call("look", number=2)), says("done")
    )
    async with runtime(agent(policy=policy), model=model) as client:
        report = await client.run("clerk", "go")

    contents = [result.content for result in report.steps[0].results]
    assert contents[:2] == ["This call was not run: it was denied: no notes", "seen 1"]
    assert "OSError: no database" in contents[2]


@pytest.mark.slow
async def test_task_that_requires_approval_lets_read_only_calls_through(runtime: Runtime) -> None:
    """Every call that is not read-only waits."""
    model = ScriptedModel(calls(call("look"), call("note", text="x")), says("done"))
    async with runtime(agent(), model=model) as client:
        turn = await client.start("clerk", Task(content="go", requires_human_approval=True))
        [waits] = await pending(turn)
        await turn.approve(waits)
        report = await turn.result()

    assert waits.tool == "note"
    assert report.outcome is Outcome.COMPLETED


@pytest.mark.accepts("L14")
async def test_parallel_tools_overlap_and_keep_their_order(runtime: Runtime) -> None:
    """Three calls that need each other to finish; one fails, and the other results are kept."""
    barrier = asyncio.Barrier(3)

    @tool
    async def meet(name: str) -> str:
        """Meet the others."""
        await asyncio.wait_for(barrier.wait(), 60)
        if name == "b":
            raise ValueError("lost")
        return name

    model = ScriptedModel(calls(*(call("meet", name=name) for name in "abc")), says("done"))
    async with runtime(agent(tools=[meet], parallel_tools=True), model=model) as client:
        report = await client.run("clerk", "go")

    assert [result.content for result in report.steps[0].results] == [
        "a",
        "meet failed: ValueError: lost",
        "c",
    ]


@pytest.mark.accepts("A1", "A3")
@pytest.mark.slow
async def test_call_that_has_expired_does_not_keep_one_that_was_approved(runtime: Runtime) -> None:
    """Two expiries: the second call is approved after the first has expired, and the turn continues
    at once.
    """
    sent.clear()

    def policy(proposed: ProposedCall) -> RequireApproval:
        return RequireApproval(
            expires=timedelta(seconds=2) if proposed.tool == "note" else timedelta(hours=2)
        )

    model = ScriptedModel(calls(call("note", text="x"), call("send", to="Ann")), says("done"))
    async with runtime(agent(policy=policy), model=model) as client:
        turn = await client.start("clerk", "go")
        async with asyncio.timeout(60):
            # history is polled
            while [one.tool for one in await turn.pending_approvals()] != ["send"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        [asked] = await turn.pending_approvals()
        await turn.approve(asked)
        async with asyncio.timeout(60):
            report = await turn.result()

    assert sent == ["Ann"]
    assert [result.content for result in report.steps[0].results] == [
        "This call was not run: nobody approved it within 0:00:02.",
        "sent to Ann",
    ]


@pytest.mark.accepts("A4")
async def test_model_is_told_of_arguments_that_a_person_changed(runtime: Runtime) -> None:
    """Otherwise it would describe its original arguments to the customer; the report has the edit,
    too.
    """
    sent.clear()
    model = ScriptedModel(calls(call("send", to="Ann"), call("send", to="Cid")), says("done"))
    async with runtime(agent(), model=model) as client:
        turn = await client.start("clerk", "go")
        ann, cid = await pending(turn, 2)
        await turn.approve(ann, arguments={"to": "Bob"})
        await turn.approve(cid)
        report = await turn.result()

    told = (
        'sent to Bob\n[A person changed the arguments of this call before it ran, to {"to":"Bob"}]'
    )
    assert sent == ["Bob", "Cid"]
    assert [result.content for result in report.steps[0].results] == [told, "sent to Cid"]
    assert model.requests[1].messages[-1] == report.messages[2]


@pytest.mark.slow
async def test_denials_are_no_loop(runtime: Runtime) -> None:
    """No tool has failed: the model may still answer, however often a person denied a call."""
    model = ScriptedModel(
        *(calls(call("send", to=name)) for name in ("Ann", "Bob", "Cid")), says("I stop.")
    )
    async with runtime(agent(), model=model) as client:
        turn = await client.start("clerk", "go")
        for _ in range(3):
            (one,) = await pending(turn)
            await turn.deny(one, "no")
        report = await turn.result()

    assert (report.output, report.outcome) == ("I stop.", Outcome.COMPLETED)
