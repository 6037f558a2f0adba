"""A whole turn over each vendor's API: the real server, worker and provider, and a model on loopback."""

import pytest

from perdure import Agent, Outcome, ToolMessage, Usage, UserMessage, errors, tool
from perdure.errors import LLMError
from perdure.testing.stub_provider import StubProvider
from perdure.worker import AgentWorker

from ..conftest import Runtime
from ..loopback import KEY, VENDORS, Vendor, error_body


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADDER = Agent(name="adder", model="vendor:m", instructions="Add.", tools=[add])


@pytest.mark.accepts("L2")
@pytest.mark.parametrize("vendor", VENDORS)
async def test_turn_with_a_tool_runs_over_the_vendors_api(runtime: Runtime, vendor: Vendor) -> None:
    """Two requests, the second with the call and its result; the report is the same whoever answered."""
    with StubProvider([{"calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}, {"text": "five"}]) as stub:
        async with runtime(AgentWorker(ADDER, providers={"vendor": vendor.make(stub.anthropic_url, None)})) as client:
            report = await client.run("adder", "2 + 3?")

    call = report.steps[0].message.calls[0]
    assert (report.outcome, report.output, report.usage) == (Outcome.COMPLETED, "five", Usage(input_tokens=20, output_tokens=10))
    assert report.messages[:3] == (UserMessage.of("2 + 3?"), report.steps[0].message, ToolMessage.of(call, "5"))
    assert (call.id, call.name, call.arguments) == ("call_0_0", "add", '{"a": 2, "b": 3}')
    assert len(stub.requests) == 2
    assert stub.requests[1]["messages"][: len(stub.requests[0]["messages"])] == stub.requests[0]["messages"]


@pytest.mark.accepts("U7")
@pytest.mark.parametrize(("status", "cls", "requests"), [(401, errors.LLMAuthError, 1), (429, errors.LLMRateLimitError, 2)])
@pytest.mark.parametrize("vendor", VENDORS)
async def test_error_of_the_vendor_reaches_the_caller_as_its_class(
    runtime: Runtime, vendor: Vendor, status: int, cls: type[LLMError], requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the vendor's words and without the key that they quote; only what may pass is asked once more."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with StubProvider([error_body(status, {"message": f"not with {KEY}"}, retry_after="0.1")]) as stub:
        async with runtime(AgentWorker(ADDER, providers={"vendor": vendor.make(stub.anthropic_url, "TEST_KEY")})) as client:
            with pytest.raises(cls) as caught:
                await client.run("adder", "2 + 3?")

    assert caught.value.message == f"m: not with [key] (status {status})"
    assert len(stub.requests) == requests
