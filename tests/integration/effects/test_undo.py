"""Effects that are taken back: by a person, and by an agent whose turns fail."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

from perdure import Agent, ToolContext, ToolOutcome, Usage, errors, tool
from perdure.agents.tools import Tool
from perdure.clients import AgentClient, Turn
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ...conftest import Runtime, eventually
from ...support.approving import pending
from ...support.banking import Bank, payer, pays, refunder, results
from ...support.delegating import FREE, delegate


@pytest.fixture
def bank() -> Bank:
    return Bank()


def clerk(bank: Bank, **options: Any) -> Agent:
    pay = payer(bank, undo=refunder(bank))
    return Agent(name="clerk", model="scripted:clerk", tools=[pay], **options)


async def paid(client: AgentClient, **options: Any) -> Turn[Any]:
    """A turn that is over, after it has paid."""
    turn = await client.start("clerk", "pay", **options)
    await turn.wait()
    return turn


def all_invoices(bank: Bank) -> list[str]:
    return [invoice for invoice, *_ in bank.ledger]


@pytest.mark.accepts("T59")
async def test_person_takes_a_payment_back(runtime: Runtime, bank: Bank) -> None:
    """A turn of its own calls the refund with the arguments and the result of the call."""
    model = ScriptedModel(pays(), says("paid"))
    async with runtime(clerk(bank), model=model) as client:
        turn = await paid(client, labels={"customer": "north"})
        report = await turn.result()
        [record] = report.undoable
        undo = await turn.undo(record.call_id, by="anna")
        undone = await undo.result()
        again = await turn.undo(record.call_id, by="bob")
        with pytest.raises(errors.InvalidRequestError, match="undo the call again instead"):
            await undo.fork(0)
        [known] = await turn.effects()
        status = await undo.status()

    assert [refunded for refunded, _ in bank.refunds] == ["i-1"]
    assert bank.refunds[0][1] != bank.ledger[0][2]
    assert undo.id == f"{turn.id}/undo-1-{record.call_id}" == again.id
    assert "was taken back. The result was: refunded i-1" in undone.output
    assert undone.usage == Usage()
    assert (undone.spent.tokens, undone.spent.model_calls) == (0, 0)
    assert not undone.cost
    assert known.status == "undone"
    assert status.labels == {"customer": "north"}
    assert "asked by anna" in status.task


@pytest.mark.accepts("T60")
async def test_failed_turn_takes_back_what_it_did_the_last_first(
    runtime: Runtime, bank: Bank
) -> None:
    """One after the other, and the caller is not kept waiting."""
    model = ScriptedModel(pays("i-1"), pays("i-2"), pays("i-3"))
    async with runtime(clerk(bank, on_failure="undo", max_iterations=3), model=model) as client:
        turn = await client.start("clerk", "pay")
        with pytest.raises(errors.MaxIterationsError) as failed:
            await turn.result()
        assert failed.value.report is not None
        undoable = failed.value.report.undoable
        first = client.turn(f"{turn.id}/undo-1-call_1_1")
        await eventually(lambda: len(bank.refunds) == 3, "all refunds")
        await first.result()
        statuses = [record.status for record in await turn.effects()]

    assert all_invoices(bank) == ["i-1", "i-2", "i-3"]
    assert [refunded for refunded, _ in bank.refunds] == ["i-3", "i-2", "i-1"]
    assert [record.step for record in undoable] == [3, 2, 1]
    assert statuses == ["undone"] * 3


@pytest.mark.slow
@pytest.mark.accepts("T60")
async def test_cancelled_turn_takes_back_what_it_did(runtime: Runtime, bank: Bank) -> None:
    """A turn of an agent that keeps its effects only lists them."""
    began = asyncio.Event()

    @tool(read_only=True)
    async def look() -> str:
        began.set()
        await asyncio.sleep(60)
        return ""

    def agent(name: str, **options: Any) -> Agent:
        tools = [payer(bank, undo=refunder(bank)), look]
        return Agent(name=name, model=f"scripted:{name}", tools=tools, **options)

    worker = AgentWorker([agent("keeper"), agent("undoer", on_failure="undo")], prices=FREE)
    scripts = {
        "keeper": ScriptedModel(pays("i-1"), calls(call("look"))),
        "undoer": ScriptedModel(pays("i-2"), calls(call("look"))),
    }
    async with runtime(worker, model=scripts) as client:
        for name in scripts:
            began.clear()
            turn = await client.start(name, "pay")
            await asyncio.wait_for(began.wait(), 60)
            await turn.cancel("enough")
            with pytest.raises(errors.TurnCancelledError) as cancelled:
                await turn.result()
            assert cancelled.value.report is not None
            assert len(cancelled.value.report.undoable) == 1
        await eventually(lambda: len(bank.refunds) == 1, "the refund")

    assert [refunded for refunded, _ in bank.refunds] == ["i-2"]


@pytest.mark.accepts("T60")
async def test_completed_turn_keeps_what_it_did(runtime: Runtime, bank: Bank) -> None:
    model = ScriptedModel(pays(), says("paid"))
    async with runtime(clerk(bank, on_failure="undo"), model=model) as client:
        turn = await paid(client)
        with pytest.raises(errors.TurnNotFoundError):
            await client.turn(f"{turn.id}/undo-1-call_1_1").status()

    assert not bank.refunds


@pytest.mark.accepts("T59")
async def test_undo_waits_for_approval(runtime: Runtime, bank: Bank) -> None:
    """A denied one fails, keeps the effect, and can be asked again."""

    @tool(requires_approval=True)
    def refund(invoice: str, ctx: ToolContext[Any]) -> str:
        return bank.refund(invoice, ctx)

    agent = Agent(name="clerk", model="scripted:clerk", tools=[payer(bank, undo=refund)])
    model = ScriptedModel(pays(), says("paid"))
    async with runtime(agent, model=model) as client:
        turn = await paid(client)
        first = await turn.undo("call_1_1")
        [waiting] = await pending(first)
        await first.deny(waiting, "too late", by="anna")
        with pytest.raises(errors.EffectNotUndoneError, match="too late"):
            await first.result()
        [kept] = await turn.effects()
        second = await turn.undo("call_1_1")
        [waiting] = await pending(second)
        await second.approve(waiting)
        await second.result()

    assert kept.status == "done"
    assert [refunded for refunded, _ in bank.refunds] == ["i-1"]


@pytest.mark.slow
@pytest.mark.accepts("T59")
async def test_lost_refund_is_not_repeated(runtime: Runtime, bank: Bank) -> None:
    """The turn fails, and another one does not refund again, since that may have been done."""
    bank.loses = 0
    model = ScriptedModel(pays(), says("paid"))
    async with runtime(clerk(bank), model=model) as client:
        turn = await paid(client)
        bank.loses = 1
        for _ in range(2):
            undo = await turn.undo("call_1_1")
            with pytest.raises(errors.EffectNotUndoneError):
                await undo.result()

    assert len(bank.refunds) == 1


@pytest.mark.slow
@pytest.mark.accepts("T59")
async def test_what_cannot_be_undone_is_said(runtime: Runtime, bank: Bank) -> None:
    """A turn that runs, a call that there is not, a tool without undo=, and a lost call."""
    began, ends = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def look() -> str:
        began.set()
        await ends.wait()
        return ""

    @tool(effect=["to"])
    def mail(to: str) -> str:
        return f"sent to {to}"

    agent = Agent(
        name="clerk",
        model="scripted:clerk",
        tools=[payer(bank, undo=refunder(bank)), mail, look],
        parallel_tools=False,
    )
    bank.loses = 1
    model = ScriptedModel(
        calls(call("mail", to="anna")), pays("i-1"), pays("i-2"), calls(call("look")), says("ok")
    )
    async with runtime(agent, model=model) as client:
        turn = await client.start("clerk", "pay")
        await asyncio.wait_for(began.wait(), 60)
        with pytest.raises(errors.InvalidRequestError, match="runs and may rely on"):
            await turn.undo("call_3_1")
        ends.set()
        await turn.result()
        with pytest.raises(errors.InvalidRequestError, match=r"no call 'nope'.*it has call_2_1"):
            await turn.undo("nope")
        with pytest.raises(errors.InvalidRequestError, match="'mail' has no undo="):
            await turn.undo("call_1_1")
        with pytest.raises(errors.InvalidRequestError, match="may be there, or not"):
            await turn.undo("call_2_1")

    assert not bank.refunds


@pytest.mark.slow
@pytest.mark.accepts("T60")
async def test_effects_of_delegates_are_taken_back_with_their_turn(
    runtime: Runtime, bank: Bank
) -> None:
    """By the agent that has the tool, once, although the delegate takes them back as well."""
    tools = [payer(bank, undo=refunder(bank))]
    below = Agent(
        name="clerk", model="scripted:clerk", tools=tools, on_failure="undo", max_iterations=1
    )
    boss = Agent(
        name="boss",
        model="scripted:boss",
        delegates=["clerk"],
        on_failure="undo",
        max_iterations=1,
    )
    scripts = {"boss": ScriptedModel(delegate("clerk", "pay")), "clerk": ScriptedModel(pays())}
    worker = AgentWorker([boss, below], prices=FREE)
    async with runtime(worker, model=scripts) as client:
        turn = await client.start("boss", "pay")
        with pytest.raises(errors.MaxIterationsError) as failed:
            await turn.result()
        assert failed.value.report is not None
        [record] = failed.value.report.undoable
        await eventually(lambda: len(bank.refunds) == 1, "the refund")
        undo = await turn.undo(record.call_id)
        await undo.result()

    assert record.turn_id.startswith(f"{turn.id}/")
    assert record.undo == "clerk"
    assert len(bank.refunds) == 1


def test_undo_takes_what_there_is(bank: Bank) -> None:
    """A tool that takes other arguments, or changes nothing, is refused when it is declared."""

    def refund(reference: str) -> None:
        """Take a payment back."""

    wrong: Tool = payer(bank, undo=refund)
    with pytest.raises(errors.ConfigurationError, match=r"undo= takes 'reference'.*amount, result"):
        _ = wrong.pinned_effect
    with pytest.raises(errors.ConfigurationError, match=r"undo= is the tool look, .* read-only"):
        payer(bank, undo=tool(read_only=True)(look))


def look(invoice: str) -> str:
    """Look a payment up."""
    return invoice


@pytest.mark.slow
@pytest.mark.accepts("T61")
async def test_resumed_turn_reads_what_was_taken_back(runtime: Runtime, bank: Bank) -> None:
    """Its messages say that the payment was made."""
    model = ScriptedModel(pays("i-1"), pays("i-2"), pays("i-1"), says("paid"))
    async with runtime(clerk(bank, on_failure="undo", max_iterations=2), model=model) as client:
        turn = await client.start("clerk", "pay")
        await turn.wait()
        await eventually(lambda: len(bank.refunds) == 2, "both refunds")
        await client.turn(f"{turn.id}/undo-1-call_1_1").result()
        resumed = await turn.resume(max_iterations=5)
        report = await resumed.result()

    said = [message.brief for message in report.messages if message.role == "user"]
    assert "pay, call call_2_1 in step 2" in said[-1]
    assert "pay, call call_1_1 in step 1" in said[-1]


@pytest.mark.accepts("T61")
async def test_resumed_turn_reads_what_is_about_to_be_taken_back(
    runtime: Runtime, bank: Bank
) -> None:
    """The second payment waits for approval to be taken back, and the first one is next."""

    @tool(requires_approval=True)
    def refund(invoice: str, ctx: ToolContext[Any]) -> str:
        return bank.refund(invoice, ctx)

    agent = Agent(
        name="clerk",
        model="scripted:clerk",
        tools=[payer(bank, undo=refund)],
        on_failure="undo",
        max_iterations=2,
    )
    model = ScriptedModel(pays("i-1"), pays("i-2"), says("nothing is left"))
    async with runtime(agent, model=model) as client:
        turn = await client.start("clerk", "pay")
        await turn.wait()
        undo = client.turn(f"{turn.id}/undo-2-call_2_1")
        await pending(undo)
        report = await (await turn.resume(max_iterations=5)).result()
        await undo.cancel()

    said = [message.brief for message in report.messages if message.role == "user"]
    assert bank.refunds == []
    assert "pay, call call_2_1 in step 2" in said[-1]
    assert "pay, call call_1_1 in step 1" in said[-1]


@pytest.mark.slow
@pytest.mark.accepts("T61")
async def test_effect_that_was_settled_is_taken_back_during_a_turn(
    runtime: Runtime, bank: Bank
) -> None:
    """The turn knows that it was there, and looks again before a later call."""
    bank.loses = 1
    may_go_on = asyncio.Event()

    @tool(read_only=True)
    async def look() -> str:
        await may_go_on.wait()
        return ""

    tools = [payer(bank, undo=refunder(bank)), look]
    agent = Agent(name="clerk", model="scripted:clerk", tools=tools)
    model = ScriptedModel(
        *(pays(), says("perhaps"), pays(), calls(call("look")), pays(), says("paid"))
    )
    async with runtime(agent, model=model) as client:
        turn = await paid(client)
        await turn.settle("call_1_1", "done", "paid i-1", by="anna")
        fork = await turn.fork(0)
        await eventually(lambda: len(model.requests) == 4, "the fork has been answered")
        await (await turn.undo("call_1_1", by="anna")).result()
        may_go_on.set()
        report = await fork.result()

    before, _, after = results(report)
    assert before[1].startswith("Done before, in step 1 of turn")
    assert after == (ToolOutcome.DONE, "paid i-1")
    assert len(bank.ledger) == 2


@pytest.mark.slow
@pytest.mark.accepts("T61")
async def test_call_is_made_again_after_it_was_taken_back(runtime: Runtime, bank: Bank) -> None:
    """With another key, since the service would recognize the first one; and then it is known."""
    bank.is_idempotent = True
    model = ScriptedModel(
        *(pays(), says("paid"), pays(), says("paid"), pays(), says("paid"), pays(), says("paid"))
    )
    async with runtime(clerk(bank), model=model) as client:
        session = client.session(f"desk-{secrets.token_hex(4)}", "clerk")
        first = await session.say("pay")
        report = await first.result()
        turn = client.turn(report.turn_id)
        await (await turn.undo("call_1_1")).result()
        second = await (await session.say("pay again")).result()
        third = await (await session.say("and again")).result()
        fork = await (await turn.fork(0)).result()

    assert all_invoices(bank) == ["i-1", "i-1"]
    assert len({key for *_, key in bank.ledger}) == 2
    assert results(second) == [(ToolOutcome.DONE, "paid i-1")]
    assert results(third)[0][1].startswith("Done before, in step 1 of turn")
    assert results(fork)[0] == (ToolOutcome.DONE, "paid i-1")  # by its key, the service knows it


@pytest.mark.slow
@pytest.mark.accepts("T61")
async def test_call_is_not_made_while_it_is_taken_back(runtime: Runtime, bank: Bank) -> None:
    """Whether it will be there is open. When that was denied, the call is answered as before."""

    @tool(requires_approval=True)
    def refund(invoice: str, ctx: ToolContext[Any]) -> str:
        return bank.refund(invoice, ctx)

    agent = Agent(name="clerk", model="scripted:clerk", tools=[payer(bank, undo=refund)])
    model = ScriptedModel(*(pays(), says("paid"), pays(), says("no"), pays(), says("paid")))
    async with runtime(agent, model=model) as client:
        turn = await paid(client)
        undo = await turn.undo("call_1_1")
        [waiting] = await pending(undo)
        during = await (await turn.fork(0)).result()
        await undo.deny(waiting)
        await undo.wait()
        after = await (await turn.fork(0)).result()

    assert len(bank.ledger) == 1
    assert results(during)[0][0] is ToolOutcome.FAILED
    assert "is being taken back" in results(during)[0][1]
    assert results(after)[0][1].startswith("Done before, in step 1 of turn")


@pytest.mark.slow
@pytest.mark.accepts("T58", "T59")
async def test_settled_call_can_be_taken_back(runtime: Runtime, bank: Bank) -> None:
    """A person has said that the lost payment was made, and then takes it back."""
    bank.loses = 1
    model = ScriptedModel(pays(), says("perhaps"), pays(), says("paid"))
    async with runtime(clerk(bank), model=model) as client:
        turn = await paid(client)
        with pytest.raises(errors.InvalidRequestError, match="may be there, or not"):
            await turn.undo("call_1_1")
        await turn.settle("call_1_1", "done", "paid i-1", by="anna")
        await (await turn.undo("call_1_1", by="anna")).result()
        [record] = await turn.effects()
        fork = await (await turn.fork(0)).result()

    assert record.status == "undone"
    assert [refunded for refunded, _ in bank.refunds] == ["i-1"]
    assert results(fork)[0] == (ToolOutcome.DONE, "paid i-1")
    assert len(bank.ledger) == 2


@pytest.mark.slow
@pytest.mark.accepts("T59")
async def test_undo_is_not_undone(runtime: Runtime, bank: Bank) -> None:
    """Its turn says so, also if what takes the effect back could be taken back elsewhere."""

    def pay_again(invoice: str) -> str:
        return f"paid {invoice} again"

    @tool(undo=pay_again)
    def refund(invoice: str, ctx: ToolContext[Any]) -> str:
        return bank.refund(invoice, ctx)

    agent = Agent(name="clerk", model="scripted:clerk", tools=[payer(bank, undo=refund)])
    model = ScriptedModel(pays(), says("paid"))
    async with runtime(agent, model=model) as client:
        undo = await (await paid(client)).undo("call_1_1")
        report = await undo.result()
        with pytest.raises(errors.InvalidRequestError, match="has no undo="):
            await undo.undo("undo")

    assert report.undoable == ()
