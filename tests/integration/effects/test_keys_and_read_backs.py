"""Effects of calls: their keys, answers from the record, and what is looked up after a loss."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, ToolContext, ToolOutcome, errors, tool
from perdure.agents.tools import Tool
from perdure.clients import Turn
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.approvals import PendingApproval, Settlement
from perdure.values.reports import AgentReport

from ...conftest import Run, Runtime
from ...support.banking import Bank, payer, pays, reader, results
from ...support.spending import SOON_S


@pytest.fixture
def bank() -> Bank:
    return Bank()


async def report_of(run: Run, item: Tool, *answers: Any, **options: Any) -> AgentReport:
    report: AgentReport = await run(ScriptedModel(*answers, says("done")), tools=[item], **options)
    return report


@pytest.mark.accepts("T46")
async def test_second_call_with_the_same_effect_is_answered_from_the_record(
    run: Run, bank: Bank
) -> None:
    """It does not run, also with other arguments beside those that say what the effect is."""
    report = await report_of(run, payer(bank), pays(), pays(amount=31), pays("i-2"))

    assert [(invoice, amount) for invoice, amount, _ in bank.ledger] == [("i-1", 30), ("i-2", 30)]
    assert results(report) == [
        (ToolOutcome.DONE, "paid i-1"),
        (ToolOutcome.DONE, "Done before, in step 1, and not again. The result was: paid i-1"),
        (ToolOutcome.DONE, "paid i-2"),
    ]
    keys = [key for *_, key in bank.ledger]
    assert len(set(keys)) == 2
    assert all(len(key) == 32 for key in keys)


@pytest.mark.slow
@pytest.mark.accepts("T46")
@pytest.mark.parametrize("parallel", [True, False])
async def test_two_calls_of_one_answer_with_the_same_effect_run_once(
    run: Run, bank: Bank, parallel: bool
) -> None:
    """With parallel tools, too."""
    twice = calls(call("pay", invoice="i-1", amount=30), call("pay", invoice="i-1", amount=30))

    report = await report_of(run, payer(bank), twice, parallel_tools=parallel)

    assert len(bank.ledger) == 1
    assert [outcome for outcome, _ in results(report)] == [ToolOutcome.DONE, ToolOutcome.DONE]
    assert results(report)[1][1].startswith("Done before, in step 1")


@pytest.mark.slow
@pytest.mark.accepts("T46")
async def test_effect_that_may_recur_runs_again_with_the_same_key(run: Run, bank: Bank) -> None:
    """The service may recognize it."""
    await report_of(run, payer(bank, may_recur=True), pays(), pays())

    [first, second] = bank.ledger
    assert first == second


@pytest.mark.slow
@pytest.mark.accepts("T46")
async def test_effect_is_that_of_the_arguments_that_a_person_has_given(
    runtime: Runtime, bank: Bank
) -> None:
    """Not of those that the model wrote: a call with the changed ones is the second."""
    item = payer(bank, requires_approval=True)
    agent = Agent(name="clerk", model="scripted:x", tools=[item])
    model = ScriptedModel(pays("i-1"), pays("i-2"), pays("i-1"), says("done"))
    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "pay")
        changes: Any = ({"invoice": "i-2", "amount": 5}, None, None)
        for arguments in changes:
            await turn.approve(await pending_of(turn), arguments=arguments)
        report = await turn.result()

    assert [invoice for invoice, *_ in bank.ledger] == ["i-2", "i-1"]
    assert results(report)[1][1].startswith("Done before, in step 1")


@pytest.mark.accepts("T47")
async def test_lost_call_is_looked_up_and_found(run: Run, bank: Bank) -> None:
    """What the read-back returns is the result."""
    bank.loses = 1

    report = await report_of(run, payer(bank, verify=reader(bank)), pays())

    [(outcome, content)] = results(report)
    assert outcome is ToolOutcome.VERIFIED
    assert content.startswith("found i-1, 30\n[")
    assert not report.steps[0].results[0].is_error
    assert report.unsettled == ()
    assert len(bank.ledger) == 1


@pytest.mark.slow
@pytest.mark.accepts("T47")
async def test_call_that_has_not_taken_effect_is_made_again_if_it_may_be(
    run: Run, bank: Bank
) -> None:
    """As the second attempt, with the same key."""
    bank.drops = 1

    item = payer(bank, verify=reader(bank), idempotent=True)
    report = await report_of(run, item, pays())

    assert results(report) == [(ToolOutcome.DONE, "paid i-1")]
    assert (len(bank.ledger), bank.reads, bank.attempts) == (1, 1, [1, 2])


@pytest.mark.slow
@pytest.mark.accepts("T47")
async def test_call_that_may_not_be_repeated_is_said_to_be_without_effect(
    run: Run, bank: Bank
) -> None:
    """The model may then call it again, and that call runs."""
    bank.drops = 1

    report = await report_of(run, payer(bank, verify=reader(bank)), pays(), pays())

    [(first, content), second] = results(report)
    assert (first, second) == (ToolOutcome.FAILED, (ToolOutcome.DONE, "paid i-1"))
    assert content.endswith("[It was looked up afterwards, and its effect was not there.]")
    assert (len(bank.ledger), bank.attempts) == (1, [1, 1])
    assert report.unsettled == ()


@pytest.mark.slow
@pytest.mark.accepts("T47")
async def test_read_back_is_repeated_while_the_service_is_away(run: Run, bank: Bank) -> None:
    """History has one activity for all attempts."""
    bank.loses, bank.is_away = 1, 2

    report = await report_of(run, payer(bank, verify=reader(bank)), pays())

    assert results(report)[0][0] is ToolOutcome.VERIFIED
    assert bank.reads == 3


@pytest.mark.slow
@pytest.mark.accepts("T47")
async def test_effect_that_appears_late_is_found_after_the_time_to_settle(
    run: Run, bank: Bank
) -> None:
    """The read-back waits for it, in a timer of the turn."""
    from time import monotonic

    bank.loses = 1
    began = monotonic()

    item = payer(bank, verify=reader(bank), settle=timedelta(seconds=1.5))
    report = await report_of(run, item, pays())

    assert results(report)[0][0] is ToolOutcome.VERIFIED
    assert monotonic() - began > 1.5


@pytest.mark.accepts("T48")
async def test_second_call_after_an_unknown_one_is_looked_up_first(run: Run, bank: Bank) -> None:
    """A tool that cannot be read at first stays unknown; a later call with the same effect is not
    made before the first was looked up.
    """
    bank.loses = 1

    def find_payment(invoice: str) -> str | None:
        from perdure import OutcomeUnknown

        found = bank.find(invoice)
        if bank.reads == 1:
            raise OutcomeUnknown("the bank keeps its books closed")
        return found

    report = await report_of(run, payer(bank, verify=find_payment), pays(), pays())

    [(first, reason), (second, content)] = results(report)
    assert first is ToolOutcome.UNKNOWN
    assert "\n[It could not be looked up: the bank keeps its books closed]\n[A later" in reason
    assert second is ToolOutcome.VERIFIED
    assert "[This call was not made: an earlier one, in step 1, has the same effect." in content
    assert (len(bank.ledger), bank.attempts) == (1, [1])
    assert report.unsettled == ()


@pytest.mark.slow
@pytest.mark.accepts("T48")
async def test_second_call_after_an_unknown_one_is_not_made_without_a_read_back(
    run: Run, bank: Bank
) -> None:
    """If the tool may not be repeated; nothing can tell what became of the first."""
    bank.loses = 1

    report = await report_of(run, payer(bank), pays(), pays())

    assert len(bank.ledger) == 1
    assert [outcome for outcome, _ in results(report)] == [ToolOutcome.UNKNOWN, ToolOutcome.NOT_RUN]
    assert "pay: this call was not made. An earlier one, in step 1, has" in results(report)[1][1]
    assert [call.step for call in report.unsettled] == [1]


@pytest.mark.slow
@pytest.mark.accepts("T48")
async def test_second_call_reaches_a_service_that_recognizes_its_key(run: Run, bank: Bank) -> None:
    """The tool says so with `idempotent=True`. What it returns settles the first call."""
    bank.loses, bank.is_idempotent = 3, True

    report = await report_of(run, payer(bank, idempotent=True), pays(), pays())

    assert (len(bank.ledger), bank.attempts) == (1, [1, 2, 3, 1])
    assert [outcome for outcome, _ in results(report)] == [ToolOutcome.UNKNOWN, ToolOutcome.DONE]
    assert report.unsettled == ()


@pytest.mark.slow
@pytest.mark.accepts("T64")
async def test_service_that_recognizes_the_key_is_asked_again(run: Run, bank: Bank) -> None:
    """The model does not hear of the lost answer, and the payment is made once."""
    bank.loses, bank.is_idempotent = 2, True

    report = await report_of(run, payer(bank, idempotent=True), pays())

    assert (len(bank.ledger), bank.attempts) == (1, [1, 2, 3])
    assert results(report) == [(ToolOutcome.DONE, "paid i-1")]
    assert report.unsettled == ()


@pytest.mark.slow
@pytest.mark.accepts("T64")
async def test_service_is_asked_again_after_the_time_of_the_tool_is_up(run: Run) -> None:
    """Temporal stops the call; the second one has the same key."""
    keys: list[str] = []

    @tool(effect=["invoice"], idempotent=True, timeout=timedelta(seconds=0.5))
    async def pay(invoice: str, amount: int, ctx: ToolContext[Any]) -> str:
        keys.append(ctx.effect_key)
        if len(keys) == 1:
            await asyncio.sleep(60)
        return f"paid {invoice}"

    report = await report_of(run, pay, pays())

    assert len(keys) == 2
    assert len({*keys}) == 1
    assert results(report) == [(ToolOutcome.DONE, "paid i-1")]


@pytest.mark.slow
@pytest.mark.accepts("T64")
@pytest.mark.parametrize("options", [{}, {"effect": None, "idempotent": True}], ids=["once", "key"])
async def test_call_without_such_a_key_is_not_made_again(
    run: Run, bank: Bank, options: dict[str, Any]
) -> None:
    """A tool that may not be repeated, and one whose key is that of the call."""
    bank.loses = 1

    report = await report_of(run, payer(bank, **options), pays())

    assert bank.attempts == [1]
    assert results(report)[0][0] is ToolOutcome.UNKNOWN


@pytest.mark.accepts("T49")
async def test_turn_fails_if_its_tool_says_so(run: Run, bank: Bank) -> None:
    """The error is typed, and its report lists the call."""
    bank.loses = 1

    with pytest.raises(errors.EffectUnknownError, match="whether it took effect is unknown") as got:
        await report_of(run, payer(bank, on_unknown="fail"), pays())

    assert got.value.report is not None
    assert [unsettled.tool for unsettled in got.value.report.unsettled] == ["pay"]


@pytest.mark.slow
@pytest.mark.accepts("T46")
async def test_failing_effect_function_keeps_the_call_from_running(run: Run, bank: Bank) -> None:
    """Without a key, nothing would protect the effect."""

    def keyed(paid: Any) -> object:
        raise KeyError("no customer")

    report = await report_of(run, payer(bank, effect=keyed), pays())

    assert bank.ledger == []
    assert results(report)[0][0] is ToolOutcome.FAILED
    assert results(report)[0][1].startswith("pay was not called: its effect= failed: KeyError")


@pytest.mark.accepts("T46")
async def test_call_without_a_fault_has_no_further_event(runtime: Runtime, bank: Bank) -> None:
    """With a key and a read-back, history has as many events as without."""
    lengths = []
    for options in ({"effect": None}, {"verify": reader(bank)}):
        agent = Agent(name="clerk", model="scripted:x", tools=[payer(bank, **options)])
        async with runtime(agent, model=ScriptedModel(pays(), says("done"))) as client:
            turn = await client.start(agent, "pay")
            await turn.result()
            lengths.append(len((await client.history(turn)).events))

    assert lengths[0] == lengths[1]


@pytest.mark.accepts("T50")
@pytest.mark.parametrize("settlement", ["done", "absent", "again", None])
@pytest.mark.slow
async def test_person_says_what_became_of_a_call(
    runtime: Runtime, bank: Bank, settlement: Settlement | None
) -> None:
    """The turn waits for that. The call is made again only if the person says so."""
    bank.loses = 1
    agent = Agent(name="clerk", model="scripted:x", tools=[payer(bank, on_unknown="pause")])
    async with runtime(agent, model=ScriptedModel(pays(), says("done"))) as client:
        turn = await client.start(agent, "pay")
        pending = await pending_of(turn)
        with pytest.raises(
            errors.ApprovalConflictError, match="settle it as done, absent or again"
        ):
            await turn.approve(pending)
        if settlement is None:
            await turn.deny(pending, "ask the bank", by="anna")
        else:
            await turn.settle(pending, settlement, "number 7", by="anna")
        report = await turn.result()

    assert (pending.tool, pending.is_unknown) == ("pay", True)
    [(outcome, content)] = results(report)
    assert len(bank.ledger) == (2 if settlement == "again" else 1)
    expected = {
        "done": (ToolOutcome.VERIFIED, "A person has looked this call up: it has taken effect: "),
        "absent": (ToolOutcome.FAILED, "A person has looked this call up: it has not taken effect"),
        "again": (ToolOutcome.DONE, "paid i-1"),
        None: (ToolOutcome.UNKNOWN, "pay: ReadTimeout"),
    }[settlement]
    assert outcome is expected[0]
    assert content.startswith(expected[1])
    [decision] = report.steps[0].decisions
    assert (decision.settlement, decision.by) == (settlement, "anna")
    assert bool(report.unsettled) == (settlement is None)


async def pending_of(turn: Turn[Any]) -> PendingApproval:
    """The call that waits for a person."""
    async with asyncio.timeout(SOON_S):
        while not (pending := await turn.pending_approvals()):  # noqa: ASYNC110 - it is read
            await asyncio.sleep(0.05)
    return pending[0]


@pytest.mark.slow
@pytest.mark.accepts("T46", "T47")
@pytest.mark.parametrize("is_async", [False, True])
async def test_code_about_an_effect_cannot_end_the_worker(
    run: Run, bank: Bank, is_async: bool
) -> None:
    """A read-back that exits is tried again; `effect=` that exits keeps the call from running."""
    exits = [SystemExit(3)]

    def find_payment(invoice: str) -> str | None:
        if exits:
            raise exits.pop()
        return bank.find(invoice)

    async def find_later(invoice: str) -> str | None:
        return find_payment(invoice)

    def leave(paid: Any) -> object:
        raise SystemExit(3)

    bank.loses = 1
    found = await report_of(
        run, payer(bank, verify=find_later if is_async else find_payment), pays()
    )
    refused = await report_of(run, payer(bank, effect=leave), pays("i-2"))

    assert results(found)[0][0] is ToolOutcome.VERIFIED
    assert results(refused)[0][0] is ToolOutcome.FAILED
    assert [invoice for invoice, *_ in bank.ledger] == ["i-1"]
