"""Calls of unknown outcome that a person settles when their turn has gone on, or is over."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

from perdure import Agent, Delegate, OutcomeUnknown, ToolContext, ToolOutcome, errors, tool
from perdure.agents.tools import Tool
from perdure.temporal.settlements import workflow_id
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.effect_values import CallPlace
from perdure.values.approvals import Settlement
from perdure.values.reports import AgentReport
from perdure.values.states import State
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.banking import LOST, Bank, payer, pays, refunder, results
from ...support.delegating import FREE
from ...support.encrypting import converter
from ...support.listing import entry_of
from ...support.long_turns import begin, filling, runs_of
from ...support.resets import reset, task_ends
from ...support.spending import look

FIRST = "call_1_1"


@pytest.fixture
def bank() -> Bank:
    """A bank that loses its first answer."""
    return Bank(loses=1)


def clerk(bank: Bank, *tools: Tool, **options: Any) -> Agent:
    return Agent(name="clerk", model="scripted:clerk", tools=[payer(bank, **options), *tools])


def holder() -> tuple[Tool, asyncio.Event, asyncio.Event]:
    """A tool that waits, with the event that it has begun, and the event that ends it."""
    began, ends = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def hold() -> str:
        began.set()
        await ends.wait()
        return "held"

    return hold, began, ends


def is_answered(report: AgentReport, result: str, place: str) -> bool:
    """Whether the last call was answered with a person's result."""
    told = f"Done before, in {place}, and not again. The result was: {result}"
    return results(report)[-1] == (ToolOutcome.DONE, told)


def closed(bank: Bank) -> Any:
    """A read-back that never knows."""

    def find_payment(invoice: str) -> str | None:
        bank.find(invoice)
        raise OutcomeUnknown("the books are closed")

    return find_payment


@pytest.mark.accepts("T57")
async def test_next_turn_of_a_session_follows_what_was_said_after_the_end(
    runtime: Runtime, bank: Bank
) -> None:
    """The call is settled in the report and the status; the list keeps the count of the end."""
    model = ScriptedModel(pays(), says("perhaps"), pays(amount=31), says("paid"))
    async with runtime(clerk(bank), model=model) as client:
        session = client.session(f"chat-{secrets.token_hex(4)}", "clerk")
        first: AgentReport = await (await session.say("pay")).result()
        turn = client.turn(first.turn_id)
        before = (await turn.status()).unsettled
        await turn.settle(first.unsettled[0], "done", "payment 4711", by="anna")
        after = await turn.result()
        status, entry = await turn.status(), await entry_of(client, turn.id, in_state=State.ENDED)
        report: AgentReport = await (await session.say("pay again")).result()
        third = await client.turn(report.turn_id).status()

    assert [unsettled.call_id for unsettled in first.unsettled] == [FIRST]
    assert (before, after.unsettled, status.unsettled, entry.unsettled) == (1, (), 0, 1)
    assert is_answered(report, "payment 4711", f"step 1 of turn {turn.id}")
    assert (len(bank.ledger), third.unsettled) == (1, 0)


@pytest.mark.accepts("T57")
@pytest.mark.parametrize(
    ("settlement", "made"), [("done", 1), ("absent", 2)], ids=["done", "absent"]
)
@pytest.mark.parametrize("kind", ["mail", "verify", "service-key"])
@pytest.mark.slow
async def test_fork_follows_what_was_said(
    runtime: Runtime, settlement: Settlement, made: int, kind: str
) -> None:
    """What a person says replaces a read-back, and a call with the same key."""
    bank = Bank(loses=3 if kind == "service-key" else 1, is_idempotent=kind == "service-key")
    options: dict[str, Any] = {
        "mail": {},
        "verify": {"verify": closed(bank)},
        "service-key": {"idempotent": True},
    }[kind]
    model = ScriptedModel(pays(), says("perhaps"), pays(), says("paid"))
    async with runtime(clerk(bank, **options), model=model) as client:
        turn = await client.start("clerk", "pay")
        first = await turn.result()
        await turn.settle(
            FIRST, settlement, "payment 4711" if settlement == "done" else "", by="anna"
        )
        reads = bank.reads
        report = await (await turn.fork(0)).result()

    assert [unsettled.call_id for unsettled in first.unsettled] == [FIRST]
    made_there = 1 if bank.is_idempotent else made
    assert (len(bank.ledger), bank.reads) == (made_there, reads)
    if settlement == "done":
        assert is_answered(report, "payment 4711", f"step 1 of turn {turn.id}")
    else:
        assert results(report)[-1] == (ToolOutcome.DONE, "paid i-1")


@pytest.mark.slow
@pytest.mark.accepts("T57")
async def test_resumed_turn_follows_what_was_said_of_a_call_that_a_cancel_cut_off(
    runtime: Runtime, bank: Bank
) -> None:
    """It still ran when the turn ended, so there is no result."""
    began = asyncio.Event()

    @tool(effect=["invoice"])
    async def pay(invoice: str, amount: int, ctx: ToolContext[Any]) -> str:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        bank.loses = 0
        return bank.pay(invoice, amount, ctx)

    agent = Agent(name="clerk", model="scripted:clerk", tools=[pay])
    async with runtime(agent, model=ScriptedModel(pays(), pays(), says("paid"))) as client:
        turn = await client.start("clerk", "pay")
        await began.wait()
        with pytest.raises(errors.ApprovalConflictError, match="such calls: none"):
            await turn.settle(FIRST, "absent")
        await turn.cancel("stop")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
        await turn.settle(FIRST, "absent", by="anna")
        with pytest.raises(errors.TurnCancelledError) as caught:
            await turn.result()
        report = await (await turn.resume()).result()

    assert caught.value.report is not None
    assert caught.value.report.unsettled == ()
    assert results(report)[-1] == (ToolOutcome.DONE, "paid i-1")
    assert len(bank.ledger) == 1


@pytest.mark.slow
@pytest.mark.accepts("T57")
@pytest.mark.parametrize(
    ("settlement", "made"), [("done", 1), ("absent", 2)], ids=["done", "absent"]
)
async def test_running_turn_follows_what_was_said_when_it_had_gone_on(
    runtime: Runtime, bank: Bank, settlement: Settlement, made: int
) -> None:
    """With `on_unknown="tell"`; before that, a second call is not made."""
    hold, began, ends = holder()
    model = ScriptedModel(pays(), pays(), calls(call("hold")), pays(), pays(), says("paid"))
    async with runtime(clerk(bank, hold), model=model) as client:
        turn = await client.start("clerk", "pay")
        await began.wait()
        await turn.settle(FIRST, settlement, "payment 4711", by="anna")
        ends.set()
        report = await turn.result()
        counted = (await turn.status()).unsettled

    outcomes = [outcome for outcome, _ in results(report)]
    assert outcomes[:2] == [ToolOutcome.UNKNOWN, ToolOutcome.NOT_RUN]
    assert outcomes[3:] == [ToolOutcome.DONE, ToolOutcome.DONE]
    assert len(bank.ledger) == made
    assert (report.unsettled, counted) == ((), 0)
    place = "step 1" if settlement == "done" else "step 4"
    assert is_answered(report, "payment 4711" if settlement == "done" else "paid i-1", place)


@pytest.mark.slow
@pytest.mark.accepts("T57")
async def test_effect_that_may_recur_is_brought_about_again_once_it_is_known(
    runtime: Runtime, bank: Bank
) -> None:
    """Only what is unknown is in its way."""
    hold, began, ends = holder()
    model = ScriptedModel(pays(), pays(), calls(call("hold")), pays(), says("paid"))
    async with runtime(clerk(bank, hold, may_recur=True), model=model) as client:
        turn = await client.start("clerk", "pay")
        await began.wait()
        await turn.settle(FIRST, "done", by="anna")
        ends.set()
        report = await turn.result()

    assert results(report)[1][0] is ToolOutcome.NOT_RUN
    assert results(report)[-1] == (ToolOutcome.DONE, "paid i-1")
    assert len(bank.ledger) == 2


@pytest.mark.slow
@pytest.mark.accepts("T57")
async def test_call_of_a_delegate_is_settled_at_its_own_turn(runtime: Runtime, bank: Bank) -> None:
    """The parent follows it, and counts it no more."""
    hold, began, ends = holder()
    boss = Agent(
        name="boss",
        model="scripted:boss",
        tools=[payer(bank), hold],
        delegates=[Delegate("clerk")],
    )
    pay_one = call("delegate_to_agent", agent="clerk", task="pay")
    models = {
        "boss": ScriptedModel(calls(pay_one), calls(call("hold")), pays(), says("done")),
        "clerk": ScriptedModel(pays(), says("perhaps")),
    }
    async with runtime(AgentWorker([boss, clerk(bank)], prices=FREE), model=models) as client:
        turn = await client.start("boss", "pay")
        await began.wait()
        below = client.turn((await turn.status()).children[0].id)
        with pytest.raises(errors.ApprovalConflictError, match=f"no call '{FIRST}_2'"):
            await turn.settle(f"{FIRST}_2", "done")
        await below.settle(FIRST, "done", "payment 4711", by="anna")
        ends.set()
        report = await turn.result()
        counted = (await turn.status()).unsettled

    assert is_answered(report, "payment 4711", f"step 1 of turn {below.id}")
    assert (len(bank.ledger), counted) == (1, 0)


@pytest.mark.slow
@pytest.mark.accepts("T57")
async def test_status_leaves_out_the_settled_call_of_a_delegate(
    runtime: Runtime, bank: Bank
) -> None:
    """Although the parent is over, and no later call has met the effect."""
    boss = Agent(name="boss", model="scripted:boss", delegates=[Delegate("clerk")])
    pay_one = call("delegate_to_agent", agent="clerk", task="pay")
    models = {
        "boss": ScriptedModel(calls(pay_one), says("done")),
        "clerk": ScriptedModel(pays(), says("perhaps")),
    }
    async with runtime(AgentWorker([boss, clerk(bank)], prices=FREE), model=models) as client:
        turn = await client.start("boss", "pay")
        report = await turn.result()
        before = (await turn.status()).unsettled
        await client.turn(report.children[0].turn_id).settle(FIRST, "absent")
        after = (await turn.status()).unsettled

    assert (before, after) == (1, 0)


@pytest.mark.slow
@pytest.mark.accepts("T57")
async def test_call_of_an_earlier_run_is_settled(runtime: Runtime, bank: Bank) -> None:
    """A turn that continues in a new run has carried the record over; the tool has no effect key,
    or it has one.
    """

    @tool
    def send(to: str) -> str:
        raise LOST

    agent = Agent(
        name="reader",
        model="scripted:reader",
        tools=[look, payer(bank), send],
        max_iterations="unlimited",
        parallel_tools=True,
    )
    both = calls(call("pay", invoice="i-1", amount=30), call("send", to="anna"))
    model = ScriptedModel(both, *filling(3), pays(), says("paid"))
    async with runtime(agent, model=model) as client:
        turn = await begin(client)
        report = await turn.result()
        runs = await runs_of(client, turn)
        counts = [(await turn.status()).unsettled]
        for unsettled in report.unsettled:
            await turn.settle(unsettled, "done", by="anna")
            counts.append((await turn.status()).unsettled)
        after = await turn.result()

    assert len(runs) > 1
    assert [unsettled.tool for unsettled in report.unsettled] == ["pay", "send"]
    assert (counts, after.unsettled) == ([2, 1, 0], ())


@pytest.mark.accepts("T58")
async def test_first_person_counts(runtime: Runtime, bank: Bank) -> None:
    """Others read what was said, and by whom; so does the first one who says it again."""
    async with runtime(clerk(bank), model=ScriptedModel(pays(), says("perhaps"))) as client:
        turn = await client.start("clerk", "pay")
        await turn.result()
        said = await asyncio.gather(
            turn.settle(FIRST, "done", by="anna"),
            client.turn(turn.id).settle(FIRST, "done", by="anna"),
            return_exceptions=True,
        )
        with pytest.raises(errors.ApprovalConflictError) as caught:
            await turn.settle(FIRST, "absent", by="bert")

    [refused] = [error for error in said if error is not None]
    assert isinstance(refused, errors.ApprovalConflictError)
    told = f"the call '{FIRST}' of turn '{turn.id}' is already settled by anna: done"
    assert refused.message == caught.value.message == f"{told}; nothing was decided"


@pytest.mark.accepts("T58")
async def test_what_cannot_be_settled_is_refused(runtime: Runtime, bank: Bank) -> None:
    """With the calls that can be."""
    model = ScriptedModel(pays(), pays("i-2"), says("perhaps"))
    async with runtime(clerk(bank), model=model) as client:
        turn = await client.start("clerk", "pay")
        report = await turn.result()
        [lost] = report.unsettled
        other = lost.model_copy(update={"arguments": "{}"})
        refused: list[tuple[type[Exception], str, Any]] = [
            (errors.InvalidRequestError, "settle it as absent", (FIRST, "again")),
            (errors.ApprovalConflictError, f"such calls: {FIRST}", ("call_2_1", "done")),
            (errors.ApprovalConflictError, "is not the call that was reviewed", (other, "done")),
            (errors.InvalidRequestError, "the answer", (FIRST, "done", 7)),
        ]
        for error, told, arguments in refused:
            with pytest.raises(error, match=told):
                await turn.settle(*arguments)
        with pytest.raises(errors.InvalidRequestError, match="by"):
            await turn.settle(FIRST, "done", by="two\nlines")
        with pytest.raises(errors.ApprovalConflictError):
            await turn.settle(FIRST, "done", token="0" * 12)
        after = await turn.result()

    assert after.unsettled == (lost,)


@pytest.mark.slow
@pytest.mark.accepts("T58")
async def test_call_that_a_later_call_has_settled_needs_nobody(
    runtime: Runtime, bank: Bank
) -> None:
    """A read-back has found the effect."""
    reads: list[str] = []

    def find_payment(invoice: str) -> str | None:
        reads.append(invoice)
        if len(reads) == 1:
            raise OutcomeUnknown("the books are closed")
        return "found"

    model = ScriptedModel(pays(), pays(), says("paid"))
    async with runtime(clerk(bank, verify=find_payment), model=model) as client:
        turn = await client.start("clerk", "pay")
        report = await turn.result()
        with pytest.raises(errors.ApprovalConflictError, match="already settled by a later call"):
            await turn.settle(FIRST, "absent")

    assert report.unsettled == ()


@pytest.mark.slow
@pytest.mark.accepts("T58")
async def test_what_was_said_before_a_reset_is_about_the_call_before_it(
    runtime: Runtime, bank: Bank
) -> None:
    """Absent: the turn pays after the reset. That call is lost, too, at the same place, and needs a
    word of its own.
    """
    bank.loses = 2
    model = ScriptedModel(pays(), says("a"), pays(), pays(), says("b"), pays(), says("c"))
    async with runtime(clerk(bank), model=model) as client:
        turn = await client.start("clerk", "pay")
        await turn.result()
        await turn.settle(FIRST, "absent", by="anna")
        again = await reset(client, turn, task_ends(await client.history(turn))[0])
        report = await again.result()
        counted = (await again.status()).unsettled
        await again.settle(report.unsettled[0], "done", "payment 4712", by="bert")
        after = await again.result()
        fork = await (await again.fork(0)).result()

    assert [outcome for outcome, _ in results(report)] == [ToolOutcome.UNKNOWN, ToolOutcome.NOT_RUN]
    assert [unsettled.call_id for unsettled in report.unsettled] == [FIRST]
    assert (counted, after.unsettled) == (1, ())
    assert is_answered(fork, "payment 4712", f"step 1 of turn {turn.id}")
    assert len(bank.ledger) == 2


@pytest.mark.slow
@pytest.mark.accepts("T58")
async def test_turn_that_is_reset_follows_what_was_said_before(
    runtime: Runtime, bank: Bank
) -> None:
    """Done: the effect is there, and the turn does not pay again."""
    model = ScriptedModel(pays(), says("a"), pays(), says("b"))
    async with runtime(clerk(bank), model=model) as client:
        turn = await client.start("clerk", "pay")
        await turn.result()
        await turn.settle(FIRST, "done", "payment 4711", by="anna")
        again = await reset(client, turn, task_ends(await client.history(turn))[0])
        report = await again.result()

    assert is_answered(report, "payment 4711", "a step before the turn was reset")
    assert len(bank.ledger) == 1


@pytest.mark.slow
@pytest.mark.accepts("T58")
async def test_what_was_said_is_encrypted(runtime: Runtime, bank: Bank) -> None:
    """As everything else is."""
    model = ScriptedModel(pays(), says("perhaps"))
    async with runtime(clerk(bank), model=model, data_converter=converter) as client:
        turn = await client.start("clerk", "pay")
        [lost] = (await turn.result()).unsettled
        await turn.settle(lost, "done", "payment 4711", by="anna")
        after = await turn.result()
        kept_in = workflow_id(CallPlace(turn.id, lost.step, lost.call_id))
        handle = client.temporal.get_workflow_handle(kept_in)
        first = (await handle.fetch_history()).events[0]
        with pytest.raises(errors.ApprovalConflictError, match="by anna: done"):
            await turn.settle(lost, "absent")

    assert after.unsettled == ()
    assert b"4711" not in first.SerializeToString()


@pytest.mark.slow
@pytest.mark.accepts("T57")
async def test_effect_that_is_there_as_a_person_says_is_taken_back(
    runtime: Runtime, bank: Bank
) -> None:
    """Before that, nobody knows whether there is something to take back."""
    agent = clerk(bank, undo=refunder(bank))
    async with runtime(agent, model=ScriptedModel(pays(), says("perhaps"))) as client:
        turn = await client.start("clerk", "pay")
        await turn.result()
        with pytest.raises(errors.InvalidRequestError, match="may be there, or not"):
            await turn.undo(FIRST)
        await turn.settle(FIRST, "done", "paid i-1", by="anna")
        [known] = await turn.effects()
        await (await turn.undo(FIRST, by="anna")).result()
        [undone] = await turn.effects()

    assert (known.status, known.result, undone.status) == ("done", "paid i-1", "undone")
    assert [invoice for invoice, _ in bank.refunds] == ["i-1"]
