"""One budget for a tree of agents: leases, returned amounts, and additions."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from perdure import Budget, Delegate, Outcome, errors, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.turn.facts import ChildTold
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.delegating import PRICED, delegate, editor, researcher, results, spawn, used, writer
from ...support.spending import SHORT


def tree(*agents: Any, **fields: Any) -> AgentWorker:
    """A worker whose models cost a tenth of a cent per token."""
    return AgentWorker([editor(**fields), *(agents or (researcher(), writer()))], prices=PRICED)


@tool(read_only=True)
def look(number: int = 1) -> str:
    """Look somewhere."""
    return f"seen {number}"


def looks(times: int) -> list[Any]:
    """This number of answers that call a tool, for 9 dollars each; each call after the first then
    reserves more than 10.
    """
    return [
        calls(call("look", number=number), text=f"look {number}", usage=used(9_000))
        for number in range(times)
    ]


def left(model: ScriptedModel, request: int = 0) -> Any:
    """The remaining budget according to a request."""
    return model.requests[request].budget


@pytest.mark.accepts("B13")
async def test_child_gets_a_fair_share_and_what_it_leaves_comes_back(runtime: Runtime) -> None:
    """One child and the turn itself share what is left; the unspent part of the child's half
    returns to the parent.
    """
    parent = ScriptedModel(
        delegate("writer", "write", usage=used(1_000)), says("done", usage=used(1_000))
    )
    child = ScriptedModel(says("text", usage=used(3_000)))
    async with runtime(tree(), model=ByTask({"go": parent, "write": child})) as client:
        report = await client.run(
            "editor", "go", budget=Budget(usd="100", tokens=50_000, model_calls=9, tool_calls=5)
        )

    # 99 dollars are left after the first call, and 9 - 1 calls, and 5 - 1 tool calls when this one
    # is counted
    assert (
        left(child).usd,
        left(child).tokens,
        left(child).model_calls,
        left(child).tool_calls,
    ) == (Decimal("49.5"), 24_500, 4, 2)
    assert (
        left(parent, 1).usd,
        left(parent, 1).tokens,
        left(parent, 1).model_calls,
        left(parent, 1).tool_calls,
    ) == (Decimal(96), 46_000, 7, 4)
    assert (
        report.cost,
        report.spent.tokens,
        report.spent.model_calls,
        report.spent.tool_calls,
    ) == (Decimal(5), 5_000, 3, 1)
    assert [branch.cost for branch in report.children] == [3]


@pytest.mark.slow
@pytest.mark.accepts("B12")
async def test_siblings_share_and_never_spend_the_same_money(runtime: Runtime) -> None:
    """Three at once and the turn itself get a quarter each."""
    parent = ScriptedModel(
        spawn(("writer", "a"), ("writer", "b"), ("researcher", "c"), usage=used(1_000)),
        says("done", usage=used(500)),
    )
    children = {name: ScriptedModel(says(name, usage=used(2_000))) for name in "abc"}
    async with runtime(tree(), model=ByTask({"go": parent, **children})) as client:
        report = await client.run("editor", "go", budget=Budget(usd="101", model_calls=5))

    assert [left(model).usd for model in children.values()] == [25, 25, 25]
    assert [left(model).model_calls for model in children.values()] == [1, 1, 1]
    assert left(parent, 1).usd == 94
    assert report.cost == Decimal("7.5")


@pytest.mark.slow
async def test_named_budget_of_a_delegate_goes_before_the_share_and_its_own_within_it(
    runtime: Runtime,
) -> None:
    """`Delegate(budget=…)` is the lease, limited by what is left; the agent's own budget still
    limits it.
    """
    parent = ScriptedModel(
        delegate("writer", "a", usage=used(1_000)),
        delegate("researcher", "b", usage=used(1_000)),
        says("done", usage=used(500)),
    )
    children = {name: ScriptedModel(says(name, usage=used(2_000))) for name in "ab"}
    worker = tree(
        researcher(budget=Budget(usd="6", tool_calls=3)),
        writer(),
        delegates=["researcher", Delegate("writer", budget=Budget(usd="90", tool_calls=7))],
    )
    async with runtime(worker, model=ByTask({"go": parent, **children})) as client:
        await client.run("editor", "go", budget=Budget(usd="101"))

    assert (left(children["a"]).usd, left(children["a"]).tool_calls) == (90, 7)
    assert (left(children["b"]).usd, left(children["b"]).tool_calls) == (Decimal(6), 3)


@pytest.mark.slow
@pytest.mark.accepts("B13")
@pytest.mark.parametrize("how", ["fails", "exhausted"])
async def test_spending_of_a_child_that_failed_is_counted(runtime: Runtime, how: str) -> None:
    """The model gets the error and the last text of the child; the report has the cost."""
    parent = ScriptedModel(
        delegate("writer", "write", usage=used(1_000)), says("done", usage=used(1_000))
    )
    child = (
        ScriptedModel(*looks(2), fails(errors.LLMAuthError("no key")))
        if how == "fails"
        else ScriptedModel(*looks(5))
    )
    async with runtime(
        tree(researcher(), writer(tools=[look])), model=ByTask({"go": parent, "write": child})
    ) as client:
        report = await client.run("editor", "go", budget=Budget(usd="100"))

    [result] = results(parent)
    [branch] = report.children
    assert result.is_error
    if how == "fails":
        assert result.content == "writer: LLM_AUTH: no key\nWhat it said last: look 1"
        assert (branch.outcome, branch.cost, report.cost) == (
            Outcome.FAILED,
            Decimal(18),
            Decimal(20),
        )
    else:
        assert result.content.startswith("writer: TURN_BUDGET_EXCEEDED: the next call may cost")
        assert (branch.outcome, branch.cost, report.cost) == (
            Outcome.BUDGET_EXHAUSTED,
            Decimal(45),
            Decimal(47),
        )


@pytest.mark.slow
async def test_child_that_finishes_tells_that_it_is_its_last_answer(runtime: Runtime) -> None:
    """Its budget is spent, and its answer is not an error."""
    parent = ScriptedModel(
        delegate("writer", "write", usage=used(1_000)), says("done", usage=used(1_000))
    )
    child = ScriptedModel(*looks(4), says("so far", usage=used(1_000)))
    async with runtime(
        tree(researcher(), writer(tools=[look], on_exhausted="finish")),
        model=ByTask({"go": parent, "write": child}),
    ) as client:
        report = await client.run("editor", "go", budget=Budget(usd="100"))

    assert [(result.content, result.is_error) for result in results(parent)] == [
        ("so far\n[Its budget is spent: this is its last answer.]", False)
    ]
    assert report.children[0].outcome == Outcome.BUDGET_EXHAUSTED


async def test_nothing_left_to_share_ends_the_turn_as_its_policy_says(runtime: Runtime) -> None:
    """Three children and two model calls: none is started."""
    parent = ScriptedModel(
        spawn(("writer", "a"), ("writer", "b"), ("writer", "c"), usage=used(100))
    )
    async with runtime(tree(), model=ByTask({"go": parent})) as client:
        with pytest.raises(
            errors.TurnBudgetExceededError,
            match=r"2 model calls are left, which is not enough to delegate with",
        ) as ended:
            await client.run("editor", "go", budget=Budget(model_calls=3))

    assert ended.value.report is not None
    assert ended.value.report.children == ()


@pytest.mark.accepts("D13")
async def test_child_that_waits_for_budget_shows_in_its_parent_and_goes_on_when_it_gets_some(
    runtime: Runtime,
) -> None:
    """An addition to a child is new budget for the whole tree: on three levels, all limits grow,
    and the money is spent once.
    """
    scripts = {
        "go": ScriptedModel(
            delegate("researcher", "find", usage=used(1_000)), says("done", usage=used(1_000))
        ),
        "find": ScriptedModel(
            delegate("writer", "write", usage=used(1_000)), says("found", usage=used(1_000))
        ),
        "write": ScriptedModel(*looks(2), says("text", usage=used(9_000))),
    }
    worker = tree(researcher(delegates=["writer"]), writer(tools=[look], on_exhausted="pause"))
    async with runtime(worker, model=ByTask(scripts)) as client:
        turn = await client.start("editor", "go", id="poor", budget=Budget(usd="101"))
        told = await _told(turn)
        assert (told.waits_for, told.reason.partition(":")[0]) == (
            "budget",
            "poor/researcher-1/writer-1",
        )
        child = client.turn("poor/researcher-1/writer-1")
        after = await child.add_budget(Budget(usd="30"))
        report = await turn.result()

    # the root has 100 left and leases 50; of the 49 left there, the writer gets 24.5, spends 18,
    # and gets 30 more
    assert after.usd == Decimal("36.5")
    assert left(scripts["find"], 1).usd == 50 + 30 - 1 - 27
    assert left(scripts["go"], 1).usd == 101 + 30 - 1 - 29
    assert report.cost == 31
    assert report.outcome == Outcome.COMPLETED


async def _told(turn: Any) -> Any:
    async with asyncio.timeout(60):
        async for event in turn.events():
            if isinstance(event.fact, ChildTold) and event.fact.news.waits_for:
                return event.fact.news
    raise AssertionError("no child waited")


@pytest.mark.slow
@pytest.mark.accepts("D13", "A6")
async def test_time_of_the_parent_stands_still_while_its_child_waits_for_a_person(
    runtime: Runtime,
) -> None:
    """The wait is longer than the parent's whole time budget."""

    @tool(requires_approval=True)
    def send() -> str:
        return "sent"

    scripts = {
        "go": ScriptedModel(delegate("writer", "send it"), says("done")),
        "send it": ScriptedModel(calls(call("send")), says("sent")),
    }
    async with runtime(tree(researcher(), writer(tools=[send])), model=ByTask(scripts)) as client:
        turn = await client.start(
            "editor", "go", id="patient", budget=Budget(time=timedelta(seconds=10))
        )
        told = await _told(turn)
        await asyncio.sleep(11)
        child = client.turn("patient/writer-1")
        [pending] = await child.pending_approvals()
        listed = [(entry.id, one.tool) async for entry, one in client.pending_approvals("writer")]
        await child.approve(pending)
        report = await turn.result()

    assert told.waits_for == "approval"
    assert ("patient/writer-1", "send") in listed
    assert report.output == "done"


@pytest.mark.slow
async def test_deadline_of_the_parent_is_that_of_its_children(runtime: Runtime) -> None:
    """A child gets the remaining time, and both end with their work so far."""
    held = ScriptedModel(
        calls(call("look"), text="half"), says("never", delay=timedelta(seconds=60))
    )
    scripts = {"go": ScriptedModel(delegate("writer", "write")), "write": held}
    async with runtime(tree(researcher(), writer(tools=[look])), model=ByTask(scripts)) as client:
        turn = await client.start("editor", "go", id="late", budget=Budget(time=SHORT))
        with pytest.raises(errors.TurnBudgetExceededError, match="time of the turn is up") as ended:
            await turn.result()

    assert ended.value.report is not None
    [child] = ended.value.report.children
    assert (child.turn_id, child.steps) == ("late/writer-1", 1)
    assert child.outcome in (Outcome.BUDGET_EXHAUSTED, Outcome.CANCELLED)
    assert ended.value.report.unstopped == ()


@pytest.mark.accepts("B12")
async def test_agents_and_tools_at_once_share_a_budget_too(runtime: Runtime) -> None:
    """With parallel tools: two delegations and a tool in one answer."""
    asked = calls(
        call("delegate_to_agent", agent="writer", task="a"),
        call("look"),
        call("delegate_to_agent", agent="researcher", task="b"),
        usage=used(1_000),
    )
    parent = ScriptedModel(asked, says("done", usage=used(1_000)))
    children = {
        name: ScriptedModel(says(name, usage=used(2_000), delay=timedelta(seconds=0.3)))
        for name in "ab"
    }
    async with runtime(
        tree(parallel_tools=True, tools=[look]), model=ByTask({"go": parent, **children})
    ) as client:
        report = await client.run("editor", "go", budget=Budget(usd="91", tool_calls=9))

    assert [result.content for result in results(parent)] == ["a", "seen 1", "b"]
    assert [(left(model).usd, left(model).tool_calls) for model in children.values()] == [
        (30, 2),
        (30, 2),
    ]
    assert (report.cost, report.spent.tool_calls) == (Decimal(6), 3)
