"""A complete turn with each vendor's API: real server, worker and provider, and a stub on
loopback.
"""

import json
from dataclasses import replace

import pytest
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from perdure import Agent, Budget, Outcome, ToolMessage, Usage, UserMessage, errors, tool
from perdure.activities.providers import PydanticAI
from perdure.errors import LLMError
from perdure.testing.stub_provider import StubProvider, said_in
from perdure.values.messages import Thinking
from perdure.values.options import RequestOptions
from perdure.worker import AgentWorker

from ...conftest import Runtime, first_of
from ...support.loopback import ANTHROPIC, KEY, RESPONSES, VENDORS, Vendor, error_body


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADDER = Agent(name="adder", model="vendor:m", instructions="Add.", tools=[add])


@pytest.mark.table(1)
@pytest.mark.accepts("L2")
@pytest.mark.parametrize("vendor", VENDORS)
async def test_turn_with_a_tool_runs_over_the_vendors_api(runtime: Runtime, vendor: Vendor) -> None:
    """Two requests, the second with the call and its result; the report is the same for every
    API.
    """
    with StubProvider(
        [{"calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}, {"text": "five"}]
    ) as stub:
        async with runtime(
            AgentWorker(ADDER, providers={"vendor": vendor.make(stub.anthropic_url, None)})
        ) as client:
            report = await client.run("adder", "2 + 3?")

    call = report.steps[0].message.calls[0]
    assert (report.outcome, report.output, report.usage) == (
        Outcome.COMPLETED,
        "five",
        Usage(input_tokens=20, output_tokens=10),
    )
    assert report.messages[:3] == (
        UserMessage.of("2 + 3?"),
        report.steps[0].message,
        ToolMessage.of(call, "5"),
    )
    assert (call.id, call.name, call.arguments) == ("call_0_0", "add", '{"a": 2, "b": 3}')
    assert len(stub.requests) == 2
    first, second = map(said_in, stub.requests)
    assert second[: len(first)] == first


@pytest.mark.slow
@pytest.mark.accepts("M7")
async def test_reasoning_goes_back_to_the_responses_api_unchanged(runtime: Runtime) -> None:
    """Through history, before the call that it belongs to and that call's result."""
    reasoning = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Add ü."}],
        "content": [],
        "encrypted_content": "gAA",
    }
    call = {
        "type": "function_call",
        "call_id": "c1",
        "name": "add",
        "arguments": '{"a": 2, "b": 3}',
    }
    first = {
        "status": "completed",
        "output": [reasoning, {"id": "fc_1", "status": "completed", **call}],
    }
    with StubProvider([{"raw": json.dumps(first)}, {"text": "five"}]) as stub:
        async with runtime(
            AgentWorker(ADDER, providers={"vendor": RESPONSES.make(stub.anthropic_url, None)})
        ) as client:
            report = await client.run("adder", "2 + 3?")

    assert [part.text for part in report.steps[0].message.parts if isinstance(part, Thinking)] == [
        "Add ü."
    ]
    assert stub.requests[1]["input"][1:] == [
        reasoning,
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "5"},
    ]


@pytest.mark.accepts("U7")
@pytest.mark.parametrize(
    ("status", "cls", "requests"),
    [(401, errors.LLMAuthError, 1), (429, errors.LLMRateLimitError, 2)],
)
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.table(1)
async def test_error_of_the_vendor_reaches_the_caller_as_its_class(
    runtime: Runtime,
    vendor: Vendor,
    status: int,
    cls: type[LLMError],
    requests: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the vendor's message, without the key that it quotes; only transient errors are
    retried.
    """
    monkeypatch.setenv("TEST_KEY", KEY)
    with StubProvider(
        [error_body(status, {"message": f"not with {KEY}"}, retry_after="0.1")]
    ) as stub:
        async with runtime(
            AgentWorker(ADDER, providers={"vendor": vendor.make(stub.anthropic_url, "TEST_KEY")})
        ) as client:
            with pytest.raises(cls) as caught:
                await client.run("adder", "2 + 3?")

    assert first_of(caught.value) == f"m: not with [key] (status {status})"
    assert len(stub.requests) == requests


@pytest.mark.slow
@pytest.mark.accepts("L8")
@pytest.mark.parametrize("vendor", VENDORS)
async def test_options_of_agent_and_turn_are_in_every_request_to_the_vendor(
    runtime: Runtime, vendor: Vendor
) -> None:
    """Options of the turn override the agent's, and the vendor gets all of them under its own
    names.
    """
    agent = replace(
        ADDER,
        options=RequestOptions(
            temperature=0.5, max_output_tokens=100, extra={"top_p": 0.9, "user": "a"}
        ),
    )
    with StubProvider(
        [{"calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}, {"text": "five"}]
    ) as stub:
        async with runtime(
            AgentWorker(agent, providers={"vendor": vendor.make(stub.anthropic_url, None)})
        ) as client:
            stops = () if vendor is RESPONSES else ("END",)
            await client.run(
                "adder",
                "2 + 3?",
                options=RequestOptions(temperature=0, stop_sequences=stops, extra={"user": "b"}),
            )

    theirs: dict[str, dict[str, object]] = {
        "openai": {"max_tokens": 100, "stop": ["END"]},
        "openai-responses": {"max_output_tokens": 100},
        "anthropic": {"max_tokens": 100, "stop_sequences": ["END"]},
    }
    ours = {"temperature": 0, "top_p": 0.9, "user": "b", **theirs[vendor.name]}
    assert [{name: sent.get(name) for name in ours} for sent in stub.requests] == [ours, ours]


@pytest.mark.table(1)
@pytest.mark.parametrize("vendor", VENDORS)
async def test_answer_that_the_vendor_cut_at_the_limit_is_truncated(
    runtime: Runtime, vendor: Vendor
) -> None:
    """A stop by the limit is reported as a risk, with the usage of the partial answer."""
    with StubProvider([{"text": "one two three four five six"}]) as stub:
        async with runtime(
            AgentWorker(ADDER, providers={"vendor": vendor.make(stub.anthropic_url, None)})
        ) as client:
            report = await client.run(
                "adder", "2 + 3?", options=RequestOptions(max_output_tokens=3)
            )

    assert (report.outcome, report.output, report.usage) == (
        Outcome.TRUNCATED,
        "one two thre",
        Usage(input_tokens=10, output_tokens=3),
    )


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.slow
async def test_attempt_that_broke_off_tells_the_caller_that_it_may_have_been_billed(
    runtime: Runtime, vendor: Vendor
) -> None:
    """With the same class and context as in the accounting."""
    with StubProvider([{"text": "five", "headers": {"content-length": "10000"}}]) as stub:
        async with runtime(
            AgentWorker(ADDER, providers={"vendor": vendor.make(stub.anthropic_url, None)})
        ) as client:
            with pytest.raises(errors.LLMUnavailableError) as caught:
                await client.run("adder", "2 + 3?")

    context = {
        name: value for name, value in caught.value.context.items() if name != "failing_for_s"
    }
    assert (context, len(stub.requests)) == ({"model": "m", "charged": True, "attempts": 2}, 2)


@pytest.mark.slow
@pytest.mark.accepts("L2", "M7")
async def test_turn_with_a_tool_runs_on_a_model_of_pydantic_ai(runtime: Runtime) -> None:
    """The call returns through history with its thought and signature, and the report is that of
    any other provider.
    """
    thought = theirs.ThinkingPart("Add ü.", signature="EqkB", provider_name="google")
    call = theirs.ToolCallPart(
        "add",
        '{"a": 2, "b": 3}',
        "c1",
        provider_name="google",
        provider_details={"thought_signature": "EqMB"},
    )
    asked: list[list[theirs.ModelMessage]] = []

    def answer(messages: list[theirs.ModelMessage], _: AgentInfo) -> theirs.ModelResponse:
        asked.append(messages)
        parts: list[theirs.ModelResponsePart] = (
            [theirs.TextPart("five")] if len(messages) > 1 else [thought, call]
        )
        return theirs.ModelResponse(
            parts=parts,
            usage=RequestUsage(input_tokens=10, output_tokens=5),
            provider_name="google",
        )

    async with runtime(
        AgentWorker(ADDER, providers={"vendor": PydanticAI(FunctionModel(answer))})
    ) as client:
        report = await client.run("adder", "2 + 3?")

    [(question,), parts, (result,)] = [message.parts for message in asked[1]]
    assert (report.outcome, report.output, report.usage) == (
        Outcome.COMPLETED,
        "five",
        Usage(input_tokens=20, output_tokens=10),
    )
    assert report.messages[:3] == (
        UserMessage.of("2 + 3?"),
        report.steps[0].message,
        ToolMessage.of(report.steps[0].message.calls[0], "5"),
    )
    # these parts have the attributes
    assert (question.content, parts, result.content) == ("2 + 3?", [thought, call], "5")  # type: ignore[union-attr]


@pytest.mark.slow
async def test_prompt_of_a_loop_is_cached_and_its_last_answer_is_not(runtime: Runtime) -> None:
    """Two requests with a successor, then the last one, without tools, which has none."""
    agent = replace(
        ADDER, instructions="Add. " * 1_000, on_exhausted="finish", budget=Budget(model_calls=3)
    )
    with StubProvider(
        [{"calls": [{"name": "add", "arguments": {"a": 2, "b": index}}]} for index in range(2)],
        then={"text": "five"},
    ) as stub:
        async with runtime(
            AgentWorker(agent, providers={"vendor": ANTHROPIC.make(stub.anthropic_url, None)})
        ) as client:
            report = await client.run("adder", "2 + 3?")

    assert report.output == "five"
    assert [json.dumps(body).count("cache_control") for body in stub.requests] == [2, 3, 0]
