"""An agent with the policy `finish` gives a last answer when its budget is spent, paid from a
reserve.
"""

from datetime import timedelta
from decimal import Decimal

import pytest

from perdure import AssistantMessage, Budget, ModelRetryPolicy, Outcome, errors, tool
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.turn.facts import CallFailed, Scheduled
from perdure.turn.keys import ModelKey
from perdure.turn.reservations import LAST_WORDS
from perdure.turn.steps import NOT_RUN
from perdure.values.messages import Message, ToolMessage, UserMessage
from perdure.values.prices import REQUEST_TOKENS

from ...conftest import Runtime, check_history, eventually
from ...support.spending import (
    TOKEN,
    Held,
    Queue,
    app,
    at_most,
    ended,
    look,
    money_left,
    queue,
    report_of,
    skipping,
    sleep_through,
    spender,
    time_left,
    until,
    usage,
)

LONG = 5_000


@tool(read_only=True)
def read(page: int) -> str:
    """Read a page."""
    return str(page) * LONG


FINISHES = app(spender(on_exhausted="finish", tools=[look, read]))


@pytest.mark.accepts("B9")
async def test_agent_that_finishes_gives_a_last_answer(runtime: Runtime) -> None:
    """It comes from one more request, without tools and with the reason; the report is returned."""
    model = ScriptedModel(
        calls(call("look"), usage=usage(900)), says("what I have", usage=usage(300))
    )
    async with runtime(FINISHES, model=model) as client:
        report = await client.run("spender", "go", budget=Budget(usd="5.5"))

    last = model.requests[1]
    assert (report.outcome, report.output, report.risk) == (
        Outcome.BUDGET_EXHAUSTED,
        "what I have",
        "budget_exhausted",
    )
    assert (report.cost, report.model_calls) == (Decimal("1.2"), 2)
    assert (last.tools, last.messages[-1], last.messages) == ((), LAST_WORDS, report.messages[:-1])
    assert at_most(last) <= money_left(last) == Decimal("4.6")


@pytest.mark.accepts("B9")
async def test_last_answer_is_kept_from_the_beginning(runtime: Runtime) -> None:
    """Of two model calls one is kept for it; of one, all; and if the budget does not pay for it, no
    call is made.
    """
    models = {
        "two": ScriptedModel(calls(call("look")), says("last")),
        "one": ScriptedModel(says("last")),
        "none": ScriptedModel(says("never")),
    }
    budgets = {"two": Budget(model_calls=2), "one": Budget(model_calls=1), "none": Budget(usd="1")}
    agents = [spender(name=name, on_exhausted="finish") for name in models]
    async with runtime(app(*agents), model=models) as client:
        two, one, none = [
            await ended(await client.start(name, "go", budget=budget))
            for name, budget in budgets.items()
        ]

    assert not isinstance(two, errors.PerdureError)
    assert not isinstance(one, errors.PerdureError)
    assert [(report.outcome, report.output, report.tool_calls) for report in (two, one)] == [
        (Outcome.BUDGET_EXHAUSTED, "last", 1),
        (Outcome.BUDGET_EXHAUSTED, "last", 0),
    ]
    assert isinstance(none, errors.TurnBudgetExceededError)
    assert none.report is not None
    assert (none.report.model_calls, none.report.spent.usd, models["none"].call_count) == (
        0,
        Decimal(0),
        0,
    )


@pytest.mark.slow
@pytest.mark.accepts("B9", "B11")
async def test_calls_that_were_not_run_are_said_to_be_so(runtime: Runtime) -> None:
    """One of three calls is paid for: the last request has a result for each."""
    model = ScriptedModel(
        calls(*[call("look", number=number) for number in (1, 2, 3)]), says("one of three")
    )
    async with runtime(FINISHES, model=model) as client:
        report = await client.run("spender", "go", budget=Budget(tool_calls=1))

    results = model.requests[1].messages[-2]
    assert isinstance(results, ToolMessage)
    assert [(result.content, result.is_error) for result in results.results] == [
        ("seen 1", False),
        (NOT_RUN, True),
        (NOT_RUN, True),
    ]
    assert (report.output, report.spent.tool_calls) == ("one of three", 1)


# --- the content of the last request


def kinds(messages: tuple[Message, ...]) -> str:
    """u, a and t for user, assistant and tool messages; T for results that were left out."""
    out = ""
    for message in messages:
        if isinstance(message, ToolMessage):
            out += "T" if all("left out" in result.content for result in message.results) else "t"
        else:
            out += "u" if isinstance(message, UserMessage) else "a"
    return out


@pytest.mark.accepts("B9", "B7")
@pytest.mark.parametrize(
    ("text", "left", "view"),
    [
        ("", 28_600 + REQUEST_TOKENS * 3 // 2, "uatatu"),
        ("", 20_000 + REQUEST_TOKENS, "uaTatu"),
        ("", 10_000 + REQUEST_TOKENS, "uaTaTu"),
        ("w" * LONG, 9_700 + REQUEST_TOKENS, "uaTu"),
        ("w" * LONG, 6_000 + REQUEST_TOKENS, "uu"),
    ],
    ids=["all of it", "oldest result", "every result", "oldest step", "every step"],
)
@pytest.mark.table(1)
async def test_transcript_is_shortened_until_the_last_answer_is_paid_for(
    runtime: Runtime, text: str, left: int, view: str
) -> None:
    """First results, then steps, the oldest first; calls and results stay paired, the task stays,
    and the report has everything.
    """
    first = calls(call("read", page=1), text=text, usage=usage(900))
    second = calls(*[call("read", page=page) for page in (2, 3, 4)], text=text, usage=usage(12_000))
    model = ScriptedModel(first, second, says("what I have", usage=usage(300)))
    async with runtime(FINISHES, model=model) as client:
        report = await client.run("spender", "go", budget=Budget(usd=(900 + 12_000 + left) * TOKEN))

    last = model.requests[-1]
    assert (kinds(last.messages), report.outcome) == (view, Outcome.BUDGET_EXHAUSTED)
    assert at_most(last) <= money_left(last)
    assert [
        call.id
        for message in last.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ] == [
        result.call_id
        for message in last.messages
        if isinstance(message, ToolMessage)
        for result in message.results
    ]
    assert kinds(report.messages) == "uatatua"


# --- a last answer that fails


@pytest.mark.slow
@pytest.mark.accepts("B9", "L19")
async def test_last_answer_that_asks_for_tools_gets_none(runtime: Runtime) -> None:
    """Its text is the output; its messages can be continued."""
    model = ScriptedModel(
        calls(call("look")),
        calls(call("look", number=2), text="I would look again"),
        says("continued"),
    )
    async with runtime(FINISHES, model=model) as client:
        report = await client.run("spender", "go", budget=Budget(model_calls=2))
        continued = await client.run("spender", "go on", history=report.messages)

    assert (report.outcome, report.output, report.tool_calls) == (
        Outcome.BUDGET_EXHAUSTED,
        "I would look again",
        1,
    )
    assert continued.output == "continued"
    closed = model.requests[2].messages[-2]
    assert isinstance(closed, ToolMessage)
    assert [result.is_error for result in closed.results] == [True]


@pytest.mark.slow
@pytest.mark.accepts("B9", "B8")
async def test_last_answer_that_was_lost_with_its_worker_is_asked_for_again(
    perdure_server: str,
) -> None:
    """The first attempt is charged; the second one has its own reservation, and is still the last
    answer.
    """
    stuck = Held(calls(call("look"), call("look", number=2), usage=usage(900)), says("lost"))
    model = ScriptedModel(says("what I have", usage=usage(300)))
    stuck.let_go.set()
    async with queue(perdure_server) as work:
        async with work.worker(FINISHES, stuck):
            turn = await work.client.start("spender", "go", budget=Budget(usd="15", tool_calls=1))
            await eventually(lambda: stuck.call_count == 1, "the model is asked")
            stuck.let_go.clear()
            await eventually(lambda: stuck.call_count == 2, "the last answer is asked for")
        async with work.worker(FINISHES, model):
            report = await report_of(turn)
        keys = [
            event.fact.key
            async for event in turn.events()
            if isinstance(event.fact, Scheduled) and isinstance(event.fact.key, ModelKey)
        ]

    assert keys == [ModelKey(1), ModelKey(2, is_last=True), ModelKey(2, 2, is_last=True)]
    assert (report.outcome, report.output) == (Outcome.BUDGET_EXHAUSTED, "what I have")
    assert (model.requests[0].tools, model.requests[0].messages) == ((), stuck.requests[1].messages)
    lost = money_left(stuck.requests[1]) - money_left(model.requests[0])
    assert at_most(stuck.requests[1]) <= lost < 5
    assert at_most(model.requests[0]) <= money_left(model.requests[0])


@pytest.mark.slow
@pytest.mark.accepts("B9")
async def test_time_is_kept_for_the_last_answer() -> None:
    """A provider asks for a pause longer than the turn's time: the pause ends when a tenth of the
    time is left, and the answer is given in that time.
    """
    slow_down = errors.LLMRateLimitError("slow down", context={"status": 429, "retry_after_s": 300})
    model = ScriptedModel(fails(slow_down), says("what I have"))
    async with skipping() as environment:
        work = Queue(environment.client)
        async with work.worker(app(on_exhausted="finish", model_retry=ModelRetryPolicy()), model):
            turn = await work.client.start(
                "spender", "go", budget=Budget(time=timedelta(minutes=4))
            )
            await until(turn, CallFailed)
            await sleep_through(environment, turn, timedelta(minutes=5))
            report = await report_of(turn)
        await check_history(environment.client, turn.id, await turn.first_run())

    assert (report.outcome, report.output) == (Outcome.BUDGET_EXHAUSTED, "what I have")
    assert timedelta() < time_left(model.requests[1]) <= timedelta(seconds=24)
