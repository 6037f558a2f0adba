"""A policy, a person and the tool see the same arguments, in whatever form the model wrote them."""

import itertools
import json
import threading
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator

from perdure import Agent, Allow, ProposedCall, Registry, RequireApproval, ToolCall, TurnInfo, tool
from perdure.testing import ScriptedModel, calls, says

from ...conftest import Runtime
from ...support.approving import pending

paid: list[tuple[int, bool]] = []
seen: list[ProposedCall] = []


@tool
def pay(euros: int, force: bool = False) -> str:
    """Pay."""
    paid.append((euros, force))
    return f"paid {euros}"


@tool
def book(euros: Decimal) -> str:
    """Book."""
    return f"booked {euros}"


def policy(proposed: ProposedCall) -> Allow | RequireApproval:
    """A typical policy, which reads the JSON arguments."""
    seen.append(proposed)
    given = json.loads(proposed.arguments)
    if isinstance(given["euros"], (int, float)) and given["euros"] > 100:
        return RequireApproval()
    return RequireApproval() if given.get("force") is True else Allow()


def agent(**fields: Any) -> Agent:
    """An agent that pays."""
    return Agent(
        **{"name": "clerk", "model": "s:m", "tools": [pay, book], "policy": policy, **fields}
    )


@pytest.mark.accepts("A8")
@pytest.mark.parametrize(
    ("written", "normal", "values"),
    [
        ('{"euros": "5000"}', '{"euros":5000}', (5000, False)),
        ('{"euros": "5_000"}', '{"euros":5000}', (5000, False)),
        ('{"euros": 5000.0}', '{"euros":5000}', (5000, False)),
        ('{"euros": 1, "force": "yes"}', '{"euros":1,"force":true}', (1, True)),
        ('{"euros": 1, "force": 1}', '{"euros":1,"force":true}', (1, True)),
        ('{"euros": 5000}', '{"euros": 5000}', (5000, False)),
    ],
)
@pytest.mark.table(1)
async def test_what_waits_is_what_the_policy_saw_and_what_runs(
    runtime: Runtime, written: str, normal: str, values: tuple[int, bool]
) -> None:
    """Arguments are converted for the tool before the policy and the approval; text that needs no
    conversion does not change.
    """
    paid.clear()
    seen.clear()
    model = ScriptedModel(calls(ToolCall(id="c", name="pay", arguments=written)), says("done"))
    async with runtime(agent(), model=model) as client:
        turn = await client.start("clerk", "go")
        [one] = await pending(turn)
        assert paid == []
        await turn.approve(one)
        report = await turn.result()

    [proposed] = seen
    assert (proposed.arguments, one.arguments, report.steps[0].message.calls[0].arguments) == (
        normal,
        normal,
        normal,
    )
    assert (proposed.values, paid) == ({"euros": values[0], "force": values[1]}, [values])


@pytest.mark.slow
@pytest.mark.accepts("A8")
async def test_call_that_the_tool_would_refuse_is_denied_before_the_policy_is_asked(
    runtime: Runtime,
) -> None:
    """The model gets the validation error of its arguments."""
    seen.clear()
    wrong = ToolCall(id="c", name="pay", arguments='{"euros": "many"}')
    async with runtime(agent(), model=ScriptedModel(calls(wrong), says("done"))) as client:
        report = await client.run("clerk", "go")

    [result] = report.steps[0].results
    assert result.content.startswith(
        "This call was not run: it was denied: its arguments are not valid: euros: Input should be"
        " a valid integer"
    )
    assert seen == []


@pytest.mark.table(1)
@pytest.mark.accepts("A8")
@pytest.mark.parametrize("written", ['{"euros": "5000"}', '{"euros": 5000}', '{"euros": 5e3}'])
async def test_money_is_a_number_to_a_policy(runtime: Runtime, written: str) -> None:
    """A decimal may be written as text; in JSON it is the number, in `values` the decimal."""
    seen.clear()
    model = ScriptedModel(calls(ToolCall(id="c", name="book", arguments=written)), says("done"))
    async with runtime(agent(), model=model) as client:
        turn = await client.start("clerk", "go")
        [one] = await pending(turn)
        await turn.deny(one)
        await turn.result()

    assert (json.loads(seen[0].arguments), seen[0].values) == (
        {"euros": 5000},
        {"euros": Decimal(5000)},
    )


@pytest.mark.accepts("A8")
async def test_call_without_a_policy_is_converted_before_a_person_sees_it(runtime: Runtime) -> None:
    """Approvals that an agent requires show the converted arguments, too."""
    paid.clear()
    asks = Agent(name="clerk", model="s:m", tools=[pay], approval="all")
    model = ScriptedModel(
        calls(ToolCall(id="c", name="pay", arguments='{"euros":"7","force":"t"}')), says("done")
    )
    async with runtime(asks, model=model) as client:
        turn = await client.start("clerk", "go")
        [one] = await pending(turn)
        await turn.approve(one)
        await turn.result()

    assert (one.arguments, paid) == ('{"euros":7,"force":true}', [(7, True)])


@pytest.mark.slow
@pytest.mark.accepts("A8")
async def test_policy_sees_what_a_delegation_gives(runtime: Runtime) -> None:
    """The tools of delegation take JSON unchanged."""
    seen.clear()

    def looks(proposed: ProposedCall) -> Allow:
        seen.append(proposed)
        return Allow()

    boss = Agent(name="boss", model="s:boss", delegates=["kid"], policy=looks)
    kid = Agent(name="kid", model="s:kid")
    given = ToolCall(id="c", name="delegate_to_agent", arguments='{"agent": "kid", "task": "x"}')
    models = {"boss": ScriptedModel(calls(given), says("done")), "kid": ScriptedModel(says("ok"))}
    async with runtime(Registry([boss, kid]), model=models) as client:
        await client.run("boss", "go")

    assert [one.values for one in seen] == [{"agent": "kid", "task": "x"}]


def together(count: int) -> Any:
    """A validator that returns once this number of values has arrived."""
    come, everybody = itertools.count(1), threading.Event()

    def wait(value: object) -> object:
        if next(come) >= count:
            everybody.set()
        everybody.wait(10)
        return value

    return BeforeValidator(wait)


@pytest.mark.slow
@pytest.mark.accepts("A10")
async def test_arguments_of_many_calls_are_converted_at_once(runtime: Runtime) -> None:
    """The validators of one answer's calls take no longer together than the slowest one."""
    model = ScriptedModel(
        calls(
            *(
                ToolCall(id=f"c{number}", name="slow", arguments='{"euros":"7"}')
                for number in range(4)
            )
        ),
        says("done"),
    )

    all_of_them = together(4)

    def slow(euros: Annotated[int, all_of_them]) -> str:
        """Pay slowly."""
        return "paid"

    async with runtime(Agent(name="clerk", model="s:m", tools=[tool(slow)]), model=model) as client:
        report = await client.run("clerk", "go")

    assert [one.arguments for one in report.steps[0].message.calls] == ['{"euros":7}'] * 4


@pytest.mark.slow
@pytest.mark.accepts("A10")
async def test_call_that_takes_too_long_to_be_converted_is_recorded_as_it_is(
    runtime: Runtime,
) -> None:
    """The answer does not wait for a validator that hangs, and the policy still gets the tool's
    values.
    """
    seen.clear()
    is_first, goes_on = [True], threading.Event()

    def hang(value: object) -> object:
        if is_first and is_first.pop():
            goes_on.wait(60)
        return value

    def slow(euros: Annotated[int, BeforeValidator(hang)]) -> str:
        """Pay slowly."""
        return f"paid {euros}"

    model = ScriptedModel(
        calls(ToolCall(id="c", name="slow", arguments='{"euros":"7"}')), says("done")
    )
    async with runtime(agent(tools=[tool(slow)]), model=model) as client:
        report = await client.run("clerk", "go")
        goes_on.set()

    [recorded], [result] = report.steps[0].message.calls, report.steps[0].results
    assert (recorded.arguments, result.content) == ('{"euros":"7"}', "paid 7")
    assert (seen[0].arguments, seen[0].values) == ('{"euros":7}', {"euros": 7})


@pytest.mark.accepts("A10")
async def test_factory_that_blocks_holds_up_no_other(runtime: Runtime) -> None:
    """It returns when another turn's factory has been called."""
    called = threading.Event()
    came: list[bool] = []

    def blocks(about: TurnInfo) -> Agent:
        came.append(called.wait(30))
        return Agent(name="blocks", model="s:m")

    def quick(about: TurnInfo) -> Agent:
        called.set()
        return Agent(name="quick", model="s:m")

    registry = Registry([blocks, quick])
    async with runtime(registry, model=ScriptedModel(says("one"), says("two"))) as client:
        first = await client.start("blocks", "go")
        await client.run("quick", "go")
        await first.result()

    assert came == [True]
