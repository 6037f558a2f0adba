"""A real small model over real HTTP drives the `json` protocol.

The assertions are about the requests and the loop, never about the quality of the answers.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Literal

import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel, Field

from perdure import Agent, AgentReport, Budget, Outcome, RequestOptions, errors, tool
from perdure.activities.providers import OpenAIChat
from perdure.values.messages import ToolResult
from perdure.worker import AgentWorker

from ..conftest import Runtime, fold_history
from ..support.folding import is_paired
from ..support.wire import Exchange, Wire

pytestmark = pytest.mark.timeout(540)

BRIEF = RequestOptions(max_output_tokens=120)
QUESTION = "How long is the notice period?"


class Unit(Enum):
    DAYS = "days"
    MONTHS = "months"


class Period(BaseModel):
    """No limits: those are told in words, which a small model does not keep."""

    length: Literal[2, 4, 30]
    unit: Unit = Unit.DAYS


class Place(BaseModel):
    """Where to look."""

    part: Literal["contract", "handbook"]
    page: int | None = Field(default=None, ge=1, le=40)


@tool(read_only=True)
def look_up(topic: Literal["notice period", "holidays"], places: list[Place] | None = None) -> str:
    """Look a topic up.

    Args:
        topic: What to look for.
        places: Where to look; everywhere without it.
    """
    return f"{topic}: 30 days"


@tool(read_only=True)
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def clerk(wire: Wire, **fields: Any) -> AgentWorker:
    """An agent whose model is the small one."""
    given: dict[str, Any] = {
        "instructions": "Answer from the handbook.",
        "tools": [look_up, add],
        "options": BRIEF,
        "protocol": "json",
        **fields,
    }
    provider = OpenAIChat(base_url=wire.base_url, api_key_env=None, name="llama")
    return AgentWorker(
        Agent(name="clerk", model="llama:smollm2", **given), providers={"llama": provider}
    )


async def ended(runtime: Runtime, app: AgentWorker, **start: Any) -> AgentReport[Any]:
    """The report of one turn, however it ended; it agrees with a fold of the turn's history, whose
    transcript is paired.
    """
    async with runtime(app) as client:
        turn = await client.start("clerk", QUESTION, **start)
        try:
            report: AgentReport[Any] | None = await turn.result()
        except (errors.LoopDetectedError, errors.MaxIterationsError) as error:
            report = error.report
        state = await fold_history(client.temporal, await client.history(turn))

    assert report is not None
    assert (report.messages, report.steps, report.usage, report.outcome) == (
        state.transcript.messages,
        state.steps,
        state.accounts.usage,
        state.ended and state.ended.outcome,
    )
    assert is_paired(report.messages)
    return report


def replies(exchanges: list[Exchange]) -> list[dict[str, Any]]:
    """The model's replies, each valid for the schema of its request."""
    for exchange in exchanges:
        jsonschema.validate(json.loads(exchange.text), exchange.schema)
    return [json.loads(exchange.text) for exchange in exchanges]


def choices(exchange: Exchange) -> list[str]:
    """The choices in the schema of a request."""
    branches = exchange.schema.get("anyOf", [exchange.schema])
    return [
        branch["properties"]["name"]["enum"][0] if "name" in branch["properties"] else "answer"
        for branch in branches
    ]


def results(report: AgentReport[Any]) -> list[ToolResult]:
    return [result for step in report.steps for result in step.results]


@pytest.mark.accepts("R8")
async def test_schema_forces_calls_and_then_a_typed_answer(runtime: Runtime, wire: Wire) -> None:
    """Two requests force a tool call, the last one an answer; the replies comply, however poor they
    are.
    """
    app = clerk(
        wire,
        on_exhausted="finish",
        options=BRIEF.model_copy(update={"tool_choice": "required"}),
        on_loop="ignore",
    )

    report = await ended(runtime, app, budget=Budget(model_calls=3), output=Period)

    said = replies(wire.exchanges)
    told = wire.exchanges[1].sent["messages"]
    assert [choices(exchange) for exchange in wire.exchanges] == [
        ["look_up", "add"],
        ["look_up", "add"],
        ["answer"],
    ]
    assert [list(reply) for reply in said] == [
        ["name", "arguments"],
        ["name", "arguments"],
        ["answer"],
    ]
    assert (report.outcome, report.risk, report.model_calls, report.tool_calls) == (
        Outcome.BUDGET_EXHAUSTED,
        "budget_exhausted",
        3,
        2,
    )
    assert report.output == Period.model_validate(said[2]["answer"])
    assert [(result.name, result.is_error) for result in results(report)] == [
        (reply["name"], False) for reply in said[:2]
    ]
    assert [message["role"] for message in told] == ["system", "user", "assistant", "user"]
    assert (json.loads(told[2]["content"]), told[3]["content"]) == (
        said[0],
        f"Result of {said[0]['name']}:\n{results(report)[0].content}",
    )


async def test_one_tool_by_name_is_the_only_choice(runtime: Runtime, wire: Wire) -> None:
    """The request has its schema, no tools and no tool choice; the tool gets the model's
    arguments.
    """
    app = clerk(wire, options=BRIEF.model_copy(update={"tool_choice": "add"}), max_iterations=1)

    report = await ended(runtime, app)

    (exchange,) = wire.exchanges
    arguments = replies([exchange])[0]["arguments"]
    assert exchange.sent.keys() == {"model", "messages", "max_tokens", "response_format"}
    assert exchange.sent["response_format"]["json_schema"].keys() == {"name", "schema", "strict"}
    assert choices(exchange) == ["add"]
    assert [result.content for result in results(report)] == [
        str(arguments["a"] + arguments.get("b", 1))
    ]
    assert report.outcome == Outcome.MAX_ITERATIONS


async def test_free_choice_ends_typed(runtime: Runtime, wire: Wire) -> None:
    """Tools or an answer: each reply is one of them or was truncated, and the turn ends with the
    server's token counts.
    """
    report = await ended(runtime, clerk(wire, on_exhausted="finish"), budget=Budget(model_calls=4))

    whole = [
        exchange
        for exchange in wire.exchanges
        if exchange.reply["choices"][0]["finish_reason"] == "stop"
    ]
    told = [exchange.reply["usage"] for exchange in wire.exchanges]
    assert report.outcome in {
        Outcome.COMPLETED,
        Outcome.TRUNCATED,
        Outcome.BUDGET_EXHAUSTED,
        Outcome.LOOP,
    }
    assert len(replies(whole)) >= len(wire.exchanges) - 1
    assert len(wire.exchanges) == report.model_calls
    assert report.usage.input_tokens == sum(usage["prompt_tokens"] for usage in told) > 0
    assert report.usage.output_tokens == sum(usage["completion_tokens"] for usage in told) > 0


async def test_answer_of_a_type_without_an_agent(runtime: Runtime, wire: Wire) -> None:
    """`generate` sends the type as the schema, and what comes back is an instance of it."""
    async with runtime(clerk(wire)) as client:
        period = await client.generate("llama:smollm2", QUESTION, Period, options=BRIEF)

    assert period == Period.model_validate(replies(wire.exchanges)[0])


async def test_words_of_the_react_protocol_pass_over_the_same_server(
    runtime: Runtime, wire: Wire
) -> None:
    """Its stop sequence is accepted, no schema is sent, and the model's text is an answer or a
    call.
    """
    report = await ended(
        runtime,
        clerk(wire, protocol="react_text", unmarked="answer", max_iterations=2, on_loop="ignore"),
    )

    assert [exchange.status for exchange in wire.exchanges] == [200] * report.model_calls
    assert all(
        exchange.sent["stop"] == ["\nObservation:"] and "response_format" not in exchange.sent
        for exchange in wire.exchanges
    )
    assert report.outcome in {Outcome.COMPLETED, Outcome.MAX_ITERATIONS}
