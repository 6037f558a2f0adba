"""What a turn that takes an effect back is given: its id, its task, its rules and arguments."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, Allow, Handoff, ProposedCall, Task, errors, limits, tool
from perdure.agents.tools import Tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ...conftest import Runtime, eventually
from ...support.approving import pending
from ...support.banking import Bank, payer, pays, refunder
from ...support.delegating import FREE


def clerk(*tools: Any, **options: Any) -> Agent:
    return Agent(name="clerk", model="scripted:clerk", tools=tools, **options)


@pytest.mark.slow
@pytest.mark.accepts("T59")
async def test_turn_of_a_long_id_is_undone(runtime: Runtime) -> None:
    """Its id is longer than the id of a new turn, as that of a delegate may be."""
    bank = Bank()
    agent = clerk(payer(bank, undo=refunder(bank)))
    async with runtime(agent, model=ScriptedModel(pays(), says("paid"))) as client:
        turn = await client.start("clerk", "pay", id="t" * limits.TURN_ID_CHARACTERS)
        await turn.wait()
        undo = await turn.undo("call_1_1")
        await undo.result()
        status = await client.turn(undo.id).status()

    assert len(bank.refunds) == 1
    assert len(status.id) > limits.TURN_ID_CHARACTERS


@pytest.mark.slow
@pytest.mark.accepts("T60")
async def test_task_that_requires_approval_requires_it_for_its_undo(runtime: Runtime) -> None:
    """No refund of it is made without a person either."""
    bank = Bank()
    agent = clerk(payer(bank, undo=refunder(bank)), on_failure="undo", max_iterations=1)
    async with runtime(agent, model=ScriptedModel(pays())) as client:
        turn = await client.start("clerk", Task(content="pay", requires_human_approval=True))
        [waiting] = await pending(turn)
        await turn.approve(waiting)
        with pytest.raises(errors.MaxIterationsError):
            await turn.result()
        undo = client.turn(f"{turn.id}/undo-1-call_1_1")
        [asked] = await pending(undo)
        before = len(bank.refunds)
        await undo.approve(asked)
        await undo.result()

    assert before == 0
    assert len(bank.refunds) == 1


@pytest.mark.slow
@pytest.mark.accepts("T59")
@pytest.mark.parametrize("arguments", ['{"currency": "USD"}', "{}", ""])
async def test_undo_gets_what_the_model_has_left_out(runtime: Runtime, arguments: str) -> None:
    """With the value that the call had: the default of its tool."""
    given: list[str] = []

    def give_back(currency: str) -> str:
        given.append(currency)
        return "given back"

    @tool(undo=give_back)
    def charge(currency: str = "EUR") -> str:
        return "charged"

    charges = calls(call("charge").model_copy(update={"arguments": arguments}))
    model = ScriptedModel(charges, says("charged"))
    async with runtime(clerk(charge), model=model) as client:
        turn = await client.start("clerk", "charge")
        await turn.wait()
        await (await turn.undo("call_1_1")).result()

    assert given == ["USD" if "USD" in arguments else "EUR"]


@pytest.mark.slow
@pytest.mark.accepts("T60")
async def test_failed_turn_of_large_calls_takes_back_what_fits(runtime: Runtime) -> None:
    """The last ones; and it ends as any other turn that fails."""
    removed: list[int] = []

    def remove(number: int) -> str:
        removed.append(number)
        return "removed"

    @tool(undo=remove)
    def upload(number: int, text: str) -> str:
        return "uploaded"

    count, size = 4, limits.PAYLOAD_BYTES // 3
    model = ScriptedModel(
        *(calls(call("upload", number=number, text="x" * size)) for number in range(count))
    )
    agent = clerk(upload, on_failure="undo", max_iterations=count)
    async with runtime(agent, model=model) as client:
        turn = await client.start("clerk", "upload")
        with pytest.raises(errors.MaxIterationsError):
            await turn.result()
        await eventually(lambda: len(removed) == 2, "what fits")
        await client.turn(f"{turn.id}/undo-3-call_3_1").result()

    assert removed == [3, 2]


@pytest.mark.slow
@pytest.mark.accepts("T60")
async def test_rule_of_the_first_agent_holds_after_a_handoff(runtime: Runtime) -> None:
    """Whether effects are kept is a rule of the turn, as what happens at its limits."""
    bank = Bank()
    agents = [
        clerk(
            payer(bank, undo=refunder(bank)),
            on_failure="undo",
            max_iterations=3,
            handoffs=[Handoff("boss")],
        ),
        Agent(name="boss", model="scripted:boss", tools=[payer(Bank())]),
    ]
    scripts = {
        "clerk": ScriptedModel(pays(), calls(call("hand_over", agent="boss", message="go on"))),
        "boss": ScriptedModel(pays("i-2")),
    }
    async with runtime(AgentWorker(agents, prices=FREE), model=scripts) as client:
        turn = await client.start("clerk", "pay")
        with pytest.raises(errors.MaxIterationsError):
            await turn.result()
        await eventually(lambda: len(bank.refunds) == 1, "the refund")
        await client.turn(f"{turn.id}/undo-1-call_1_1").result()

    assert [refunded for refunded, _ in bank.refunds] == ["i-1"]


@pytest.mark.slow
@pytest.mark.accepts("T59")
async def test_policy_decides_about_the_tool_that_undoes(runtime: Runtime) -> None:
    """Not about another tool of the agent that has its name."""
    bank = Bank()
    seen: list[dict[str, Any]] = []

    @tool
    def refund(reference: str) -> str:
        """Pay back what the model asks for."""
        return reference

    def policy(proposed: ProposedCall) -> Allow:
        if proposed.call_id == "undo":
            seen.append(proposed.values)
        return Allow()

    agent = clerk(payer(bank, undo=refunder(bank)), refund, policy=policy)
    async with runtime(agent, model=ScriptedModel(pays(), says("paid"))) as client:
        turn = await client.start("clerk", "pay")
        await turn.wait()
        await (await turn.undo("call_1_1")).result()

    assert seen == [{"invoice": "i-1", "result": "paid i-1"}]
    assert len(bank.refunds) == 1


@pytest.mark.slow
@pytest.mark.accepts("T46")
async def test_resolver_is_asked_no_more_for_a_tool_with_an_effect(runtime: Runtime) -> None:
    """As long as nothing is known of the effect."""
    bank = Bank()
    asked: list[str] = []

    @tool
    def mail(to: str) -> str:
        return f"sent to {to}"

    class Shelf:
        def resolve(self, name: str) -> Tool | None:
            asked.append(name)
            return {"pay": payer(bank), "mail": mail}.get(name)

    agent = Agent(name="clerk", model="scripted:clerk", resolver=Shelf())
    model = ScriptedModel(pays(), calls(call("mail", to="anna")), says("done"))
    async with runtime(agent, model=model) as client:
        await client.run("clerk", "pay", allowed_tools=["pay", "mail"])

    assert asked.count("pay") == asked.count("mail")
