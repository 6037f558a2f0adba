"""Turns with a chain of models: which model is called, in which order, and what the turn
reports.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import (
    Agent,
    Budget,
    Media,
    ModelProfile,
    Outcome,
    Price,
    RequestOptions,
    Task,
    Text,
    Usage,
    UserMessage,
    errors,
    tool,
)
from perdure.activities.provider import ModelRequest, Provider
from perdure.errors import PerdureError
from perdure.temporal.names import CALL_MODEL
from perdure.testing import FunctionModel, ScriptedModel, call, calls, fails, says
from perdure.testing.scripted import Reply
from perdure.turn.facts import CallFailed, WaitBegan
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Thinking
from perdure.values.reports import Tried
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.spending import ended, queue, until

BUSY = fails(errors.LLMUnavailableError("overloaded", context={"status": 529}))
COME_BACK_LATER = fails(
    errors.LLMRateLimitError("slow down", context={"status": 429, "retry_after_s": 120})
)
UNKNOWN = fails(errors.LLMInvalidRequestError("no such model", context={"status": 404}))
BAD_KEY = fails(errors.LLMAuthError("bad key", context={"status": 401}))


@tool(read_only=True)
def look(number: int = 1) -> str:
    """Look somewhere."""
    return f"seen {number}"


def app(models: str = "ab", *, providers: dict[str, Provider], **fields: Any) -> AgentWorker:
    """An agent with the models `a:m`, `b:m` and so on, each with its own provider."""
    agent = Agent(
        **{"name": "asker", "model": [f"{name}:m" for name in models], "tools": [look], **fields}
    )
    return AgentWorker(
        agent, providers=providers, prices={f"{name}:*": Price.free() for name in models}
    )


async def attempts(client: RecordingClient, turn_id: str) -> list[str]:
    """The ids of a turn's model calls in its history."""
    events = (await client.temporal.get_workflow_handle(turn_id).fetch_history()).events
    scheduled = (
        event.activity_task_scheduled_event_attributes
        for event in events
        if event.HasField("activity_task_scheduled_event_attributes")
    )
    return [one.activity_id for one in scheduled if one.activity_type.name == CALL_MODEL]


@pytest.mark.accepts("M1")
async def test_model_that_fails_twice_is_benched_and_the_next_one_serves(runtime: Runtime) -> None:
    """It is called once more, not a third time, and not in the next step either; each attempt is an
    activity.
    """
    first, second = ScriptedModel(BUSY, BUSY), ScriptedModel(calls(call("look")), says("done"))
    async with runtime(app(providers={"a": first, "b": second})) as client:
        turn = await client.start("asker", "go")
        report = await turn.result()
        seen = await attempts(client, turn.id)

    assert (report.outcome, report.output, report.model_calls) == (Outcome.COMPLETED, "done", 4)
    assert (first.call_count, second.call_count) == (2, 2)
    assert seen == ["step-1", "step-1.try-2", "step-1.try-3", "step-2"]
    overloaded = Tried(model="a:m", reason="LLM_UNAVAILABLE")
    assert [step.tried for step in report.steps] == [
        (overloaded, overloaded),
        (Tried(model="a:m", reason="benched"),),
    ]


@pytest.mark.slow
@pytest.mark.accepts("M1")
async def test_model_that_failed_once_is_asked_once_more(runtime: Runtime) -> None:
    """And it answers."""
    first, second = ScriptedModel(BUSY, "done"), ScriptedModel()
    async with runtime(app(providers={"a": first, "b": second})) as client:
        report = await client.run("asker", "go")

    assert (report.output, first.call_count, second.call_count) == ("done", 2, 0)


@pytest.mark.slow
@pytest.mark.accepts("M1")
async def test_what_one_turn_has_seen_helps_the_others_of_its_worker(runtime: Runtime) -> None:
    """In a second turn the worker reports that the first model is benched, sends it nothing, and
    the next one is called.
    """
    first, second = ScriptedModel(COME_BACK_LATER), ScriptedModel("one", "two")
    async with runtime(app(providers={"a": first, "b": second})) as client:
        one = await client.run("asker", "go")
        turn = await client.start("asker", "go on")
        two = await turn.result()
        told = [event.fact async for event in turn.events() if isinstance(event.fact, CallFailed)]

    assert (one.output, two.output) == ("one", "two")
    assert first.call_count == 1
    assert [fact.error.context["skipped"] for fact in told] == [True]
    assert "skipped for another" in told[0].error.message
    assert two.model_calls == 1, "what was not sent is no call"
    assert two.steps[0].tried == (Tried(model="a:m", reason="benched"),)


@pytest.mark.slow
@pytest.mark.accepts("M1")
async def test_turn_remembers_who_failed_when_its_worker_is_another(perdure_server: str) -> None:
    """The new worker has no health data; the turn does not call the benched model again."""
    first = ScriptedModel(COME_BACK_LATER, "never")
    second = ScriptedModel(calls(call("look")), "done")

    worker = app(providers={"a": first, "b": second}, approval="all")
    async with queue(perdure_server) as work:
        async with work.worker(worker):
            turn = await work.client.start("asker", "go")
            await until(turn, WaitBegan)
        async with work.worker(worker):
            [asked] = await turn.pending_approvals()
            await turn.approve(asked)
            report = await turn.result()

    assert (report.output, first.call_count) == ("done", 1)
    assert report.steps[1].tried == (Tried(model="a:m", reason="benched"),)


@pytest.mark.slow
@pytest.mark.accepts("M2", "U7")
async def test_bad_key_fails_at_once(runtime: Runtime) -> None:
    """An invalid key is no reason to pay for another model."""
    second = ScriptedModel()
    async with runtime(app(providers={"a": ScriptedModel(BAD_KEY), "b": second})) as client:
        with pytest.raises(errors.LLMAuthError, match="bad key"):
            await client.run("asker", "go")

    assert second.call_count == 0


@pytest.mark.slow
@pytest.mark.accepts("M2")
async def test_unknown_model_moves_on_without_penalty(runtime: Runtime) -> None:
    """The next model is called at once; each step and each turn starts with the first one again,
    because its health is not affected.
    """
    first, second = (
        ScriptedModel(*[UNKNOWN] * 5),
        ScriptedModel(*[calls(call("look")), says("done")] * 2, "done"),
    )
    async with runtime(app(providers={"a": first, "b": second})) as client:
        reports = [await client.run("asker", text) for text in ("go", "go on", "and on")]

    unknown = (Tried(model="a:m", reason="LLM_INVALID_REQUEST"),)
    assert [[step.tried for step in report.steps] for report in reports] == [
        [unknown] * 2,
        [unknown] * 2,
        [unknown],
    ]
    assert (first.call_count, second.call_count) == (5, 5)


@pytest.mark.accepts("L15")
async def test_empty_answer_moves_on(runtime: Runtime) -> None:
    """It is an error of the model, never an empty success."""
    first, second = ScriptedModel("  "), ScriptedModel("done")
    async with runtime(app(providers={"a": first, "b": second})) as client:
        report = await client.run("asker", "go")

    assert (report.output, first.call_count) == ("done", 1)
    assert report.steps[0].tried == (Tried(model="a:m", reason="LLM_UNAVAILABLE"),)


@pytest.mark.slow
@pytest.mark.accepts("M2", "U11")
async def test_chain_that_failed_names_each_model_and_its_reason(runtime: Runtime) -> None:
    """One error with a typed error for each model, and the report of the earlier work."""
    providers: dict[str, Provider] = {
        "a": ScriptedModel(calls(call("look")), COME_BACK_LATER),
        "b": ScriptedModel(UNKNOWN),
        "c": ScriptedModel(BUSY, BUSY),
    }
    async with runtime(app("abc", providers=providers)) as client:
        with pytest.raises(errors.ModelChainExhaustedError) as raised:
            await client.run("asker", "go")

    kinds: dict[str, type[PerdureError]] = {
        "a:m": errors.LLMRateLimitError,
        "b:m": errors.LLMInvalidRequestError,
        "c:m": errors.LLMUnavailableError,
    }
    assert {model: type(error) for model, error in raised.value.errors.items()} == kinds
    assert raised.value.report is not None
    assert (raised.value.report.outcome, len(raised.value.report.steps)) == (Outcome.FAILED, 1)


@pytest.mark.slow
@pytest.mark.accepts("M3")
async def test_picture_goes_to_a_model_that_takes_pictures(runtime: Runtime) -> None:
    """The first model is passed over, and called again when there is no picture."""
    first, second = ScriptedModel("words"), ScriptedModel("a cat")
    task = Task(content=(Text(text="What is it?"), Media(media_type="image/png", data="aGk=")))
    worker = app(providers={"a": first, "b": second})
    worker = AgentWorker(
        worker.registry,
        providers=worker.providers,
        prices=worker.prices,
        profiles={"a:*": ModelProfile(media={})},
    )
    async with runtime(worker) as client:
        seen = await client.run("asker", task)
        said = await client.run("asker", "go")

    assert (seen.output, said.output) == ("a cat", "words")
    assert seen.steps[0].tried == (Tried(model="a:m", reason="it takes no image/png"),)
    assert first.requests[0].messages == (UserMessage.of("go"),)


async def test_alias_stands_for_a_chain(runtime: Runtime) -> None:
    """Agents name a tier, and the worker defines the models that serve it."""
    agent = Agent(name="asker", model="main")
    providers: dict[str, Provider] = {"a": ScriptedModel(UNKNOWN), "b": ScriptedModel("done")}
    async with runtime(
        AgentWorker(agent, models={"main": ["a:m", "b:m"]}, providers=providers)
    ) as client:
        assert (await client.run("asker", "go")).output == "done"


class Size(BaseModel):
    cm: int


@pytest.mark.slow
@pytest.mark.accepts("X2")
async def test_error_of_the_output_names_the_model_that_answered(runtime: Runtime) -> None:
    """The second, after the first failed."""
    providers: dict[str, Provider] = {
        "a": ScriptedModel(UNKNOWN, UNKNOWN, UNKNOWN),
        "b": ScriptedModel("x", "y", _named("z", "big")),
    }
    async with runtime(app(providers=providers, output=Size)) as client:
        with pytest.raises(errors.OutputInvalidError, match=r"^big: "):
            await client.run("asker", "go")


def _named(text: str, model: str) -> Any:
    reply = says(text)
    assert reply.answer is not None
    return type(reply)(answer=reply.answer.model_copy(update={"model": model}))


@pytest.mark.slow
async def test_each_model_is_paid_by_its_own_price(runtime: Runtime) -> None:
    """The turn pays the price of the second one, also in the remaining budget."""
    used = Usage(input_tokens=100, output_tokens=100)
    providers: dict[str, Provider] = {
        "a": ScriptedModel(UNKNOWN),
        "b": ScriptedModel(says("done", usage=used)),
    }
    agent = Agent(name="asker", model=["a:m", "b:m"], options=RequestOptions(max_output_tokens=100))
    prices = {"a:*": Price(input="1", output="1"), "b:*": Price(input="1000", output="2000")}
    async with runtime(AgentWorker(agent, providers=providers, prices=prices)) as client:
        report = await client.run("asker", "go", budget=Budget(usd="10"))

    assert (report.cost, report.spent.usd, report.steps[0].cost) == (Decimal("0.3"),) * 3


@pytest.mark.slow
@pytest.mark.accepts("M7")
async def test_thoughts_of_one_model_are_not_sent_to_another(runtime: Runtime) -> None:
    """Only the model that signed them accepts them."""
    thought = AssistantMessage(
        parts=(Thinking(text="hm", signature="s"), call("look", call_id="c"))
    )
    thinks = type(UNKNOWN)(answer=ModelAnswer(message=thought))
    first = ScriptedModel(thinks, COME_BACK_LATER)
    second = ScriptedModel("done")
    async with runtime(app(providers={"a": first, "b": second})) as client:
        report = await client.run("asker", "go")

    sent, passed_on = first.requests[1].messages[1], second.requests[0].messages[1]
    assert isinstance(sent, AssistantMessage)
    assert isinstance(passed_on, AssistantMessage)
    assert sent.parts == (Thinking(text="hm", signature="s", by="a:m"), call("look", call_id="c"))
    assert passed_on.parts == (call("look", call_id="c"),)
    assert report.messages[1] == sent


@pytest.mark.table(1)
@pytest.mark.parametrize("first", [Price.free(), None], ids=["free", "without a price"])
async def test_second_model_is_paid_also_where_the_first_costs_nothing(
    runtime: Runtime, first: Price | None
) -> None:
    """Its price is charged for its usage, not for the whole reservation."""
    used = Usage(input_tokens=100, output_tokens=100)
    providers: dict[str, Provider] = {
        "a": ScriptedModel(UNKNOWN),
        "b": ScriptedModel(says("done", usage=used)),
    }
    prices = {**({"a:*": first} if first else {}), "b:*": Price(input="1000", output="2000")}
    async with runtime(
        AgentWorker(Agent(name="asker", model=["a:m", "b:m"]), providers=providers, prices=prices)
    ) as client:
        report = await client.run("asker", "go")

    assert (report.spent.usd, report.steps[0].cost) == (Decimal("0.3"), Decimal("0.3"))
    assert report.cost == (Decimal("0.3") if first else None)


@pytest.mark.accepts("M46")
async def test_exception_of_a_provider_moves_on(runtime: Runtime) -> None:
    """The attempt may have been billed, so it costs what was reserved; its class is in the error,
    which is that of a turn without another model.
    """

    def broken(_: ModelRequest) -> Reply:
        raise TypeError("no")

    models: dict[str, Provider] = {"a": FunctionModel(broken), "b": ScriptedModel(says("fine"))}
    async with runtime(app(providers=models)) as client:
        turn = await client.start("asker", "go", budget=Budget(tokens=100_000))
        report = await turn.result()
        events = [event.fact async for event in turn.events()]
    async with runtime(app("a", providers=models)) as client:
        error = await ended(await client.start("asker", "go"))

    [failed] = [fact for fact in events if isinstance(fact, CallFailed)]
    assert (failed.error.code, failed.error.context["raised"]) == ("LLM_ERROR", "TypeError")
    assert report.output == "fine"
    assert report.steps[0].tried == (Tried(model="a:m", reason="LLM_ERROR"),)
    assert report.spent.tokens > 1000
    assert type(error) is errors.LLMError
