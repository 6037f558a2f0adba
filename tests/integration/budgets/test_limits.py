"""The budget of a turn is checked before each call: money, tokens and calls."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from perdure import Agent, Budget, Outcome, Price, RequestOptions, errors
from perdure.activities.provider import ModelRequest
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.testing.scripted import Reply
from perdure.values.messages import ToolMessage
from perdure.values.reports import Usage
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.spending import (
    PRICE,
    Improvised,
    app,
    at_most,
    ended,
    look,
    money_left,
    report_of,
    spender,
    usage,
)


@pytest.mark.accepts("B1")
async def test_second_request_carries_what_the_first_left(runtime: Runtime) -> None:
    """$10.00 and a first call of $0.30: the second request has $9.70 left."""
    model = ScriptedModel(calls(call("look"), usage=usage(300)), says("done", usage=usage(200)))
    async with runtime(app(), model=model) as client:
        report = await client.run("spender", "go", budget=Budget(usd="10.00"))

    assert [money_left(request) for request in model.requests] == [
        Decimal("10.00"),
        Decimal("9.70"),
    ]
    assert report.cost == Decimal("0.50")
    assert [step.cost for step in report.steps] == [Decimal("0.30"), Decimal("0.20")]


@pytest.mark.accepts("B1")
async def test_every_limit_is_in_each_request_with_what_is_left_of_it(runtime: Runtime) -> None:
    """Including tokens and calls; each limit given at the start of a turn overrides the agent's."""
    model = ScriptedModel(
        calls(call("look"), call("look", number=2), usage=usage(300)), says("done")
    )
    async with runtime(
        app(budget=Budget(usd="8", tokens=20_000, tool_calls=9)), model=model
    ) as client:
        await client.run("spender", "go", budget=Budget(usd="10", model_calls=5))

    left = [
        request.budget.model_dump(exclude_none=True) for request in model.requests if request.budget
    ]
    assert left == [
        {"usd": Decimal("10"), "tokens": 20_000, "model_calls": 5, "tool_calls": 9},
        {"usd": Decimal("9.70"), "tokens": 19_700, "model_calls": 4, "tool_calls": 7},
    ]


@pytest.mark.accepts("B5")
async def test_turn_without_a_budget_spends_what_it_likes(runtime: Runtime) -> None:
    """Nine calls of a million tokens: requests have no budget and no limit, and everything is
    counted.
    """
    replies = [calls(call("look", number=number), usage=usage(1_000_000)) for number in range(9)]
    model = ScriptedModel(*replies, says("done", usage=usage(1_000_000)))
    async with runtime(app(), model=model) as client:
        report = await client.run("spender", "go")

    assert {(request.budget, request.options.max_output_tokens) for request in model.requests} == {
        (None, None)
    }
    assert (report.outcome, report.cost, report.spent.tokens) == (
        Outcome.COMPLETED,
        Decimal(10_000),
        10_000_000,
    )


# --- when the money is spent


@pytest.mark.accepts("B3", "L10")
async def test_spent_budget_ends_the_turn_before_the_model_is_asked(runtime: Runtime) -> None:
    """The rest does not pay for another call; the error has the work so far."""
    model = ScriptedModel(calls(call("look"), usage=usage(900)))
    async with runtime(app(), model=model) as client:
        with pytest.raises(errors.TurnBudgetExceededError) as caught:
            await client.run("spender", "go", budget=Budget(usd="2.5"))

    report = caught.value.report
    assert report is not None
    assert (report.outcome, report.cost, report.model_calls) == (
        Outcome.BUDGET_EXHAUSTED,
        Decimal("0.9"),
        1,
    )
    assert isinstance(report.messages[-1], ToolMessage)
    assert isinstance(caught.value.__cause__, errors.LLMBudgetExceededError)
    assert {
        "dimension": "usd",
        "limit": "2.5",
        "spent": "0.9",
    }.items() <= caught.value.context.items()


def all_of_it(text: str = "") -> Any:
    """A reply that uses all that is left: an answer, or a tool call."""

    def reply(request: ModelRequest) -> Reply:
        used = usage(int(money_left(request) * 1000))
        return says(text, usage=used) if text else calls(call("look"), usage=used)

    return reply


@pytest.mark.slow
@pytest.mark.accepts("B3")
async def test_call_that_spends_the_last_cent_is_the_last(runtime: Runtime) -> None:
    """The final answer is returned; after a tool call there is no further request, and the result
    is in the report.
    """
    models = {"answer": Improvised(all_of_it("done")), "act": Improvised(all_of_it())}
    async with runtime(app(), model=ByTask(models)) as client:
        answered, acted = [
            await ended(await client.start("spender", task, budget=Budget(usd="3")))
            for task in models
        ]

    assert not isinstance(answered, errors.PerdureError)
    assert (answered.outcome, answered.output, answered.cost) == (
        Outcome.COMPLETED,
        "done",
        Decimal(3),
    )
    assert [step.overrun for step in answered.steps] == [False]
    assert isinstance(acted, errors.TurnBudgetExceededError)
    assert acted.report is not None
    assert (acted.report.cost, acted.report.tool_calls) == (Decimal(3), 1)
    assert {model.call_count for model in models.values()} == {1}


@pytest.mark.slow
@pytest.mark.accepts("B14")
async def test_ten_calls_of_ten_cents_spend_a_dollar(runtime: Runtime) -> None:
    """Exactly, and the rest after each call is exact."""
    model = ScriptedModel(
        *[calls(call("look", number=number), usage=usage(100)) for number in range(9)],
        says("done", usage=usage(100)),
    )
    async with runtime(app(), model=model) as client:
        report = await client.run("spender", "go", budget=Budget(usd="5"))

    assert (report.cost, report.spent.usd) == (Decimal("1.00"), Decimal("1.00"))
    assert [money_left(request) for request in model.requests] == [
        5 - Decimal(number) / 10 for number in range(10)
    ]


@pytest.mark.accepts("B14", "U10")
async def test_float_from_another_client_ends_the_turn_typed(runtime: Runtime) -> None:
    """Temporal's own client can send anything; money is a string."""
    async with runtime(app(), model=ScriptedModel()) as client:
        given = {"agent": "spender", "task": "go", "budget": {"usd": 0.5}}
        handle = await client.temporal.start_workflow(
            "AgentTurn", given, id="float-budget", task_queue=client.task_queue
        )
        error = await ended(client.turn(handle.id))

    assert isinstance(error, errors.InvalidRequestError)
    assert "not exact" in error.message


# --- the limit of an answer


@pytest.mark.slow
@pytest.mark.accepts("B7")
@pytest.mark.parametrize("asked", [None, 100_000])
async def test_no_call_can_cost_more_than_is_left(runtime: Runtime, asked: int | None) -> None:
    """Whatever limit the agent has: each request is limited so that its input and the longest
    answer are paid for.
    """
    replies = [calls(call("look", number=number), usage=usage(1500)) for number in range(6)]
    model = ScriptedModel(*replies)
    async with runtime(app(options=RequestOptions(max_output_tokens=asked)), model=model) as client:
        error = await ended(await client.start("spender", "go" * 50, budget=Budget(usd="9")))

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert len(model.requests) > 2
    assert all(at_most(request) <= money_left(request) for request in model.requests)
    lengths = [request.options.max_output_tokens or 0 for request in model.requests]
    assert lengths == sorted(set(lengths), reverse=True)


@pytest.mark.slow
@pytest.mark.accepts("B7")
async def test_limit_that_is_paid_for_stays(runtime: Runtime) -> None:
    """The agent's own limit or the default; tokens limit like money."""
    models = {
        "own": ScriptedModel("done"),
        "default": ScriptedModel("done"),
        "tokens": ScriptedModel("done"),
    }
    agents = [
        spender(name="own", options=RequestOptions(max_output_tokens=50)),
        spender(name="default"),
        spender(name="tokens"),
    ]
    async with runtime(app(*agents), model=models) as client:
        await client.run("own", "go", budget=Budget(usd="100"))
        await client.run("default", "go", budget=Budget(usd="100"))
        await client.run("tokens", "go", budget=Budget(tokens=3_000))

    limits = {
        name: model.requests[0].options.max_output_tokens or 0 for name, model in models.items()
    }
    assert (limits["own"], limits["default"]) == (50, 8192)
    assert at_most(models["tokens"].requests[0]) <= 3
    assert 1_000 < limits["tokens"] < 2_000


# --- prices


def priced(model: ScriptedModel, **prices: Price) -> AgentWorker:
    """A worker that knows no prices, except for these."""
    agent = Agent(name="spender", model="vllm:qwen3", tools=[look])
    return AgentWorker(
        agent,
        providers={"vllm": model},
        prices={f"vllm:{name}": price for name, price in prices.items()},
    )


@pytest.mark.accepts("B6")
async def test_unknown_price_is_refused_before_the_call(runtime: Runtime) -> None:
    """The message is a line of code to copy, and that line works."""
    model = ScriptedModel("never")
    async with runtime(priced(model)) as client:
        error = await ended(await client.start("spender", "go", budget=Budget(usd="5")))

    assert isinstance(error, errors.UnknownPriceError)
    assert "prices={'vllm:qwen3': Price(input='0.50', output='2')}" in error.message
    assert "Price.free()" in error.message
    assert error.context == {"model": "vllm:qwen3"}
    assert error.report is not None
    assert (error.report.outcome, error.report.model_calls, model.call_count) == (
        Outcome.FAILED,
        0,
        0,
    )


@pytest.mark.table(1)
@pytest.mark.accepts("B6")
@pytest.mark.parametrize(
    ("price", "cost"),
    [(Price(input="0.50", output="2"), Decimal("0.000165")), (Price.free(), Decimal(0))],
)
async def test_named_price_lets_the_call_through(
    runtime: Runtime, price: Price, cost: Decimal
) -> None:
    """The named price is charged; a price of zero is a price, too."""
    async with runtime(
        priced(ScriptedModel(says("done", usage=usage(300))), qwen3=price)
    ) as client:
        report = await client.run("spender", "go", budget=Budget(usd="5"))

    assert (report.output, report.cost) == ("done", cost)


async def test_price_of_a_model_matters_only_to_money(runtime: Runtime) -> None:
    """Tokens can be limited without a price; the cost is then unknown, which is not zero."""
    async with runtime(priced(ScriptedModel(says("done", usage=usage(300))))) as client:
        report = await client.run("spender", "go", budget=Budget(tokens=5_000))

    assert (report.output, report.cost, report.spent.tokens) == ("done", None, 300)


# --- the other limits


@pytest.mark.table(1)
@pytest.mark.accepts("B11")
@pytest.mark.parametrize(
    ("budget", "replies", "spent"),
    [
        (
            Budget(tokens=7_000),
            [calls(call("look"), usage=usage(2_000))] * 2,
            {"tokens": 4_000, "model_calls": 2, "tool_calls": 2},
        ),
        (
            Budget(model_calls=2),
            [calls(call("look"), usage=usage(100))] * 2,
            {"tokens": 200, "model_calls": 2, "tool_calls": 2},
        ),
        (
            Budget(model_calls=2),
            [
                fails(errors.LLMRateLimitError(context={"status": 429, "retry_after_s": 0.01})),
                calls(call("look"), usage=usage(100)),
            ],
            {"tokens": 100, "model_calls": 2, "tool_calls": 1},
        ),
        (
            Budget(tool_calls=3),
            [
                calls(call("look"), usage=usage(100)),
                calls(*[call("look", number=number) for number in range(4)], usage=usage(100)),
            ],
            {"tokens": 200, "model_calls": 2, "tool_calls": 3},
        ),
    ],
    ids=["tokens", "model calls", "repeated attempts", "tool calls"],
)
async def test_limit_ends_the_turn_with_what_was_done(
    runtime: Runtime, budget: Budget, replies: list[Reply], spent: dict[str, int]
) -> None:
    """The next call is not made, whether it is a model call or the third of several tool calls; the
    results so far are in the report.
    """
    model = ScriptedModel(*replies)
    async with runtime(app(), model=model) as client:
        error = await ended(await client.start("spender", "go", budget=budget))

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.context["dimension"] in budget.model_fields_set
    report = error.report
    assert report is not None
    assert report.spent.model_dump(exclude={"usd"}) == spent
    assert (
        sum(len(message.results) for message in report.messages if isinstance(message, ToolMessage))
        == spent["tool_calls"]
    )
    assert model.call_count == spent["model_calls"]


@pytest.mark.slow
@pytest.mark.accepts("B11")
async def test_answer_in_the_last_call_that_is_allowed_succeeds(runtime: Runtime) -> None:
    """Model calls and tool calls down to none."""
    model = ScriptedModel(calls(call("look"), call("look", number=2)), says("done"))
    async with runtime(app(), model=model) as client:
        report = await client.run("spender", "go", budget=Budget(model_calls=2, tool_calls=2))

    assert (report.outcome, report.output, report.tool_calls) == (Outcome.COMPLETED, "done", 2)


@pytest.mark.accepts("B11")
async def test_cache_reads_are_counted_apart_and_cost_their_own_rate(runtime: Runtime) -> None:
    """They are part of the input and of the limited tokens, at a lower price."""
    used = Usage(input_tokens=890, output_tokens=10, cache_read_tokens=500, cache_write_tokens=40)
    cheaper = PRICE.model_copy(update={"cached": Decimal(100)})
    worker = AgentWorker(spender(), prices={"scripted:*": cheaper})
    async with runtime(worker, model=ScriptedModel(says("done", usage=used))) as client:
        report = await report_of(
            await client.start("spender", "go", budget=Budget(usd="5", tokens=50_000))
        )

    assert report.usage == used
    assert (report.cost, report.spent.tokens) == (Decimal("0.45"), 900)


@pytest.mark.slow
async def test_turns_with_budgets_run_side_by_side(runtime: Runtime) -> None:
    """The spending of one does not reduce another's budget."""
    models = {
        f"go {number}": ScriptedModel(
            calls(call("look"), usage=usage(900)), says("done", usage=usage(100 * number))
        )
        for number in (1, 2, 3)
    }
    async with runtime(app(), model=ByTask(models)) as client:
        reports = await asyncio.gather(
            *(client.run("spender", task, budget=Budget(usd="4")) for task in models)
        )

    assert [report.cost for report in reports] == [Decimal("1.0"), Decimal("1.1"), Decimal("1.2")]
