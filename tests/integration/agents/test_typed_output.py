"""Typed output: an answer becomes an instance of the requested type, or the model is told what is
wrong with it.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel, Field, field_validator
from temporalio.client import Client

from perdure import (
    Agent,
    AgentReport,
    Budget,
    Outcome,
    Price,
    Registry,
    TurnInfo,
    UserMessage,
    errors,
    tool,
)
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker

from ...conftest import Run, Runtime


class Item(BaseModel):
    name: str
    price: Decimal = Field(ge=0, description="In euros.")


class Invoice(BaseModel):
    """What somebody owes."""

    number: str
    items: list[Item]
    due: datetime | None = None

    @field_validator("number")
    @classmethod
    def _has_a_prefix(cls, value: str) -> str:
        if not value.startswith("RE-"):
            raise ValueError("a number begins with RE-")
        return value


WRITTEN = json.dumps({"number": "RE-1", "items": [{"name": "bolt", "price": 2.5}], "due": None})
INVOICE = Invoice(number="RE-1", items=[Item(name="bolt", price=Decimal("2.5"))])
WRONG = WRITTEN.replace("RE-1", "1")


@tool(read_only=True)
def look(number: str) -> str:
    """Look into the files."""
    return f"{number}: a bolt for 2.50"


def clerk(**fields: Any) -> Agent[Invoice]:
    """An agent with an output type."""
    return Agent(
        **{
            "name": "clerk",
            "model": "scripted:clerk",
            "instructions": "Read invoices.",
            "output": Invoice,
            **fields,
        }
    )


@pytest.mark.accepts("X4")
async def test_agent_value_gives_an_instance_of_its_type(runtime: Runtime) -> None:
    """The schema is part of the request; the report has the instance and can be pickled and encoded
    as JSON, and its messages are unchanged.
    """
    model = ScriptedModel(calls(call("look", number="1")), says(WRITTEN))
    agent = clerk(tools=[look])
    async with runtime(agent, model=model) as client:
        report = await client.run(agent, "What is owed?")

    assert (report.outcome, report.output) == (Outcome.COMPLETED, INVOICE)
    assert report.messages[-1] == report.steps[-1].message
    assert pickle.loads(pickle.dumps(report)) == report
    assert AgentReport[Invoice].model_validate_json(report.model_dump_json()) == report
    schema = model.requests[0].response_schema
    assert schema is not None
    assert (
        schema["required"],
        schema["additionalProperties"],
        model.requests[0].response_name,
    ) == (["number", "items", "due"], False, "Invoice")
    assert [request.response_schema for request in model.requests] == [schema, schema]


@pytest.mark.slow
@pytest.mark.accepts("X4")
async def test_name_alone_gives_json_values_and_with_a_type_an_instance(runtime: Runtime) -> None:
    """For one turn: plain JSON by its name, an instance by name and type, text if text is
    requested.
    """
    async with runtime(clerk(), model=ScriptedModel(WRITTEN)) as client:
        by_name = await client.run("clerk", "go", id=f"typed-{id(client)}")
        typed = await client.run("clerk", "go", id=by_name.turn_id, output=Invoice)
        text = await client.turn(by_name.turn_id).typed(str).result()

    assert (by_name.output, typed.output, text.output) == (json.loads(WRITTEN), INVOICE, WRITTEN)


@pytest.mark.slow
@pytest.mark.accepts("X4")
async def test_caller_names_the_type_of_an_agent_that_has_none(runtime: Runtime) -> None:
    """A list at the root: the schema of the request is an object, and the value is taken out
    of it.
    """
    model = ScriptedModel(
        '{"value": [{"name": "bolt", "price": "2.50"}]}', "the text of the plain agent"
    )
    agent = Agent(name="clerk", model="scripted:clerk")
    async with runtime(agent, model=model) as client:
        typed = await client.run("clerk", "go", output=list[Item])
        plain = await client.run(agent, "go")

    assert typed.output == [Item(name="bolt", price=Decimal("2.50"))]
    assert plain.output == "the text of the plain agent"
    assert model.requests[0].response_schema is not None
    assert model.requests[0].response_schema["required"] == ["value"]
    assert model.requests[1].response_schema is None


@pytest.mark.accepts("X4")
async def test_callers_type_goes_before_the_agents(runtime: Runtime) -> None:
    """A word instead of an invoice."""
    async with runtime(clerk(), model=ScriptedModel('{"value": "paid"}')) as client:
        report = await client.run("clerk", "go", output=cast("type[str]", Literal["paid", "open"]))

    assert report.output == "paid"


@pytest.mark.slow
@pytest.mark.accepts("D56")
async def test_session_of_a_typed_agent_gives_instances(runtime: Runtime) -> None:
    """Also its fork and another process; the answer of another agent is what that agent gives."""
    agent = clerk()
    other = Agent(name="greeter", model="scripted:greeter")
    model = ScriptedModel(*[WRITTEN] * 4, "Hello.")
    async with runtime(Registry([agent, other]), model=model) as client:
        session = client.session(f"typed-{id(client)}", agent)
        first = await (await session.say("What is owed?")).result()
        second = await (await session.say("And now?", agent="clerk")).result()
        turn = await (await session.say("Again?")).turn()
        known = await (await client.session(session.id, output=Invoice).say("Once more?")).result()
        greeting = await (await session.say("Hello?", agent="greeter")).result()
        fork = await session.fork(0, id=f"{session.id}-fork")

    assert (first.output, second.output, known.output) == (INVOICE, INVOICE, INVOICE)
    assert greeting.output == "Hello."
    assert turn._output is Invoice
    assert fork._output is Invoice


@pytest.mark.accepts("D56")
async def test_type_of_a_session_goes_before_the_agents(runtime: Runtime) -> None:
    """Its schema is in the request of each turn, also for another agent and in a fork."""
    other = Agent(name="greeter", model="scripted:greeter")
    model = ScriptedModel(*['{"value": "paid"}'] * 3)
    paid = cast("type[str]", Literal["paid", "open"])
    async with runtime(Registry([clerk(), other]), model=model) as client:
        session = client.session(f"typed-{id(client)}", "clerk", output=paid)
        reports = [
            await (await session.say("Well?")).result(),
            await (await session.say("And you?", agent="greeter")).result(),
        ]
        fork = await session.fork(0, id=f"{session.id}-fork")
        reports.append(await (await fork.say("Well?")).result())

    assert [report.output for report in reports] == ["paid"] * 3
    assert {str(one.response_schema) for one in model.requests} == {
        str(model.requests[0].response_schema)
    }


@pytest.mark.accepts("X3")
async def test_answer_that_breaks_the_schema_is_sent_back_with_the_reason(run: Run) -> None:
    """Prose, then a number that the agent's own validator refuses, then an invoice: three requests,
    each with the previous objection.
    """
    model = ScriptedModel("They owe 2.50.", WRONG, WRITTEN)

    report = await run(model, output=Invoice)

    assert report.output == INVOICE
    prose, number = (request.messages[-1] for request in model.requests[1:])
    assert isinstance(prose, UserMessage)
    assert isinstance(number, UserMessage)
    assert (
        prose.text.splitlines()[0]
        == "the answer is not what was asked for: it is no JSON: expected value at line 1 column 1"
    )
    assert (
        number.text.splitlines()[0]
        == "the answer is not what was asked for: number: Value error, a number begins with RE-"
    )
    assert json.dumps(model.requests[0].response_schema) in prose.text


@pytest.mark.slow
@pytest.mark.accepts("X2", "X3")
async def test_third_wrong_answer_in_a_row_is_an_error_that_names_the_model(run: Run) -> None:
    """After two objections: OutputInvalidError with the report, which has the unchanged text."""
    model = ScriptedModel("one", "two", says("three"))

    with pytest.raises(
        errors.OutputInvalidError,
        match=r"^scripted: the answer is not what was asked for: it is no JSON",
    ) as caught:
        await run(model, output=Invoice)

    assert caught.value.context == {"model": "scripted", "answers": 3}
    assert caught.value.report is not None
    assert (
        caught.value.report.outcome,
        caught.value.report.last_text,
        len(caught.value.report.steps),
    ) == (Outcome.FAILED, "three", 3)
    model.assert_finished()


@pytest.mark.accepts("X2")
async def test_fenced_answer_is_read(run: Run) -> None:
    """Models put JSON between fences; no further request is made."""
    report = await run(ScriptedModel(f"Here it is:\n```json\n{WRITTEN}\n```"), output=Invoice)

    assert (report.output, report.model_calls) == (INVOICE, 1)


@pytest.mark.slow
@pytest.mark.accepts("X2")
async def test_empty_answer_is_an_error_of_the_model(run: Run) -> None:
    """It is retried once, like any empty answer, and the error names the model."""
    model = ScriptedModel(says(" "), says(" "))

    with pytest.raises(errors.LLMUnavailableError, match="scripted:adder answered with nothing"):
        await run(model, output=Invoice)


@pytest.mark.slow
@pytest.mark.accepts("X3")
async def test_asking_again_is_within_the_iterations_and_the_budget(run: Run) -> None:
    """Each wrong answer is a step of the turn, and is charged."""
    with pytest.raises(errors.MaxIterationsError):
        await run(ScriptedModel("one", WRITTEN), output=Invoice, max_iterations=1)

    with pytest.raises(errors.TurnBudgetExceededError) as caught:
        await run(ScriptedModel("one", WRITTEN), output=Invoice, budget=Budget(model_calls=1))

    assert caught.value.report is not None
    assert caught.value.report.model_calls == 1


@pytest.mark.slow
@pytest.mark.accepts("L7")
async def test_answer_that_was_cut_off_is_an_error_at_once(run: Run) -> None:
    """It cannot be read, and another one would be truncated as well: one request, and the
    report.
    """
    model = ScriptedModel(says(WRITTEN[:20], stop=StopReason.MAX_TOKENS))

    with pytest.raises(errors.OutputInvalidError) as caught:
        await run(model, output=Invoice)

    assert caught.value.report is not None
    assert (caught.value.report.last_text, model.call_count) == (WRITTEN[:20], 1)


@pytest.mark.accepts("L7")
async def test_answer_that_was_cut_off_after_its_end_is_read(run: Run) -> None:
    """The limit was reached after the end of the object."""
    report = await run(ScriptedModel(says(WRITTEN, stop=StopReason.MAX_TOKENS)), output=Invoice)

    assert (report.outcome, report.risk, report.output) == (Outcome.TRUNCATED, "truncated", INVOICE)


@pytest.mark.slow
@pytest.mark.accepts("X3")
async def test_last_answer_of_a_spent_budget_is_held_to_the_type(runtime: Runtime) -> None:
    """An agent with the policy `finish` may answer in its type; otherwise no further request is
    made.
    """
    agent = clerk(tools=[look], on_exhausted="finish", budget=Budget(model_calls=2))
    model = ScriptedModel(
        calls(call("look", number="1")),
        WRITTEN,
        calls(call("look", number="2")),
        "I could not find out.",
    )
    async with runtime(agent, model=model) as client:
        report = await client.run(agent, "go")
        with pytest.raises(errors.OutputInvalidError):
            await client.run(agent, "go")

    assert (report.outcome, report.output) == (Outcome.BUDGET_EXHAUSTED, INVOICE)
    model.assert_finished()


@pytest.mark.slow
async def test_calls_that_were_not_run_are_paired_when_the_model_is_asked_again(run: Run) -> None:
    """If a stop sequence ends an answer after a call, the objection is the call's result."""
    model = ScriptedModel(
        calls(call("look", call_id="c1", number="1"), stop=StopReason.STOP_SEQUENCE), WRITTEN
    )

    report = await run(model, output=Invoice, tools=[look])

    assert report.output == INVOICE
    assert [message.role for message in report.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "wrong", "right"),
    [
        ("native", "none", WRITTEN),
        ("json", '{"answer": "none"}', f'{{"answer": {WRITTEN}}}'),
        (
            "react_text",
            "Thought: none.\nFinal Answer: none",
            f"Thought: I know.\nFinal Answer: {WRITTEN}",
        ),
    ],
)
async def test_every_protocol_has_typed_answers(
    run: Run, protocol: Any, wrong: str, right: str
) -> None:
    """A call, an answer that does not fit, and one that does; the schema is part of the request or
    of its text.
    """
    asks = {
        "native": calls(call("look", number="1")),
        "json": says('{"name": "look", "arguments": {"number": "1"}}'),
        "react_text": says('Thought: look.\nAction: look\nAction Input: {"number": "1"}'),
    }
    model = ScriptedModel(asks[protocol], wrong, right)

    report = await run(model, output=Invoice, tools=[look], protocol=protocol)

    assert (report.output, report.tool_calls, report.model_calls) == (INVOICE, 1, 3)
    assert all("What somebody owes." in request.system for request in model.requests)


@pytest.mark.slow
async def test_type_that_a_deploy_has_changed_binds_the_next_turn_only(runtime: Runtime) -> None:
    """The type changes between two answers of a running turn, which keeps the one that it is pinned
    to.
    """
    registry = Registry()

    @tool
    def deploy() -> str:
        registry.add(Agent(name="clerk", model="scripted:clerk", output=int), replace=True)
        return "deployed"

    registry.add(clerk(tools=[deploy]))
    model = ScriptedModel(calls(call("deploy")), '{"value": 5}', WRONG)
    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        report = await client.run("clerk", "go")

    assert report.output == json.loads(WRONG), (
        "by the schema alone, without the validator of a type that is gone"
    )
    assert model.call_count == 3


async def test_validator_with_a_bug_is_told_like_any_other_reason(run: Run) -> None:
    """It raises KeyError: the answers are charged, and the turn ends with a typed error."""

    class Broken(BaseModel):
        word: str

        @field_validator("word")
        @classmethod
        def _looks_up(cls, value: str) -> str:
            return {"known": "word"}[value]

    model = ScriptedModel('{"word": "new"}', '{"word": "known"}')

    report = await run(model, output=Broken)

    assert (report.output, report.model_calls) == (Broken(word="known"), 2)


@pytest.mark.slow
@pytest.mark.accepts("X1")
async def test_recursive_type_of_a_caller_is_refused_before_the_turn_and_in_it(
    runtime: Runtime,
) -> None:
    """By the client if it has the type, by the turn if another language sent a schema; no model is
    called.
    """
    model = ScriptedModel()
    async with runtime(Agent(name="clerk", model="scripted:clerk"), model=model) as client:
        with pytest.raises(errors.ConfigurationError, match="contains itself"):
            await client.start("clerk", "go", output=Tree)
        for schema in (
            {
                "$ref": "#/$defs/T",
                "$defs": {"T": {"type": "array", "items": {"$ref": "#/$defs/T"}}},
            },
            {},
            {"type": "integer", "minimum": "no"},
        ):
            with pytest.raises(errors.InvalidRequestError, match="output schema"):
                await started_by_hand(client, output_schema=schema)

    assert model.call_count == 0


async def started_by_hand(client: Any, **fields: object) -> AgentReport[Any]:
    """A turn as started from another language."""
    temporal: Client = client.temporal
    turn_id = f"by-hand-{len(client.recorded)}-{id(client)}"
    handle = await temporal.start_workflow(
        "AgentTurn",
        {"agent": "clerk", "task": "go", **fields},
        id=turn_id,
        task_queue=client.task_queue,
    )
    turn = client.turn(handle.id)
    return cast("AgentReport[Any]", await turn.result())


class Tree(BaseModel):
    children: list[Tree]


async def test_turn_of_another_language_names_a_schema(runtime: Runtime) -> None:
    """The value is validated, and returned as JSON values."""
    schema = {
        "type": "object",
        "properties": {"day": {"type": "string", "format": "date"}},
        "required": ["day"],
    }
    model = ScriptedModel('{"day": "tomorrow"}', '{"day": "2026-11-22"}')
    async with runtime(Agent(name="clerk", model="scripted:clerk"), model=model) as client:
        report = await started_by_hand(client, output_schema=schema)

    assert (report.output, report.model_calls) == ({"day": "2026-11-22"}, 2)


async def test_answer_that_the_workers_schema_takes_and_the_callers_type_does_not_is_typed(
    runtime: Runtime,
) -> None:
    """A validator is not part of a schema: the client raises OutputInvalidError, with the report
    and the model.
    """
    async with runtime(
        Agent(name="clerk", model="scripted:clerk"), model=ScriptedModel(WRONG)
    ) as client:
        with pytest.raises(
            errors.OutputInvalidError, match=r"^scripted: .*a number begins with RE-"
        ) as caught:
            await client.run("clerk", "go", output=Invoice)

    assert caught.value.report is not None
    report = caught.value.report
    assert (report.outcome, report.last_text) == (Outcome.COMPLETED, WRONG)


@pytest.mark.slow
async def test_agents_of_a_factory_have_types_too(runtime: Runtime) -> None:
    """The factory's type holds the answer, validators included."""

    def made(info: TurnInfo) -> Agent[Invoice]:
        return Agent(name=info.agent, model="scripted:made", output=Invoice)

    async with runtime(Registry([made]), model=ScriptedModel(WRONG, WRITTEN)) as client:
        report = await client.run("made", "go", output=None)

    assert (report.output, report.model_calls) == (json.loads(WRITTEN), 2)


async def test_generate_returns_an_instance_of_a_type(runtime: Runtime) -> None:
    """One request without instructions and tools, to the given model; text and types; an id has one
    request.
    """
    model = ScriptedModel("a poem", '{"value": 42}')
    other = Agent(name="other", model="scripted:other")
    async with runtime(other, model=model) as client:
        text = await client.generate("scripted:any", "A poem, please.", str)
        number = await client.generate(
            "scripted:any", "The answer?", int, id=f"generated-{id(client)}"
        )
        again = await client.generate(
            "scripted:any", "The answer?", int, id=f"generated-{id(client)}"
        )
        with pytest.raises(errors.TurnConflictError):
            await client.generate(
                "scripted:another", "The answer?", int, id=f"generated-{id(client)}"
            )

    assert (text, number, again) == ("a poem", 42, 42)
    request = model.requests[0]
    assert (request.model, request.system, request.tools, request.messages) == (
        "any",
        "",
        (),
        (UserMessage.of("A poem, please."),),
    )


@pytest.mark.slow
async def test_generate_by_a_model_that_nobody_knows_is_typed(runtime: Runtime) -> None:
    """An alias of the worker is a model, too, and the scripted model handles it; without one the
    error lists the known models.
    """
    app = AgentWorker(Agent(name="other", model="main"), models={"main": "openai:gpt-5-mini"})
    model = ScriptedModel("hello")
    async with runtime(app, model=model) as client:
        said = await client.generate("main", "Hello!", str)
        with pytest.raises(errors.ConfigurationError, match="not an alias of this worker"):
            await client.generate("nowhere", "Hello!", str)

    assert (said, [request.model for request in model.requests]) == ("hello", ["gpt-5-mini"])


async def test_generate_is_paid_from_its_budget(runtime: Runtime) -> None:
    """It is a turn like any other: its budget applies, and its error has the report."""
    app = AgentWorker(
        Agent(name="other", model="scripted:other"),
        prices={"scripted:*": Price(input="1000", output="1000")},
    )
    async with runtime(app, model=ScriptedModel("hello")) as client:
        with pytest.raises(errors.TurnBudgetExceededError) as caught:
            await client.generate("scripted:other", "Hello!", str, budget=Budget(usd="0.0001"))

    assert caught.value.report is not None
    assert caught.value.report.agent == "perdure.generate"


@pytest.mark.slow
async def test_failed_attempts_between_wrong_answers_do_not_count_as_answers(run: Run) -> None:
    """The limit counts answers: a model that was unavailable for a moment has not answered."""
    model = ScriptedModel("one", fails(errors.LLMUnavailableError("away")), "two", WRITTEN)

    report = await run(model, output=Invoice)

    assert report.output == INVOICE


@pytest.mark.slow
def test_example_runs() -> None:
    """Unchanged, without a key."""
    example = Path(__file__).parents[3] / "examples/typed_output.py"

    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=False, timeout=100
    )

    assert (done.returncode, done.stdout) == (
        0,
        "120 2026-12-24 in 2 calls\nKind.INVOICE\n",
    ), done.stderr


def levels(count: int) -> dict[str, Any]:
    """A schema of 3 KB that expands to 2 to the power of `count` copies."""
    two = {
        level: {name: {"$ref": f"#/$defs/L{level + 1}", "description": name} for name in "ab"}
        for level in range(count)
    }
    made = {
        f"L{level}": {"type": "object", "properties": properties}
        for level, properties in two.items()
    }
    return {"$defs": {**made, f"L{count}": {"type": "string"}}, "$ref": "#/$defs/L0"}


LARGE = {
    "copies of copies": levels(23),
    "many fields": {
        "type": "object",
        "properties": {f"f{number}": {"type": "string"} for number in range(9_000)},
    },
    "deep references": {
        "$defs": {
            f"L{n}": {"type": "array", "items": {"$ref": f"#/$defs/L{n + 1}"}} for n in range(900)
        },
        "$ref": "#/$defs/L0",
    },
    "reference to itself": {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "reference to itself beside what is sent": {
        "$defs": {"a": {"$ref": "#/$defs/a"}},
        "type": "object",
        "anyOf": [{"type": "string"}],
        "properties": {"x": {"$ref": "#/$defs/a"}},
    },
}


@pytest.mark.slow
@pytest.mark.accepts("C1")
@pytest.mark.parametrize("schema", LARGE.values(), ids=LARGE.keys())
async def test_start_with_an_enormous_schema_ends_typed_in_its_first_workflow_task(
    runtime: Runtime, schema: dict[str, Any]
) -> None:
    """No model is called, no workflow task fails, and the next turn runs."""
    model = ScriptedModel("fine")
    async with runtime(Agent(name="clerk", model="scripted:clerk"), model=model) as client:
        with pytest.raises(errors.InvalidRequestError, match="output schema"):
            await started_by_hand(client, output_schema=schema)
        failed = [
            event
            async for event in client.temporal.get_workflow_handle(
                f"by-hand-0-{id(client)}"
            ).fetch_history_events()
        ]

        assert (await client.run("clerk", "go")).output == "fine"
        assert not any(event.HasField("workflow_task_failed_event_attributes") for event in failed)
    assert model.call_count == 1


LIST: dict[str, Any] = {"type": "array", "items": {"$ref": "#/$defs/list"}}
IN_ITSELF = {
    "$defs": {"list": LIST},
    "type": "object",
    "properties": {},
    "allOf": [{"additionalProperties": {"$ref": "#/$defs/list"}}],
}
DEEP = '{"x": ' + "[" * 150 + "]" * 150 + "}"
BOTH = {
    f"L{level}": {"type": "object", "allOf": [{"$ref": f"#/$defs/L{level + 1}"}] * 2}
    for level in range(30)
}
ALL_OF = {
    "$defs": {**BOTH, "L30": {}},
    "type": "object",
    "properties": {},
    "allOf": [{"$ref": "#/$defs/L0"}],
}


@pytest.mark.accepts("C2")
@pytest.mark.parametrize(
    ("schema", "turns", "answer"),
    [(IN_ITSELF, 8, DEEP), (ALL_OF, 1, '{"x": 1}')],
    ids=["depth", "references that double"],
)
@pytest.mark.slow
async def test_answer_that_cannot_be_checked_ends_its_turn_and_no_other(
    runtime: Runtime, schema: dict[str, Any], turns: int, answer: str
) -> None:
    """Several at once, on a worker that continues."""
    async with runtime(
        Agent(name="clerk", model="scripted:clerk"), model=ScriptedModel(*[answer] * (turns + 1))
    ) as client:
        handles = [
            await client.temporal.start_workflow(
                "AgentTurn",
                {"agent": "clerk", "task": "go", "output_schema": schema},
                id=f"evil-{number}-{id(client)}",
                task_queue=client.task_queue,
            )
            for number in range(turns)
        ]
        for handle in handles:
            with pytest.raises(
                errors.InvalidRequestError, match="the output schema cannot be used"
            ):
                await client.turn(handle.id).result()

        assert (await client.run("clerk", "go")).output == answer
