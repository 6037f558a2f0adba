"""What a turn knows of the effects of other turns: those that it goes on from, starts, or follows,
and those of itself before it was reset.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

from perdure import Agent, Delegate, ToolContext, ToolOutcome, errors, tool
from perdure.clients import Session
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.effects import DONE_BEFORE
from perdure.values.reports import AgentReport
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.banking import Bank, payer, pays, reader, results
from ...support.delegating import FREE
from ...support.long_turns import begin, delete, filling, runs_of
from ...support.resets import reset, reset_to, task_ends
from ...support.spending import look

BEFORE = (ToolOutcome.DONE, "Done before, in step {step} of turn {turn}, and not again.")


@pytest.fixture
def bank() -> Bank:
    return Bank()


def clerk(bank: Bank, **options: Any) -> Agent:
    return Agent(name="clerk", model="scripted:clerk", tools=[payer(bank, **options)])


async def answer_to(session: Session[Any], text: str) -> AgentReport:
    """The report of the turn that answers a message."""
    sent = await session.say(text)
    report: AgentReport = await sent.result()
    return report


def is_answered_from(report: AgentReport, turn: str, step: int = 1) -> bool:
    """Whether the last call was answered from the record of a call of another turn."""
    outcome, content = results(report)[-1]
    start = BEFORE[1].format(step=step, turn=turn)
    return outcome is ToolOutcome.DONE and content.startswith(start)


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_fork_knows_what_was_done_after_its_point(runtime: Runtime, bank: Bank) -> None:
    """A fork from before the payment does not pay again."""
    model = ScriptedModel(pays(), says("paid"), pays(), says("paid"))
    async with runtime(clerk(bank), model=model) as client:
        turn = await client.start("clerk", "pay")
        await turn.result()
        fork = await turn.fork(0)
        report = await fork.result()

    assert len(bank.ledger) == 1
    assert is_answered_from(report, turn.id)


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_fork_of_a_fork_has_the_keys_of_the_first_turn(runtime: Runtime, bank: Bank) -> None:
    """And it knows what both have done."""
    model = ScriptedModel(says("a"), pays(), says("paid"), pays(), pays("i-2"), says("paid"))
    async with runtime(clerk(bank, may_recur=True), model=model) as client:
        turn = await client.start("clerk", "pay")
        await turn.result()
        fork = await turn.fork(0)
        await fork.result()
        await (await fork.fork(0)).result()

    assert [invoice for invoice, *_ in bank.ledger] == ["i-1", "i-1", "i-2"]
    assert bank.ledger[0] == bank.ledger[1]


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_fork_of_a_running_turn_looks_up_the_call_that_runs(
    runtime: Runtime, bank: Bank
) -> None:
    """It may have taken effect; the fork does not pay before it knows."""
    began, ends = asyncio.Event(), asyncio.Event()

    @tool(effect=["invoice"], verify=reader(bank))
    async def pay(invoice: str, amount: int, ctx: ToolContext[Any]) -> str:
        paid = bank.pay(invoice, amount, ctx)
        began.set()
        await ends.wait()
        return paid

    agent = Agent(name="clerk", model="scripted:clerk", tools=[pay])
    async with runtime(agent, model=ScriptedModel(pays(), pays(), says("a"), says("b"))) as client:
        turn = await client.start("clerk", "pay")
        await began.wait()
        fork = await (await turn.fork(0)).result()
        ends.set()
        first = await turn.result()

    assert len(bank.ledger) == 1
    assert results(first) == [(ToolOutcome.DONE, "paid i-1")]
    assert results(fork)[0][0] is ToolOutcome.VERIFIED


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_resumed_turn_looks_up_what_a_cancel_has_cut_off(
    runtime: Runtime, bank: Bank
) -> None:
    """The call was lost with the cancel; the resumed turn's call has the same effect."""
    began = asyncio.Event()

    @tool(effect=["invoice"], verify=reader(bank))
    async def pay(invoice: str, amount: int, ctx: ToolContext[Any]) -> str:
        bank.pay(invoice, amount, ctx)
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return "paid"

    agent = Agent(name="clerk", model="scripted:clerk", tools=[pay])
    async with runtime(agent, model=ScriptedModel(pays(), pays(), says("paid"))) as client:
        turn = await client.start("clerk", "pay")
        await began.wait()
        await turn.cancel("stop")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
        report = await (await turn.resume()).result()

    assert len(bank.ledger) == 1
    outcome, content = results(report)[-1]
    assert outcome is ToolOutcome.VERIFIED
    assert f"an earlier one, in step 1 of turn {turn.id}, has the same effect" in content


@pytest.mark.accepts("T51")
async def test_next_turn_of_a_session_knows_what_the_turn_before_has_done(
    runtime: Runtime, bank: Bank
) -> None:
    """Also a fork of the session, with the same keys."""
    model = ScriptedModel(pays(), says("paid"), pays(), says("paid"), pays(), says("paid"))
    async with runtime(clerk(bank), model=model) as client:
        session = client.session(f"chat-{secrets.token_hex(4)}", "clerk")
        first = await answer_to(session, "pay")
        report = await answer_to(session, "pay again")
        fork = await session.fork(id=f"{session.id}-fork")
        in_fork = await answer_to(fork, "pay again")

    assert len(bank.ledger) == 1
    assert is_answered_from(report, first.turn_id)
    assert is_answered_from(in_fork, first.turn_id)


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_effect_of_one_turn_only_is_brought_about_again_in_the_next(
    runtime: Runtime, bank: Bank
) -> None:
    """With `effect_scope="turn"`, in the same session."""
    model = ScriptedModel(pays(), says("paid"), pays(), says("paid"))
    async with runtime(clerk(bank, effect_scope="turn"), model=model) as client:
        session = client.session(f"chat-{secrets.token_hex(4)}", "clerk")
        await answer_to(session, "pay")
        await answer_to(session, "pay again")

    assert len({key for *_, key in bank.ledger}) == 2


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_account_has_the_same_keys_in_all_turns(runtime: Runtime, bank: Bank) -> None:
    """The service recognizes them; the turns do not know of each other."""
    model = ScriptedModel(pays(), says("paid"), pays(), says("paid"))
    async with runtime(clerk(bank, effect_scope="account"), model=model) as client:
        await client.run("clerk", "pay")
        await client.run("clerk", "pay")

    assert len(bank.ledger) == 2
    assert len({key for *_, key in bank.ledger}) == 1


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_delegates_and_their_parent_know_what_the_others_have_done(
    runtime: Runtime, bank: Bank
) -> None:
    """A parent that pays what its first delegate has paid, and a second delegate after that."""
    delegates = call("delegate_to_agent", agent="clerk", task="pay")
    boss = Agent(
        name="boss",
        model="scripted:boss",
        tools=[payer(bank)],
        delegates=[Delegate("clerk")],
    )
    models = {
        "boss": ScriptedModel(calls(delegates), pays(), calls(delegates), says("done")),
        "clerk": ScriptedModel(pays(), says("paid"), pays(), pays("i-2"), says("paid")),
    }
    worker = AgentWorker([boss, clerk(bank)], prices=FREE)
    async with runtime(worker, model=models) as client:
        report = await client.run("boss", "pay")

    place = f"step 1 of turn {report.turn_id}/clerk"
    assert [invoice for invoice, *_ in bank.ledger] == ["i-1", "i-2"]
    assert results(report)[1][1].startswith(f"Done before, in {place}")


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_later_run_of_a_turn_knows_what_an_earlier_run_has_done(
    runtime: Runtime, bank: Bank
) -> None:
    """After continue-as-new."""
    agent = Agent(
        name="reader",
        model="scripted:reader",
        tools=[look, payer(bank)],
        max_iterations="unlimited",
        parallel_tools=True,
    )
    model = ScriptedModel(pays(), *filling(3), pays(), says("paid"))
    async with runtime(agent, model=model) as client:
        turn = await begin(client)
        report = await turn.result()
        runs = await runs_of(client, turn)

    assert len(runs) > 1
    assert len(bank.ledger) == 1
    assert results(report)[-1][1].startswith("Done before, in step 1, and not again.")


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_run_whose_earlier_runs_are_gone_pays(runtime: Runtime, bank: Bank) -> None:
    """Their retention is over; nobody can say what they did before a reset, if there was one."""
    began, ends = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def hold() -> str:
        began.set()
        await ends.wait()
        return "held"

    agent = Agent(
        name="reader",
        model="scripted:reader",
        tools=[look, hold, payer(bank)],
        max_iterations="unlimited",
        parallel_tools=True,
    )
    model = ScriptedModel(*filling(3), calls(call("hold")), pays(), says("paid"))
    async with runtime(agent, model=model) as client:
        turn = await begin(client)
        await began.wait()
        first, *_ = await runs_of(client, turn)
        await delete(client, turn.id, first)
        ends.set()
        report = await turn.result()

    assert results(report)[-1] == (ToolOutcome.DONE, "paid i-1")


@pytest.mark.slow
@pytest.mark.accepts("T51")
async def test_turn_that_is_reset_does_not_pay_again(runtime: Runtime, bank: Bank) -> None:
    """Reset to before its first model call; the worker reads what the run before has done."""
    model = ScriptedModel(pays(), says("paid"), pays(amount=31), says("paid"))
    async with runtime(clerk(bank), model=model) as client:
        turn = await client.start("clerk", "pay")
        await turn.result()
        again = await reset(client, turn, task_ends(await client.history(turn))[0])
        report = await again.result()
        [known] = await again.effects()

    assert len(bank.ledger) == 1
    assert (known.status, known.step, known.result) == ("done", 1, "paid i-1")
    assert results(report) == [
        (
            ToolOutcome.DONE,
            DONE_BEFORE.format(place="a step before the turn was reset", result="paid i-1"),
        )
    ]


@pytest.mark.slow
@pytest.mark.accepts("Y192")
async def test_turn_that_is_reset_twice_does_not_pay_again(runtime: Runtime, bank: Bank) -> None:
    """The second point is before the first. The run between has not paid, as it knew of the payment
    before it.
    """
    paid = (pays(), says("paid"))
    async with runtime(clerk(bank), model=ScriptedModel(*paid, *paid, *paid)) as client:
        turn = await client.start("clerk", "pay")
        await turn.result()
        between = await reset(client, turn, task_ends(await client.history(turn))[1])
        await between.result()
        run_id = (await client.temporal.get_workflow_handle(turn.id).describe()).run_id or ""
        point = task_ends(await client.history(between))[0]
        await reset_to(client.temporal, turn.id, run_id, point)
        report = await client.turn(turn.id).result()

    assert len(bank.ledger) == 1
    assert results(report) == [
        (
            ToolOutcome.DONE,
            DONE_BEFORE.format(place="a step before the turn was reset", result="paid i-1"),
        )
    ]


@pytest.mark.slow
@pytest.mark.accepts("Y191")
async def test_turn_whose_first_run_is_reset_knows_what_later_runs_did(
    runtime: Runtime, bank: Bank
) -> None:
    """The payment was made in a later run, which continued the run that is reset."""
    agent = Agent(
        name="reader",
        model="scripted:reader",
        tools=[look, payer(bank)],
        max_iterations="unlimited",
        parallel_tools=True,
    )
    model = ScriptedModel(*filling(3), pays(), says("paid"), pays(amount=31), says("paid"))
    async with runtime(agent, model=model) as client:
        turn = await begin(client)
        await turn.result()
        first, *later = await runs_of(client, turn)
        history = await client.temporal.get_workflow_handle(turn.id, run_id=first).fetch_history()
        again = await reset(client, turn, task_ends(history)[0])
        report = await again.result()

    assert later
    assert len(bank.ledger) == 1
    assert results(report) == [
        (
            ToolOutcome.DONE,
            DONE_BEFORE.format(place="a step before the turn was reset", result="paid i-1"),
        )
    ]
