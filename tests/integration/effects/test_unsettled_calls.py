"""Calls whose outcome stays unknown: what each place that shows a turn says of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest

from perdure import Agent, tool
from perdure.agents.tools import Tool
from perdure.clients import Turn
from perdure.clients.cli.common import Display
from perdure.clients.cli.running.approvals import ApprovalOptions, decide
from perdure.clients.cli.running.following import follow
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.values.states import State

from ...conftest import Runtime
from ...support.approving import pending
from ...support.delegating import delegate
from ...support.listing import entry_of
from ...support.long_turns import begin, filling, reader, runs_of
from ...support.receiver import Receiver
from ...support.spending import look
from ...support.web_ui import card_of, rows_of

LOST = httpx.ReadTimeout("no answer in 5 s")


def payer(paid: list[str], **options: Any) -> Tool:
    """A tool whose first answer is lost."""

    @tool(**options)
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        paid.append(invoice)
        if len(paid) == 1:
            raise LOST
        return f"paid {invoice}"

    return pay


def pays() -> Any:
    return calls(call("pay", invoice="i-1"))


async def counts(client: Any, turn: Turn[Any]) -> tuple[int, int]:
    """The number of unsettled calls by the status and by the list."""
    entry = await entry_of(client, turn.id, in_state=State.ENDED)
    return (await turn.status()).unsettled, entry.unsettled


@pytest.mark.slow
@pytest.mark.accepts("T56")
async def test_caller_is_told_of_calls_of_delegates(
    runtime: Runtime, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Report, status, list, webhook and command line have the number; the delegate has the call."""
    script = {
        "Settle all": ScriptedModel(delegate("clerk", "Pay one"), says("done")),
        "Pay one": ScriptedModel(pays(), says("perhaps")),
    }
    agents = [
        Agent(name="boss", model="scripted:boss", delegates=["clerk"]),
        Agent(name="clerk", model="scripted:clerk", tools=[payer([])]),
    ]
    async with runtime(agents, model=ByTask(script)) as client:
        turn = await client.start("boss", "Settle all", on_done=receiver.url("/unsettled"))
        report = await turn.result()
        below = await client.turn(report.children[0].turn_id).result()
        known = await counts(client, turn)
        [hook] = await receiver.until("/unsettled")
        await follow(client, turn, Display())
        printed = capsys.readouterr()

    assert (report.unsettled, report.children[0].unsettled) == ((), 1)
    assert [one.tool for one in below.unsettled] == ["pay"]
    assert known == (1, 1)
    assert hook.verified()["data"]["unsettled"] == 1
    told = f"outcome unknown: 1 call of turn {below.turn_id}"
    assert told in printed.out + printed.err


@pytest.mark.accepts("T56")
async def test_call_of_a_delegate_that_another_delegate_looks_up_is_settled(
    runtime: Runtime,
) -> None:
    """The second call has the same effect, and finds it."""
    paid: list[str] = []
    reads: list[str] = []

    def find_payment(invoice: str) -> str | None:
        from perdure import OutcomeUnknown

        reads.append(invoice)
        if len(reads) == 1:
            raise OutcomeUnknown("the books are closed")
        return f"found {invoice}" if invoice in paid else None

    pay = payer(paid, effect=lambda one: (one.invoice,), verify=find_payment)
    script = {
        "Settle all": ScriptedModel(
            delegate("clerk", "Pay one"), delegate("clerk", "Pay it"), says("done")
        ),
        "Pay one": ScriptedModel(pays(), says("perhaps")),
        "Pay it": ScriptedModel(pays(), says("paid")),
    }
    agents = [
        Agent(name="boss", model="scripted:boss", delegates=["clerk"]),
        Agent(name="clerk", model="scripted:clerk", tools=[pay]),
    ]
    async with runtime(agents, model=ByTask(script)) as client:
        turn = await client.start("boss", "Settle all")
        report = await turn.result()
        known = await counts(client, turn)

    assert (paid, reads) == (["i-1"], ["i-1", "i-1"])
    assert [child.unsettled for child in report.children] == [1, 0]
    assert known == (0, 0)


@pytest.mark.slow
@pytest.mark.accepts("T56")
async def test_call_of_an_earlier_run_is_counted_at_the_end(runtime: Runtime) -> None:
    """The later run has carried it over."""
    agent = reader(parallel_tools=True, tools=[look, payer([])])
    model = ScriptedModel(pays(), *filling(), says("done"))
    async with runtime(agent, model=model) as client:
        turn = await begin(client)
        report = await turn.result()
        known = await counts(client, turn)
        runs = await runs_of(client, turn)

    assert len(runs) > 1
    assert [one.step for one in report.unsettled] == [1]
    assert known == (1, 1)


@pytest.mark.slow
@pytest.mark.accepts("T55", "O10")
async def test_card_shows_a_call_while_it_is_looked_up_and_while_people_are_asked(
    runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status says so, too, and `perdure approvals` has the commands that settle the call."""

    def find_payment(invoice: str) -> str | None:
        from perdure import OutcomeUnknown

        raise OutcomeUnknown("the books are closed")

    pay = payer([], verify=find_payment, settle=timedelta(seconds=2), on_unknown="pause")
    agent = Agent(name="clerk", model="scripted:clerk", tools=[pay])
    async with runtime(agent, model=ScriptedModel(pays(), says("done"))) as client:
        turn = await client.start("clerk", "go")
        async with asyncio.timeout(60):
            while "waits before pay is looked up" not in (await turn.status()).doing:  # noqa: ASYNC110 - history is polled
                await asyncio.sleep(0.05)
        settling = await card_of(client.temporal, turn.id)
        [asked] = await pending(turn)
        waits = await card_of(client.temporal, turn.id)
        await decide(client, ApprovalOptions(turn=turn.id))
        shown = capsys.readouterr()
        await decide(client, ApprovalOptions())
        listed = capsys.readouterr().out
        await turn.settle(asked, "absent", by="anna")
        await turn.result()
        rows = await rows_of(client.temporal, (await client.history(turn)).events)

    assert "step 1: waits 2 s before pay is looked up" in settling
    assert "**Outcome unknown:** pay: pay: ReadTimeout: no answer in 5 s" in settling
    assert "**Outcome unknown; `perdure settle` says what became of:**" in waits
    assert "- **pay** (" in waits
    assert "the books are closed" in waits
    assert "step 1: has pay taken effect?" in rows
    assert f"{asked.call_id}  pay, outcome unknown  expires in" in shown.out
    assert "the books are closed" in " ".join(shown.out.split())
    assert shown.err.split("\n")[1:4] == [
        f"perdure settle {turn.id} {asked.call_id} done --result …",
        f"perdure settle {turn.id} {asked.call_id} absent",
        f"perdure settle {turn.id} {asked.call_id} again",
    ]
    assert "pay, outcome unknown" in " ".join(listed.split())
