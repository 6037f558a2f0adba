"""Questions in turns that go on in a new run, delegate, hand over, are forked, resumed or reset."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Any

import pytest

from perdure import Agent, Outcome, errors
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.errors import PerdureError
from perdure.testing import FunctionModel, ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.toolboxes import asking
from perdure.turn.facts import WaitBegan
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.approving import pending
from ...support.delegating import app as delegating
from ...support.delegating import delegate, researcher
from ...support.listing import listed_calls
from ...support.long_turns import Carries, begin, filling, holding, reader, runs_of, until_run
from ...support.receiver import Receiver
from ...support.resets import reset, task_ends
from ...support.scheduling import DAILY, existing, new_id
from ...support.spending import app, queue, until

ASK = calls(call("ask", question="Which?", options=["red", "green"], default="red"))


def asker(**fields: Any) -> Agent:
    """An agent that can ask."""
    return Agent(**{"name": "asker", "model": "scripted:asker", "toolboxes": [asking()], **fields})


async def fill(turn: Turn[Any], is_full: asyncio.Event) -> None:
    """Add to the limit of iterations until a run is full."""
    while not is_full.is_set():
        await asyncio.gather(
            *(turn.add_budget(iterations=1) for _ in range(4)), return_exceptions=True
        )


async def tried(coroutine: Any) -> Any:
    """The error of a request; None without one."""
    try:
        return await coroutine
    except PerdureError as error:
        return type(error)


@pytest.mark.slow
@pytest.mark.accepts("J14")
async def test_question_is_carried_to_a_later_run(perdure_server: str) -> None:
    """With its time and its token. Answers that come while the state is taken over: one counts, and
    what is no answer is refused.
    """
    carries = Carries()
    agent = reader(
        toolboxes=[asking()], parallel_tools=True, max_iterations=9, on_exhausted="pause"
    )
    model = ScriptedModel(*filling(1), ASK, says("done"))
    worker = replace(app(agent), providers={"scripted": model})
    async with queue(perdure_server) as work, holding(work, worker, carries):
        turn = await begin(work.client)
        await until(turn, WaitBegan)
        [before] = await pending(turn)
        filling_up = asyncio.create_task(fill(turn, carries.begun))
        await carries.begun.wait()
        await until_run(work.client, turn, 2)
        [after] = await turn.pending_approvals()
        asked = [
            asyncio.create_task(tried(one))
            for one in (
                turn.approve(after),
                turn.answer(after, "blue"),
                turn.settle(after, "done"),
                turn.answer(after, "red", by="Eve"),
                turn.answer(after, "green", by="Dan"),
            )
        ]
        await asyncio.sleep(0.5)
        carries.let_go.set()
        answers = await asyncio.gather(*asked)
        await filling_up
        report = await turn.result()
        runs = await runs_of(work.client, turn)

    assert len(runs) > 1
    assert before == after
    conflict = errors.ApprovalConflictError
    assert (answers[0], answers[2]) == (conflict, conflict)
    assert answers[1] in (conflict, errors.InvalidRequestError)  # the latter if it came later
    assert sorted(answers[3:], key=str) == [conflict, None]
    [decision] = report.steps[1].decisions
    [result] = report.steps[1].results
    assert (decision.by, result.content) in (("Eve", "red"), ("Dan", "green"))
    assert report.spent.tool_calls == 61


@pytest.mark.accepts("J14")
async def test_question_needs_no_worker_while_it_waits(perdure_server: str) -> None:
    """One worker asks; another, of another process in all but name, goes on after the answer."""
    model = ScriptedModel(ASK, says("done"))
    async with queue(perdure_server) as work:
        async with work.worker(app(asker()), model):
            turn = await work.client.start("asker", "paint")
            [waiting] = await pending(turn)
        listed = await listed_calls(work.client, turn.id)
        async with work.worker(app(asker()), model):
            await turn.answer(waiting, "green", by="anna")
            report = await turn.result()

    assert [one.call_id for one in listed] == [waiting.call_id]
    assert report.steps[0].results[0].content == "green"


@pytest.mark.slow
@pytest.mark.accepts("J15")
async def test_delegate_asks(runtime: Runtime) -> None:
    """The status of its parent shows the question, which is answered at the delegate's turn."""
    models = {
        "editor": ScriptedModel(delegate("researcher", "find it"), says("done")),
        "researcher": ScriptedModel(ASK, says("green it is")),
    }
    workers = delegating(researcher(toolboxes=[asking()]), delegates=["researcher"])
    async with runtime(workers, model=models) as client:
        turn = await client.start("editor", "go")
        await turn.wait()
        [wait] = [wait for wait in (await turn.status()).waits if wait.call]
        await client.turn(wait.turn_id).answer(wait.call, "green", by="anna")  # type: ignore[arg-type]
        report = await turn.result()

    assert wait.turn_id != turn.id
    assert wait.call is not None
    assert wait.call.question is not None
    assert wait.call.question.options == ("red", "green")
    assert report.output == "done"
    assert report.spent.tool_calls == 2  # that of the delegate, and the delegation


@pytest.mark.accepts("J15")
async def test_agent_asks_after_a_handoff(runtime: Runtime) -> None:
    """Each agent has the tool only if it has the toolbox."""
    second = asker(name="second", description="Asks.")
    first = Agent(name="first", model="scripted:first", handoffs=["second"])
    models = {
        "first": ScriptedModel(ASK, calls(call("hand_over", agent="second", message="ask"))),
        "second": ScriptedModel(ASK, says("done")),
    }
    async with runtime(AgentWorker([first, second]), model=models) as client:
        turn = await client.start("first", "go")
        [waiting] = await pending(turn)
        await turn.answer(waiting, "red")
        report = await turn.result()

    contents = [step.results[0].content for step in report.steps if step.results]
    assert contents[0].startswith("There is no tool named 'ask'")
    assert contents[-1] == "red"


@pytest.mark.slow
@pytest.mark.accepts("J16")
async def test_answer_is_spent_once(runtime: Runtime) -> None:
    """A turn that resumes one that was cancelled while it asked asks again; a fork after the answer
    does not, and has it.
    """
    model = ScriptedModel(
        ASK,
        calls(call("ask", question="And then?"), call("ask", question="Sure?")),
        calls(call("ask", question="And then?")),
        says("resumed"),
        says("forked"),
    )
    async with runtime(asker(), model=model) as client:
        turn = await client.start("asker", "paint")
        [first] = await pending(turn)
        await turn.answer(first, "green")
        then, _ = await pending(turn, 2)
        await turn.answer(then, "later")
        await turn.cancel("lunch")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
        with pytest.raises(errors.ApprovalConflictError, match="already answered"):
            await turn.answer(then, "again")
        resumed = await turn.resume()
        [again] = await pending(resumed)
        await resumed.answer(again, "now")
        report = await resumed.result()
        forked = await (await turn.fork(at_step=1)).result()

    assert (report.output, report.steps[0].results[0].content) == ("resumed", "now")
    assert (forked.output, forked.outcome) == ("forked", Outcome.COMPLETED)
    contents = [
        result.content for message in forked.messages for result in getattr(message, "results", ())
    ]
    assert contents == ["green"]


@pytest.mark.accepts("J16")
async def test_question_of_a_turn_that_was_reset_is_answered_with_its_token(
    runtime: Runtime,
) -> None:
    """An answer that was meant for the run before does not count for the one after."""
    model = ScriptedModel(ASK, says("one"), says("two"))
    async with runtime(asker(), model=model) as client:
        turn = await client.start("asker", "paint")
        [before] = await pending(turn)
        end = len(task_ends(await client.history(turn)))
        await turn.answer(before, "green")
        await turn.result()
        again = await reset(client, turn, task_ends(await client.history(turn))[end - 1])
        [after] = await pending(again)
        with pytest.raises(errors.ApprovalConflictError, match="was started again or reset"):
            await again.answer(after.call_id, "red")
        with pytest.raises(errors.ApprovalConflictError):
            await again.answer(after.call_id, "red", token=before.token)
        await again.answer(after.call_id, "red", token=after.token)
        report = await again.result()

    assert before.token != after.token
    assert report.steps[0].results[0].content == "red"


@pytest.mark.accepts("J19")
async def test_webhook_tells_the_question(runtime: Runtime, receiver: Receiver) -> None:
    """Its receiver answers with the token that it was told. Many long questions do not all fit."""
    long = [call("ask", question="?" * 4_000, options=["red", "green"]) for _ in range(30)]
    model = ScriptedModel(ASK, calls(*long), says("done"))
    async with runtime(asker(), model=model) as client:
        turn = await client.start("asker", "paint", on_wait=receiver.url("/waits"))
        [hook] = await receiver.until("/waits")
        [told] = hook.verified()["data"]["pending"]
        await turn.answer(told["call_id"], "green", token=told["token"], by="anna")
        [_, many] = await receiver.until("/waits", 2)
        await turn.cancel()
        with pytest.raises(errors.TurnCancelledError) as cancelled:
            await turn.result()

    assert told["is_question"]
    assert told["question"]["options"] == ["red", "green"]
    assert cancelled.value.report is not None
    assert cancelled.value.report.steps[0].results[0].content == "green"
    asked = [one.get("question") is not None for one in many.verified()["data"]["pending"]]
    assert (len(asked), 10 < sum(asked) < 20) == (30, True)


@pytest.mark.slow
@pytest.mark.accepts("J17")
async def test_turns_of_batches_and_schedules_ask(runtime: Runtime) -> None:
    """They are on the same list, and are answered there."""

    def reply(request: ModelRequest) -> Reply:
        return ASK if len(request.messages) == 1 else says("painted")

    model = FunctionModel(reply)
    async with runtime(asker(), model=model) as client:
        batch = await client.start_batch(new_id("ask"), "asker", ["one", "two"])
        daily = await client.create_schedule(new_id("ask"), "asker", "daily", **DAILY)
        by_hand = await daily.run_now()
        turn_ids = [f"{batch.id}/1", f"{batch.id}/2", by_hand]
        turns = [await existing(client, turn_id) for turn_id in turn_ids]
        for turn in turns:
            [waiting] = await pending(turn)
            await turn.answer(waiting, "green", by="anna")
        results = [one.output async for one in batch.results()]
        report = await turns[2].result()
        await daily.delete()

    assert results == ["painted", "painted"]
    assert (report.output, report.steps[0].results[0].content) == ("painted", "green")


@pytest.mark.accepts("J17")
async def test_turn_of_a_session_asks(runtime: Runtime) -> None:
    """A message that comes meanwhile waits for the answer."""
    async with runtime(asker(), model=ScriptedModel(ASK, says("painted"), says("yes"))) as client:
        session = client.session(f"talk-{secrets.token_hex(4)}", "asker")
        sent = await session.say("paint")
        turn = await sent.turn()
        [waiting] = await pending(turn)
        await session.say("Thanks?")
        listed = await listed_calls(client, turn.id)
        await turn.answer(waiting, "red", by="anna")
        report = await turn.result()

    assert sent.disposition == "started"
    assert [one.call_id for one in listed] == [waiting.call_id]
    assert report.steps[0].results[0].content == "red"
