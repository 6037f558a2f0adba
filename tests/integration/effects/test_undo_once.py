"""Effects that are taken back once: whoever asks, and whatever became of an earlier attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, Interceptor, OutboundInterceptor, StartWorkflowInput

from perdure import Agent, Delegate, ToolContext, errors, tool
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ...conftest import Runtime, eventually
from ...support.banking import LOST, Bank, payer, pays
from ...support.delegating import FREE, delegate
from ...support.resets import reset, task_ends

FIRST = "call_1_1"


class Refunds(list[tuple[str, str]]):
    """The refunds of a service that recognizes no key: what is refunded, and the key.

    Its next answers can be lost.
    """

    loses = 0

    def refund(self, invoice: str, ctx: ToolContext[Any]) -> str:
        self.append((invoice, ctx.effect_key))
        if self.loses:
            self.loses -= 1
            raise LOST
        return f"refunded {invoice}"


@pytest.fixture
def refunds() -> Refunds:
    return Refunds()


def clerk(refunds: Refunds, *others: Any, **options: Any) -> Agent:
    tools = [payer(Bank(), undo=refunds.refund), *others]
    return Agent(**{"name": "clerk", "model": "scripted:clerk", "tools": tools, **options})


class Late(Interceptor):
    """Holds back the start of a turn that takes an effect back, until it may go on."""

    def __init__(self) -> None:
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        late = self

        class Held(OutboundInterceptor):
            async def start_workflow(self, input: StartWorkflowInput) -> Any:  # noqa: A002
                late.began.set()
                await late.goes_on.wait()
                return await super().start_workflow(input)

        return Held(next)


@pytest.mark.slow
@pytest.mark.accepts("T59")
async def test_two_people_take_it_back_once(runtime: Runtime, refunds: Refunds) -> None:
    """The second one has looked before the first one asked, and asks when that is done."""
    late = Late()
    async with runtime(clerk(refunds), model=ScriptedModel(pays(), says("paid"))) as client:
        turn = await client.start("clerk", "pay")
        await turn.wait()
        config: dict[str, Any] = {**client.temporal.config(), "interceptors": [late]}
        second = AgentClient(Client(**config), client._task_queue)
        undoing = asyncio.create_task(second.turn(turn.id).undo(FIRST, by="bob"))
        await asyncio.wait_for(late.began.wait(), 60)
        first = await turn.undo(FIRST, by="anna")
        await first.result()
        late.goes_on.set()
        await (await undoing).result()

    assert [refunded for refunded, _ in refunds] == ["i-1"]


@pytest.mark.slow
@pytest.mark.accepts("T60")
async def test_turn_does_not_take_back_what_its_delegate_has(
    runtime: Runtime, refunds: Refunds
) -> None:
    """The delegate has failed, and its undo is over, when the turn above it fails."""
    took_back = asyncio.Event()

    @tool(read_only=True)
    async def look() -> str:
        await asyncio.wait_for(took_back.wait(), 60)
        return ""

    below = clerk(refunds, on_failure="undo", max_iterations=1)
    boss = Agent(
        name="boss",
        model="scripted:boss",
        tools=[look],
        delegates=["clerk"],
        on_failure="undo",
        max_iterations=3,
    )
    scripts = {
        "boss": ScriptedModel(delegate("clerk", "pay"), calls(call("look")), calls(call("look"))),
        "clerk": ScriptedModel(pays()),
    }
    async with runtime(AgentWorker([boss, below], prices=FREE), model=scripts) as client:
        turn = await client.start("boss", "pay")
        await eventually(lambda: len(refunds) == 1, "the refund of the delegate")
        [record] = await turn.effects()
        undo = client.turn(f"{record.turn_id}/undo-{record.step}-{record.call_id}")
        await undo.result()
        before = await undo.first_run()
        took_back.set()
        with pytest.raises(errors.MaxIterationsError):
            await turn.result()
        after = await client.turn(undo.id).first_run()
        await client.turn(undo.id).result()

    assert before == after
    assert len(refunds) == 1


@pytest.mark.slow
@pytest.mark.accepts("T59")
@pytest.mark.parametrize(("settlement", "count"), [("done", 1), ("absent", 2)])
async def test_lost_refund_is_settled_first(
    runtime: Runtime, refunds: Refunds, settlement: Any, count: int
) -> None:
    """Nobody knows whether it was paid back, so it is not, and the turn that lost it is found."""
    async with runtime(clerk(refunds), model=ScriptedModel(pays(), says("paid"))) as client:
        turn = await client.start("clerk", "pay")
        await turn.wait()
        refunds.loses = 1
        lost = await turn.undo(FIRST)
        with pytest.raises(errors.EffectNotUndoneError):
            await lost.result()
        same = await turn.undo(FIRST)
        with pytest.raises(errors.EffectNotUndoneError):
            await same.result()
        await same.settle("undo", settlement, by="anna")
        await (await turn.undo(FIRST)).result()
        [record] = await turn.effects()

    assert len(refunds) == count
    assert len({key for _, key in refunds}) == 1
    assert record.status == "undone"


@pytest.mark.slow
@pytest.mark.accepts("T59")
async def test_calls_of_one_id_are_told_apart(runtime: Runtime, refunds: Refunds) -> None:
    """Those of two delegates: the id alone is refused, a record is not."""
    boss = Agent(
        name="boss",
        model="scripted:boss",
        delegates=[Delegate("north"), Delegate("south")],
        parallel_tools=False,
    )
    north, south = (
        clerk(refunds, name=name, model=f"scripted:{name}") for name in ("north", "south")
    )
    scripts = {
        "boss": ScriptedModel(delegate("north", "pay"), delegate("south", "pay"), says("paid")),
        "north": ScriptedModel(pays("i-north"), says("paid")),
        "south": ScriptedModel(pays("i-south"), says("paid")),
    }
    async with runtime(AgentWorker([boss, north, south], prices=FREE), model=scripts) as client:
        turn = await client.start("boss", "pay")
        await turn.wait()
        records = await turn.effects()
        with pytest.raises(errors.InvalidRequestError, match="several delegates"):
            await turn.undo(records[0].call_id)
        for record in records:
            await (await turn.undo(record)).result()
        now = await turn.effects()

    assert [refunded for refunded, _ in refunds] == ["i-north", "i-south"]
    assert [record.status for record in now] == ["undone", "undone"]


@pytest.mark.accepts("S109")
async def test_delegate_that_begins_again_after_a_reset_takes_back_what_it_did(
    runtime: Runtime, refunds: Refunds
) -> None:
    """It has an id of its own, although the delegate of before the reset is over."""
    desk = Agent(name="desk", model="scripted:desk", delegates=["clerk"])
    models = {
        "desk": ScriptedModel(*[delegate("clerk", "pay"), says("refused")] * 2),
        "clerk": ScriptedModel(pays("i-1"), pays("i-2")),
    }
    worker = AgentWorker([desk, clerk(refunds, on_failure="undo", max_iterations=1)], prices=FREE)
    async with runtime(worker, model=models) as client:
        turn = await client.start("desk", "go")
        await turn.result()
        await eventually(lambda: len(refunds) == 1, "the first refund")
        again = await reset(client, turn, task_ends(await client.history(turn))[0])
        await again.result()
        await eventually(lambda: len(refunds) == 2, "the refund after the reset")

    assert [refunded for refunded, _ in refunds] == ["i-1", "i-2"]
