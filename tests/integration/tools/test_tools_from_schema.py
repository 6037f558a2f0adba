"""Tools whose arguments are described by a JSON schema."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Agent, Deny, ProposedCall, RequireApproval, Tool, Toolbox, ToolContext, errors
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import WaitBegan

from ...conftest import Run, Runtime

PAYMENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "An IBAN."},
        "euros": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "required": ["to", "euros"],
    "additionalProperties": False,
    "$defs": {"tag": {"enum": ["rent", "food"]}},
}


class Bank:
    """A library's tool: its state comes with the call, as the model must not see it."""

    def __init__(self) -> None:
        self.paid: list[object] = []

    def pay(self, **arguments: Any) -> str:
        self.paid.append(arguments)
        return "paid"

    async def pay_later(self, ctx: ToolContext[Any], to: str, euros: int = 1, **rest: Any) -> str:
        await asyncio.sleep(0)
        self.paid.append((ctx.call_id, to, euros, rest))
        return "paid"


def payment(bank: Bank, **options: Any) -> Tool[..., str]:
    return Tool.from_schema(
        bank.pay, name="pay", description="Pay somebody.", parameters=PAYMENT, **options
    )


@pytest.mark.slow
@pytest.mark.accepts("T25")
async def test_model_sees_the_schema_and_the_function_gets_the_arguments(run: Run) -> None:
    """The schema is sent unchanged, and JSON values are passed by name."""
    bank = Bank()
    model = ScriptedModel(calls(call("pay", to="DE1", euros=5, tags=["rent"])), says("done"))

    report = await run(model, tools=[payment(bank)])

    assert (model.requests[0].tools[0].name, model.requests[0].tools[0].description) == (
        "pay",
        "Pay somebody.",
    )
    assert model.requests[0].tools[0].parameters == PAYMENT
    assert bank.paid == [{"to": "DE1", "euros": 5, "tags": ["rent"]}]
    assert report.steps[0].results[0].content == "paid"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"to": "DE1"}, "arguments: 'euros' is a required property"),
        ({"to": "DE1", "euros": "5"}, "euros: '5' is not of type 'integer'"),
        ({"to": "DE1", "euros": 0}, "euros: 0 is less than the minimum of 1"),
        (
            {"to": "DE1", "euros": 1, "more": 1},
            "arguments: Additional properties are not allowed ('more' was unexpected)",
        ),
        ({"to": "DE1", "euros": 1, "tags": ["x"]}, "tags.0: 'x' is not one of ['rent', 'food']"),
    ],
)
@pytest.mark.accepts("T25")
@pytest.mark.table(1)
async def test_arguments_that_break_the_schema_do_not_reach_the_function(
    run: Run, arguments: dict[str, Any], said: str, *, is_async: bool
) -> None:
    """The model gets the validation error."""
    bank = Bank()
    function = bank.pay_later if is_async else bank.pay
    pay: Tool = Tool.from_schema(function, name="pay", description="Pay.", parameters=PAYMENT)

    report = await run(ScriptedModel(calls(call("pay", **arguments)), says("done")), tools=[pay])

    assert bank.paid == []
    assert report.steps[0].results[0].is_error
    assert (
        report.steps[0].results[0].content
        == f"pay was not called, its arguments are not valid: {said}"
    )


@pytest.mark.slow
@pytest.mark.accepts("T25")
async def test_async_function_gets_its_context(run: Run) -> None:
    """The context is passed next to the arguments and is not part of the schema."""
    bank = Bank()
    pay: Tool = Tool.from_schema(bank.pay_later, name="pay", description="Pay.", parameters=PAYMENT)

    box = Toolbox("bank", [pay]).prefixed("my_")
    await run(
        ScriptedModel(calls(call("my_pay", to="DE1", euros=5, call_id="c1")), says("done")),
        toolboxes=[box],
    )

    assert bank.paid == [("c1", "DE1", 5, {})]


@pytest.mark.slow
@pytest.mark.accepts("T25")
async def test_policy_and_approval_rule_on_it_as_on_any_tool(runtime: Runtime) -> None:
    """A denied call does not run; a call that needs approval runs once it is approved."""
    bank, asked = Bank(), []

    def policy(proposed: ProposedCall) -> Deny | RequireApproval:
        asked.append((proposed.tool, proposed.arguments))
        return Deny(reason="no") if len(asked) == 1 else RequireApproval()

    agent = Agent(name="clerk", model="any:model", tools=[payment(bank)], policy=policy)
    model = ScriptedModel(
        calls(call("pay", to="DE1", euros=9)), calls(call("pay", to="DE1", euros=5)), says("done")
    )
    async with runtime(agent, model=model) as client:
        turn = await client.start("clerk", "pay")
        async for event in turn.events():
            if isinstance(event.fact, WaitBegan):
                break
        (pending,) = await turn.pending_approvals()
        await turn.approve(pending)
        report = await turn.result()

    assert report.outcome == "completed"
    assert bank.paid == [{"to": "DE1", "euros": 5}]
    assert [tool for tool, _ in asked] == ["pay", "pay"]


@pytest.mark.accepts("T25")
def test_options_are_those_of_any_tool() -> None:
    """Including those of a renamed copy."""
    pay = payment(Bank(), read_only=True, requires_approval=True).renamed("other")

    assert (pay.name, pay.idempotent, pay.requires_approval, pay.description) == (
        "other",
        True,
        True,
        "Pay somebody.",
    )
    assert pay.arguments.schema == PAYMENT
    assert pay.digest == payment(Bank()).digest


class Theirs:
    """A tool of another library: an object that is called, with attributes of the same names as
    ours.
    """

    name, description, timeout = "theirs", "x", 5

    def __init__(self) -> None:
        self.name = "a name of their own!"

    # undefined at run time, like a name that is imported only for type checkers
    def __call__(self, x: TheirType) -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(x)


@pytest.mark.accepts("T25")
def test_object_of_another_library_keeps_its_attributes_to_itself() -> None:
    """Neither an attribute nor an annotation that cannot be resolved has an effect."""
    theirs: Tool = Tool.from_schema(
        Theirs(), name="ours", description="d", parameters={"type": "object"}
    )

    assert (theirs.name, theirs.context_parameter, theirs(3)) == ("ours", None, "3")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"type": "strin"}, "tool pay: parameters is not a JSON schema: 'strin' is not valid"),
        ({"type": "array"}, "tool pay: parameters is the schema of an object"),
        ({}, "tool pay: parameters is the schema of an object"),
        ({"type": "object", "default": object()}, "tool pay: parameters is not JSON"),
        (["type"], "tool pay: parameters is not a JSON schema"),
    ],
)
@pytest.mark.accepts("T25")
def test_schema_that_cannot_work_is_refused_when_the_tool_is_made(
    parameters: Any, said: str
) -> None:
    """Instead of during a turn."""
    with pytest.raises(errors.ConfigurationError, match=said):
        Tool.from_schema(print, name="pay", description="d", parameters=parameters)


@pytest.mark.accepts("T25")
def test_schema_is_a_copy() -> None:
    """Later changes of the dict do not change the tool."""
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    made: Tool = Tool.from_schema(print, name="p", description="d", parameters=parameters)
    parameters["properties"] = {}

    assert made.arguments.schema["properties"] == {"a": {"type": "string"}}
