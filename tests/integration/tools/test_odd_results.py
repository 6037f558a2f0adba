"""Tools that return or raise values that can hardly be encoded: the model gets a result for each,
in both vendors' APIs, and the turn continues.
"""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, limits, tool
from perdure.testing.stub_provider import StubProvider, said_in
from perdure.text import size
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.bad_input.odd_bodies import DIALECTS
from ...support.bad_input.odd_results import RAISED, REFUSED, WRITTEN, fetch, made
from ...support.loopback import VENDORS, Vendor
from ...support.thorough import some

NOTE = "\n[The tool ran. This is its result as str() gives it: "


@tool
async def fetch_async(what: str) -> Any:
    """Make it on the tool loop."""
    return made(what)


@pytest.mark.slow
@pytest.mark.accepts("G3", "T1", "T8")
@pytest.mark.parametrize("name", ["fetch", "fetch_async"])
@pytest.mark.parametrize("vendor", some(VENDORS))
async def test_model_is_told_something_of_whatever_a_tool_returns_or_raises(
    runtime: Runtime, vendor: Vendor, name: str
) -> None:
    """All of them in one step: every call has its result, and the next request has it as in the
    report.
    """
    asked = [*WRITTEN, *REFUSED, *RAISED]
    with StubProvider(
        [
            {"calls": [{"name": name, "arguments": {"what": what}} for what in asked]},
            {"text": "done"},
        ]
    ) as stub:
        agent = Agent(name="clerk", model="vendor:m", tools=[fetch, fetch_async])
        async with runtime(
            AgentWorker(agent, providers={"vendor": vendor.make(stub.anthropic_url, None)})
        ) as client:
            report = await client.run("clerk", "go")
    results = dict(zip(asked, report.steps[0].results, strict=True))
    heard = [result for _, _, _, result in DIALECTS[vendor.name].heard(said_in(stub.requests[1]))]

    assert (report.output, heard) == ("done", [result.content for result in results.values()])
    assert {what: (results[what].content, results[what].is_error) for what in WRITTEN} == {
        what: (text, False) for what, (_, text) in WRITTEN.items()
    }
    assert {what: (results[what].content, results[what].is_error) for what in RAISED} == {
        what: (f"{name} failed: {text}", True) for what, (_, text) in RAISED.items()
    }
    assert {
        what: (NOTE in results[what].content, results[what].is_error) for what in REFUSED
    } == dict.fromkeys(REFUSED, (True, False))
    assert "object object at" in results["no data"].content.partition(NOTE)[0]
    assert {
        what for what in REFUSED if size(results[what].content) > limits.TOOL_RESULT_BYTES
    } == set()
