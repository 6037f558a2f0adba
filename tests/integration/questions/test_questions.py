"""Questions of a model to a person: the call waits for an answer, on the board of the approvals."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from perdure import Agent, Deny, ProposedCall, RequireApproval, ToolOutcome, errors
from perdure.events import Decided
from perdure.testing import ScriptedModel, call, calls, says
from perdure.toolboxes import asking, question_tool
from perdure.values.budgets import Budget
from perdure.values.reports import AgentReport, Outcome

from ...conftest import Runtime
from ...support.approving import pending

COLOURS = ["red", "green"]
FORM = {
    "type": "object",
    "properties": {
        "euros": {"type": "integer", "minimum": 1},
        "note": {"type": "string", "maxLength": 20},
    },
    "required": ["euros"],
}


def asker(**fields: Any) -> Agent:
    """An agent that can ask."""
    return Agent(**{"name": "asker", "model": "scripted:asker", "toolboxes": [asking()], **fields})


def asks(**arguments: Any) -> ScriptedModel:
    """A model that asks once."""
    return ScriptedModel(calls(call("ask", **arguments)), says("done"))


def result_of(report: AgentReport) -> tuple[ToolOutcome, str]:
    """Outcome and content of the result of the first call."""
    result = report.steps[0].results[0]
    return result.outcome, result.content


@pytest.mark.accepts("J1")
async def test_answer_of_a_person_is_the_result(runtime: Runtime) -> None:
    """A text is read as it is; nothing runs, and the answer counts as a tool call."""
    async with runtime(asker(), model=asks(question="Which colour?")) as client:
        turn = await client.start("asker", "paint")
        [waiting] = await pending(turn)
        status = await turn.status()
        await turn.answer(waiting, "blue, or not", by="anna")
        report = await turn.result()
        facts = [event.fact async for event in turn.events()]

    assert waiting.kind == "question"
    assert waiting.question is not None
    assert waiting.question.text == "Which colour?"
    assert status.waits[0].reason == (
        f"somebody has to answer ask ({waiting.call_id}); {waiting.call_id}: Which colour?"
    )
    assert result_of(report) == (ToolOutcome.DONE, "blue, or not")
    assert [decision.in_words for decision in report.steps[0].decisions] == ["answered by anna"]
    assert [fact.decision.answer for fact in facts if isinstance(fact, Decided)] == [
        '"blue, or not"'
    ]
    assert (report.tool_calls, report.spent.tool_calls) == (1, 1)


@pytest.mark.accepts("J2")
async def test_only_an_option_answers_a_question_with_options(runtime: Runtime) -> None:
    """Anything else is refused at once, with what is wrong, and the turn waits on."""
    model = asks(question="Which?", options=COLOURS)
    async with runtime(asker(), model=model) as client:
        turn = await client.start("asker", "paint")
        [waiting] = await pending(turn)
        for wrong in ("blue", "", 1, {"colour": "red"}, None, "Red"):
            with pytest.raises(errors.InvalidRequestError, match="does not answer the question"):
                await turn.answer(waiting, wrong)
        with pytest.raises(errors.InvalidRequestError, match="not JSON"):
            await turn.answer(waiting, object())
        [after] = await turn.pending_approvals()
        await turn.answer("call_1_1", "green")
        report = await turn.result()

    assert after == waiting
    assert result_of(report) == (ToolOutcome.DONE, "green")


@pytest.mark.accepts("J3")
async def test_form_is_filled_in_as_its_schema_says(runtime: Runtime) -> None:
    """A field too many, one that is missing, and values of the wrong type or size are refused."""
    misfits: list[tuple[object, str]] = [
        ({}, "euros is missing"),
        ({"euros": 0}, "euros is 0, less than 1"),
        ({"euros": "5"}, "not of type integer"),
        ({"euros": True}, "not of type integer"),
        ({"euros": 5, "note": "x" * 21}, "note has 21 characters, more than 20"),
        ({"euros": 5, "iban": "DE"}, "iban is not asked for"),
        ("5", "not of type object"),
        ({"euros": 5, "note": "x" * 20_000}, "bytes, more than"),
    ]
    async with runtime(asker(), model=asks(question="How much?", schema=FORM)) as client:
        turn = await client.start("asker", "pay")
        [waiting] = await pending(turn)
        for wrong, reason in misfits:
            with pytest.raises(errors.InvalidRequestError, match=reason):
                await turn.answer(waiting, wrong)
        await turn.answer(waiting, {"euros": 5.0, "note": "ok"})
        report = await turn.result()

    assert waiting.kind == "form"
    assert waiting.question is not None
    assert waiting.question.form == FORM
    assert result_of(report) == (ToolOutcome.DONE, '{"euros":5.0,"note":"ok"}')


class Address(BaseModel):
    """Where somebody lives."""

    street: str
    number: int = Field(ge=1)


class Customer(BaseModel):
    """A person with an address."""

    name: str
    kind: Literal["new", "known"] = "new"
    address: Address
    phone: str | None = None


@pytest.mark.slow
@pytest.mark.accepts("J4")
async def test_developer_fixes_the_type_of_an_answer(runtime: Runtime) -> None:
    """With a pydantic model, or with options; an instance is an answer, too."""
    who = question_tool("who", "Ask who the customer is.", answer=Customer)
    size = question_tool("size", "Ask for a size.", options=["S", "M"], default="M")
    model = ScriptedModel(
        calls(call("who", question="Who?"), call("size", question="Size?")), says("done")
    )
    agent = Agent(name="asker", model="scripted:asker", tools=[who, size])
    customer = Customer(name="Ann", address=Address(street="Elm", number=7))
    async with runtime(agent, model=model) as client:
        turn = await client.start("asker", "sell")
        one, two = await pending(turn, 2)
        with pytest.raises(errors.InvalidRequestError, match=r"address\.number is 0, less than 1"):
            await turn.answer(one, {"name": "Ann", "address": {"street": "Elm", "number": 0}})
        await turn.answer(one, customer)
        await turn.answer(two, "S")
        report = await turn.result()

    assert (one.kind, two.kind) == ("form", "question")
    first, second = report.steps[0].results
    assert Customer.model_validate_json(first.content) == customer
    assert second.content == "S"


@pytest.mark.accepts("J5")
async def test_person_declines_to_answer(runtime: Runtime) -> None:
    """The model reads the reason, also if it is a message that denies all calls that wait."""
    question = call("ask", question="Which?", default="red")
    model = ScriptedModel(calls(question), calls(question), says("done"))
    async with runtime(asker(), model=model) as client:
        turn = await client.start("asker", "paint")
        [waiting] = await pending(turn)
        await turn.deny(waiting, "ask the owner", by="anna")
        [again] = await pending(turn)
        await turn.steer("Take any.", deny_pending=True)
        report = await turn.result()

    assert again.call_id != waiting.call_id
    assert result_of(report) == (
        ToolOutcome.DENIED,
        "This question was not answered: it was declined: ask the owner",
    )
    assert report.steps[1].results[0].content.endswith("it was declined: Take any.")
    assert report.spent.tool_calls == 0


@pytest.mark.accepts("J6")
async def test_question_expires(runtime: Runtime) -> None:
    """With its default, or with a result that says that nobody has answered."""
    soon: Any = {"expires_minutes": 0.01}
    model = ScriptedModel(
        calls(
            call("ask", question="Which?", default="red", **soon),
            call("ask", question="How much?", schema=FORM, default='{"euros": 3}', **soon),
            call("ask", question="Why?", **soon),
        ),
        says("done"),
    )
    async with runtime(asker(), model=model) as client:
        turn = await client.start("asker", "paint")
        report = await turn.result()
        with pytest.raises(errors.ApprovalConflictError, match="waits for approval"):
            await turn.answer("call_1_1", "late")

    note = "[Nobody has answered within 0:00:00.600000, so this is the default.]"
    assert [(result.outcome, result.content) for result in report.steps[0].results] == [
        (ToolOutcome.DONE, f"red\n{note}"),
        (ToolOutcome.DONE, f'{{"euros":3}}\n{note}'),
        (
            ToolOutcome.DENIED,
            "This question was not answered: nobody answered it within 0:00:00.600000.",
        ),
    ]


@pytest.mark.slow
@pytest.mark.accepts("J6")
async def test_agent_sets_the_longest_time_of_a_question(runtime: Runtime) -> None:
    """A model may shorten it, and so may a policy; a person who answers also approves."""
    verdicts = iter([RequireApproval(expires=timedelta(seconds=1)), Deny(reason="not now")])

    def policy(proposed: ProposedCall) -> Any:
        return next(verdicts)

    model = ScriptedModel(
        calls(call("ask", question="Which?", expires_minutes=10**9)),
        calls(call("ask", question="Which?")),
        says("done"),
    )
    agent = asker(toolboxes=[asking(expires=timedelta(hours=2))], policy=policy, approval="all")
    async with runtime(agent, model=model) as client:
        turn = await client.start("asker", "paint")
        report = await turn.result()

    assert result_of(report)[1].endswith("nobody answered it within 0:00:01.")
    assert report.steps[1].results[0].content == "This call was not run: it was denied: not now"


@pytest.mark.slow
@pytest.mark.accepts("J7")
async def test_question_that_cannot_be_asked_is_an_error_at_once(runtime: Runtime) -> None:
    """Nobody is asked, and the turn goes on."""
    model = ScriptedModel(
        calls(
            call("ask", question="Which?", options=COLOURS, schema=FORM),
            call("ask", question="Which?", schema={"type": "object", "properties": {"a": True}}),
        ),
        says("done"),
    )
    async with runtime(asker(approval="all"), model=model) as client:
        report = await (await client.start("asker", "paint")).result()

    assert [(result.outcome, result.content) for result in report.steps[0].results] == [
        (
            ToolOutcome.NOT_RUN,
            "ask: nobody was asked: give options or a schema, not both.",
        ),
        (
            ToolOutcome.NOT_RUN,
            'ask: nobody was asked: the property "a" is not an object.',
        ),
    ]


@pytest.mark.accepts("J8")
async def test_question_is_answered_once(runtime: Runtime) -> None:
    """Of answers at the same time one counts; the others read whose, also after the end."""
    async with runtime(asker(), model=asks(question="Which?", options=COLOURS)) as client:
        turn = await client.start("asker", "paint")
        [waiting] = await pending(turn)
        people = [f"person {number}" for number in range(8)]
        given = await asyncio.gather(
            *(turn.answer(waiting, COLOURS[n % 2], by=by) for n, by in enumerate(people)),
            return_exceptions=True,
        )
        report = await turn.result()
        with pytest.raises(
            errors.ApprovalConflictError, match="already answered by person"
        ) as late:
            await client.turn(turn.id).answer(waiting.call_id, "red")
        with pytest.raises(errors.ApprovalConflictError, match="already answered by person"):
            await turn.deny(waiting, by="late")

    [winner] = [number for number, one in enumerate(given) if one is None]
    refused = [one for one in given if one is not None]
    [decision] = report.steps[0].decisions
    assert (decision.by, result_of(report)[1]) == (people[winner], COLOURS[winner % 2])
    assert {type(one) for one in refused} == {errors.ApprovalConflictError}
    assert all(f"already answered by {people[winner]}" in str(one) for one in refused)
    assert people[winner] in str(late.value)


@pytest.mark.accepts("J9")
async def test_question_is_neither_approved_nor_settled(runtime: Runtime) -> None:
    """And a call that needs approval is not answered."""
    question = call("ask", question="Which?")
    handed: list[str] = []

    def send(to: str) -> str:
        handed.append(to)
        return "sent"

    model = ScriptedModel(calls(question, call("send", to="you")), says("done"))
    async with runtime(asker(tools=[send], approval="changes"), model=model) as client:
        turn = await client.start("asker", "paint")
        ask, approve = await pending(turn, 2)
        with pytest.raises(errors.ApprovalConflictError, match="is a question: answer or deny it"):
            await turn.approve(ask)
        with pytest.raises(errors.ApprovalConflictError, match="is a question: answer or deny it"):
            await turn.approve(ask, arguments={"question": "Other?"})
        with pytest.raises(errors.ApprovalConflictError, match="is a question: answer or deny it"):
            await turn.settle(ask, "done")
        with pytest.raises(errors.ApprovalConflictError, match="approve or deny it"):
            await turn.answer(approve, "yes")
        await turn.answer(ask, "blue")
        assert handed == []  # everything of an answer waits for people first
        await turn.approve(approve)
        report = await turn.result()

    assert (handed, report.output) == (["you"], "done")


@pytest.mark.accepts("J10")
async def test_question_needs_a_tool_call_of_the_budget(runtime: Runtime) -> None:
    """Nobody is asked what the budget has no room for."""
    both = calls(call("ask", question="One?"), call("ask", question="Two?"))
    agent = asker(budget=Budget(tool_calls=1))
    async with runtime(agent, model=ScriptedModel(both)) as client:
        turn = await client.start("asker", "paint")
        with pytest.raises(errors.TurnBudgetExceededError) as caught:
            await turn.result()
        waits = await turn.pending_approvals()

    assert caught.value.report is not None
    assert caught.value.report.outcome is Outcome.BUDGET_EXHAUSTED
    assert waits == ()
