"""Exceptions of the user's code are in the worker's log with a traceback, and the error has their
type and location.
"""

from typing import Any

import pytest

from perdure import (
    Agent,
    InputGuardrail,
    Observer,
    ProposedCall,
    Registry,
    ToolContext,
    errors,
    tool,
)
from perdure.activities.provider import ModelRequest
from perdure.errors import PerdureError
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.answers import ModelAnswer
from perdure.values.reports import AgentReport
from perdure.values.tasks import TurnInfo
from perdure.worker import AgentWorker

from ...conftest import Runtime

NOTHING: dict[str, Any] = {}


def lost() -> Any:
    """Raise."""
    return NOTHING["key"]


PLACE = f"(test_exceptions_of_user_code.py:{lost.__code__.co_firstlineno + 2} in lost)"
RAISED = f"KeyError: 'key' {PLACE}"


@tool
def refund() -> str:
    """Fail in a thread."""
    return str(lost())


@tool
async def arefund() -> str:
    """Fail on the loop of async tools."""
    return str(lost())


@tool
def customer(ctx: ToolContext[Any]) -> str:
    """Use deps that are not there."""
    return str(ctx.deps["customers"])


@tool
async def forgetful() -> object:
    """Forget an await."""
    return arefund()


class Audit(Observer):
    """An observer that fails."""

    async def on_step(self, turn: TurnInfo, step: object) -> None:
        """Fail."""
        lost()


class Resolver:
    """A resolver that fails."""

    def resolve(self, name: str) -> None:
        """Fail."""
        lost()


class Broken:
    """A provider that fails."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Fail."""
        raise lost()

    async def close(self) -> None:
        """Nothing is open."""


def ruled(proposed: ProposedCall) -> Any:
    """Fail."""
    lost()


def factory(info: TurnInfo) -> Agent:
    """Fail."""
    raise lost()


def logged(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """The log lines that have a traceback, with it."""
    return {
        record.getMessage(): str(record.exc_text)
        for record in caplog.records
        if record.name == "perdure" and record.exc_text
    }


@pytest.mark.slow
@pytest.mark.accepts("O20", "O23")
async def test_tools_that_raise_are_logged_and_their_results_say_what_is_wrong(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """A tool that uses deps without a lifespan, and an async tool without an await. Models and
    history do not get the location.
    """
    agent = Agent(
        name="shop",
        model="scripted:x",
        tools=[refund, arefund, customer, forgetful],
        observers=[Audit()],
    )
    model = ScriptedModel(
        calls(call("refund"), call("arefund"), call("customer"), call("forgetful")), says("done")
    )

    async with runtime(agent, model=model) as client:
        report: AgentReport[str] = await client.run(agent, "go")

    hint = "TypeError: 'NoneType' object is not subscriptable"
    assert [result.content for result in report.steps[0].results] == [
        "refund failed: KeyError: 'key'",
        "arefund failed: KeyError: 'key'",
        f"customer failed: {hint} (this worker has no lifespan, so ctx.deps is None)",
        (
            "forgetful failed: ValueError: the function returned something to await; put await in"
            " front of what it returns"
        ),
    ]
    traces = logged(caplog)
    line = customer.function.__code__.co_firstlineno + 3
    assert set(traces) == {
        f"the tool 'refund' raised {RAISED}",
        f"the tool 'arefund' raised {RAISED}",
        (
            f"the tool 'customer' raised {hint} (test_exceptions_of_user_code.py:{line} in"
            f" customer) (this worker"
            " has no lifespan, so ctx.deps is None)"
        ),
        f"the observer Audit.on_step failed; the turn goes on: {RAISED}",
    }
    assert all(
        trace.startswith("Traceback")
        and "test_exceptions_of_user_code.py" in trace
        and "call_tool.py" not in trace
        for trace in traces.values()
    )


@pytest.mark.slow
@pytest.mark.accepts("O20")
async def test_what_ends_a_turn_is_named_with_its_place_and_logged(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """A guardrail, a factory, a resolver and a provider; a policy that raises denies."""
    guarded = Agent(
        name="guarded", model="scripted:x", middleware=[InputGuardrail(lambda task: lost())]
    )
    resolving = Agent(name="resolving", model="scripted:x", resolver=Resolver())
    ruling = Agent(name="ruling", model="scripted:x", tools=[refund], policy=ruled)
    broken = Agent(name="broken", model="scripted:x")
    app = AgentWorker(Registry([guarded, resolving, ruling, broken, factory]))
    models = {"ruling": ScriptedModel(calls(call("refund")), says("done")), "broken": Broken()}
    expected: dict[str, tuple[type[PerdureError], str]] = {
        "guarded": (
            PerdureError,
            f"the middleware InputGuardrail of agent guarded failed: {RAISED}",
        ),
        "factory": (errors.ConfigurationError, f"the factory of agent 'factory' failed: {RAISED}"),
        "resolving": (
            errors.ToolResolverError,
            f"agent resolving: the resolver failed for 'extra': {RAISED}",
        ),
        "broken": (errors.LLMError, f"the provider 'scripted' raised {RAISED}"),
    }

    async with runtime(app, model=models) as client:
        for name, (kind, words) in expected.items():
            with pytest.raises(kind) as caught:
                await client.run(
                    name, "go", allowed_tools=["extra"] if name == "resolving" else None
                )
            assert caught.value.message == words
        report = await client.run("ruling", "go")

    traces = logged(caplog)
    assert "the policy failed: KeyError: 'key'" in report.steps[0].results[0].content
    assert PLACE not in report.steps[0].results[0].content
    assert set(traces) == {
        *(words for _, words in expected.values()),
        f"the policy of agent ruling failed: {RAISED}",
    }
    assert all("in lost\n" in trace for trace in traces.values())
    records = [getattr(record, "perdure", {}) for record in caplog.records]
    assert [record["error"] for record in records if record.get("event") == "turn_failed"] == [
        words for _, words in expected.values()
    ]
