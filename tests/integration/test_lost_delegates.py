"""Delegates that leave no summary: what they spent is never told as zero."""

import asyncio
import contextlib

import pytest

from perdure import Budget, Outcome, errors
from perdure.clients import AgentClient, Turn
from perdure.facts import ChildScheduled, Scheduled
from perdure.testing import ScriptedModel, says
from perdure.worker import AgentWorker

from ..conftest import Runtime
from .delegating import PRICED, delegate, editor, researcher, used
from .ends import listening
from .spending import SOON_S, Held, report_of, until


@pytest.mark.accepts("Y18")
@pytest.mark.parametrize("limit", [None, "100"])
async def test_cost_of_a_delegate_that_was_terminated_is_its_lease_or_unknown(runtime: Runtime, limit: str | None) -> None:
    """With a budget of money its lease bounds what it spent; without one the report, the memo, the list and the log name no cost."""
    held = Held(says("never"))
    models = {"editor": ScriptedModel(delegate("researcher", "Find.", used(300)), says("done", usage=used(300))), "researcher": held}
    worker = AgentWorker([editor(delegates=["researcher"]), researcher()], prices=PRICED)
    async with listening() as records, runtime(worker, model=models) as client:
        turn = await client.start("editor", "go", budget=Budget(usd=limit) if limit else None)
        await until(turn, ChildScheduled)
        child = await found(client, f"{turn.id}/researcher-1")
        await until(child, Scheduled, times=2)
        await client.temporal.get_workflow_handle(child.id).terminate()
        report = await report_of(turn)
        memo = await (await client.temporal.get_workflow_handle(turn.id).describe()).memo_value("perdure")

    [told] = [record for record in records if record["task"] == turn.id and record["event"] == "turn_completed"]
    assert (report.outcome, report.children[0].outcome) == (Outcome.COMPLETED, Outcome.TERMINATED)
    if limit:
        assert report.children[0].cost == report.children[0].spent.usd > 1
        assert report.cost == report.spent.usd == told["cost_usd"] > 1
    else:
        assert (report.children[0].cost, report.cost, told["cost_usd"], memo.get("cost")) == (None,) * 4


async def found(client: AgentClient, turn_id: str) -> Turn:
    """A turn that a parent has asked the server to start."""
    async with asyncio.timeout(SOON_S):
        while True:
            with contextlib.suppress(errors.TurnNotFoundError):
                return await client.get(turn_id)
            await asyncio.sleep(0.05)
