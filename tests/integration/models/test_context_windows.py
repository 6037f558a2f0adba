"""Turns whose transcript exceeds the context window of their model."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perdure import (
    Agent,
    Budget,
    ModelProfile,
    Outcome,
    Price,
    ToolMessage,
    Usage,
    UserMessage,
    errors,
)
from perdure.activities.provider import ModelRequest, Provider
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.values.messages import AssistantMessage, Message, closed
from perdure.values.reports import Tried
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.windows import RESULT_BYTES, STEPS, fetch

WINDOW = 5_600


def long_script() -> ScriptedModel:
    return ScriptedModel(
        *[calls(call("fetch", number=number)) for number in range(STEPS)], says("done")
    )


def app(
    models: str = "a",
    *,
    window: int = WINDOW,
    providers: dict[str, Provider],
    budgeted: bool = False,
) -> AgentWorker:
    """An agent whose first model has a small window."""
    agent = Agent(
        name="reader",
        model=[f"{name}:m" for name in models],
        tools=[fetch],
        max_iterations="unlimited",
    )
    price = Price(input="1", output="1") if budgeted else Price.free()
    return AgentWorker(
        agent,
        providers=providers,
        prices={f"{name}:*": price for name in models},
        profiles={"a:m": ModelProfile(window=window)},
    )


def tokens(request: ModelRequest) -> int:
    """The approximate number of tokens of a request."""
    return sum(len(message.model_dump_json()) for message in request.messages) // 3


def results(message: Message) -> list[str]:
    assert isinstance(message, ToolMessage)
    return [result.content for result in message.results]


@pytest.mark.slow
@pytest.mark.accepts("L18")
async def test_transcript_that_outgrows_the_window_is_sent_shortened(runtime: Runtime) -> None:
    """Task and last steps complete, calls and results paired; the step records what is left out,
    and the report has everything.
    """
    model = long_script()
    async with runtime(app(providers={"a": model})) as client:
        report = await client.run("reader", "go")

    assert (report.outcome, report.output, len(report.steps)) == (
        Outcome.COMPLETED,
        "done",
        STEPS + 1,
    )
    assert len(report.messages) == 2 * STEPS + 2
    assert [len(content) for message in report.messages[2::2] for content in results(message)] == [
        RESULT_BYTES
    ] * STEPS
    assert (
        max(map(tokens, model.requests))
        < WINDOW
        < sum(len(message.model_dump_json()) for message in report.messages) // 3
    )
    last = model.requests[-1].messages
    assert last[0] == UserMessage.of("go")
    assert last[-8:] == report.messages[-9:-1]
    assert closed(last) == last
    assert results(last[2]) == ["[result of fetch, 1 KB, left out]"]
    assert report.steps[0].left_out is None
    left_out = report.steps[-1].left_out
    assert left_out is not None
    assert left_out.results + left_out.steps >= STEPS // 3


@pytest.mark.accepts("L18")
@pytest.mark.slow
async def test_beginning_of_what_is_sent_stays_the_same_for_many_steps(runtime: Runtime) -> None:
    """So that a provider's prompt cache finds it: requests grow at their end, except for a few."""
    model = long_script()
    async with runtime(app(providers={"a": model})) as client:
        await client.run("reader", "go")

    sent = [request.messages for request in model.requests]
    changed = [later[: len(before)] != before for before, later in pairwise(sent)]
    assert 1 <= sum(changed) <= STEPS // 3


@pytest.mark.slow
@pytest.mark.accepts("B1", "L18")
async def test_shortened_request_is_reserved_by_what_is_sent(runtime: Runtime) -> None:
    """A budget for the shortened request is enough, and each reservation covers its bill."""
    usage = Usage(input_tokens=4_000, output_tokens=20)
    asks = [calls(call("fetch", number=number), usage=usage) for number in range(STEPS)]
    model = ScriptedModel(*asks, says("done", usage=usage))
    async with runtime(app(providers={"a": model}, budgeted=True)) as client:
        report = await client.run("reader", "go", budget=Budget(usd="0.135"))

    assert report.output == "done"
    assert not any(step.overrun for step in report.steps)


@pytest.mark.slow
@pytest.mark.accepts("M3", "L18")
async def test_model_whose_window_is_too_small_is_passed_over(runtime: Runtime) -> None:
    """The part that must stay does not fit; a larger model gets the whole transcript."""
    small, large = ScriptedModel(), long_script()
    async with runtime(app("ab", window=1_000, providers={"a": small, "b": large})) as client:
        report = await client.run("reader", "go " * 2_000)

    assert (report.output, small.call_count) == ("done", 0)
    assert report.steps[0].tried == (
        Tried(model="a:m", reason="its window of 1000 tokens is too small"),
    )
    assert len(large.requests[-1].messages) == 2 * STEPS + 1
    assert report.steps[-1].left_out is None


@pytest.mark.accepts("L18")
async def test_only_model_whose_window_is_too_small_says_so(runtime: Runtime) -> None:
    """Before any request."""
    model = ScriptedModel()
    async with runtime(app(window=1_000, providers={"a": model})) as client:
        with pytest.raises(
            errors.LLMInvalidRequestError, match=r"a:m: its window of 1000 tokens is too small"
        ):
            await client.run("reader", "go " * 2_000)

    assert model.call_count == 0


@pytest.mark.accepts("L18")
@pytest.mark.slow
async def test_each_model_of_a_chain_gets_what_its_own_window_holds(runtime: Runtime) -> None:
    """The second one answers when the first one fails, and gets the whole transcript although that
    was shortened for the first one.
    """
    busy = errors.LLMRateLimitError("slow down", context={"status": 429, "retry_after_s": 120})
    first = ScriptedModel(
        *[calls(call("fetch", number=number)) for number in range(22)], fails(busy)
    )
    second = ScriptedModel("done")
    async with runtime(app("ab", providers={"a": first, "b": second})) as client:
        report = await client.run("reader", "go")

    assert report.output == "done"
    assert len(first.requests[-1].messages) <= len(second.requests[0].messages) == 45
    assert second.requests[0].messages == report.messages[:-1]
    assert (report.steps[-2].left_out is None, report.steps[-1].left_out) == (False, None)
    assert isinstance(report.messages[-1], AssistantMessage)
