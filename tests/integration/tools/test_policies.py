"""Policies without a verdict: a missing policy, one with an invalid return value, and one whose
worker is lost. None of them lets a call run.
"""

import asyncio
from typing import Any

import pytest

from perdure import Agent, Allow, Deny, Outcome, ProposedCall, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.testing import FunctionModel, ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.approving import pending
from ...support.spending import ended, queue, report_of


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


def agent(**fields: Any) -> Agent:
    """An agent that can look, and send with approval."""
    return Agent(**{"name": "clerk", "model": "scripted:clerk", "tools": [look, send], **fields})


@pytest.mark.slow
@pytest.mark.accepts("E25")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        (True, "an instance of bool"),
        (None, "None"),
        ("allow", "an instance of str"),
        (Allow, "the class Allow itself"),
    ],
)
async def test_policy_that_returns_no_verdict_denies(
    runtime: Runtime, caplog: pytest.LogCaptureFixture, said: Any, words: str
) -> None:
    """The call does not run, and the model and the worker's log get the policy's name, its location
    and what to return.
    """

    def rules(_: ProposedCall) -> Any:
        return said

    model = ScriptedModel(calls(call("look")), says("done"))
    async with runtime(agent(policy=rules), model=model) as client:
        report = await client.run("clerk", "go")

    place = f"test_policies.py:{rules.__code__.co_firstlineno}"
    reason = (
        f"the policy rules ({place}) of agent clerk returned {words}; it must return Allow(),"
        " Deny(reason) or RequireApproval()"
    )
    assert [result.content for result in report.steps[0].results] == [
        f"This call was not run: it was denied: {reason}"
    ]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        reason
    ]


@pytest.mark.slow
async def test_policy_that_the_deployed_agent_has_not_any_more_denies(perdure_server: str) -> None:
    """A turn that was started with a policy requires one, even if the next release has none:
    without a verdict, the call does not run.
    """
    async with queue(perdure_server) as work:
        model = ScriptedModel(calls(call("send", to="Ann")), calls(call("look")), says("done"))
        async with work.worker(AgentWorker(agent(policy=lambda _: Allow())), model):
            turn = await work.client.start("clerk", "go")
            [ann] = await pending(turn)
        async with work.worker(AgentWorker(agent()), model):
            await turn.approve(ann)
            report = await report_of(turn)

    contents = [step.results[0].content for step in report.steps[:2]]
    assert contents == [
        "sent to Ann",
        "This call was not run: it was denied: the deployed agent has no policy any more",
    ]


@pytest.mark.slow
async def test_policy_whose_worker_is_lost_is_asked_again(perdure_server: str) -> None:
    """The next worker evaluates its own policy, and the call follows that verdict."""
    asked = asyncio.Event()

    async def silent(proposed: ProposedCall) -> Allow:
        asked.set()
        await asyncio.sleep(60)
        return Allow()

    async with queue(perdure_server) as work:
        model = ScriptedModel(calls(call("look")), says("done"))
        async with work.worker(AgentWorker(agent(policy=silent)), model):
            turn = await work.client.start("clerk", "go")
            await asyncio.wait_for(asked.wait(), 60)
        async with work.worker(
            AgentWorker(agent(policy=lambda _: Deny(reason="no looking"))), model
        ):
            report = await report_of(turn)

    assert report.outcome is Outcome.COMPLETED
    assert [result.content for result in report.steps[0].results] == [
        "This call was not run: it was denied: no looking"
    ]


@pytest.mark.slow
async def test_reason_of_a_denial_needs_no_name(runtime: Runtime) -> None:
    """`Deny("reason")` works, and the model gets the reason."""
    model = ScriptedModel(calls(call("look")), says("done"))
    async with runtime(agent(policy=lambda _: Deny("no looking")), model=model) as client:
        report = await client.run("clerk", "go")

    assert [result.content for result in report.steps[0].results] == [
        "This call was not run: it was denied: no looking"
    ]


@pytest.mark.table(1)
@pytest.mark.accepts("U22")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_policy_that_would_stop_the_worker_denies(
    runtime: Runtime, kind: type[BaseException]
) -> None:
    """The worker goes on, also if the provider raises the same then: that is the turn's error."""

    async def rules(_: ProposedCall) -> Any:
        raise kind("enough")

    def reply(request: ModelRequest) -> Reply:
        if len(request.messages) == 1:
            return calls(call("look"))
        raise kind("provider")

    async with runtime(agent(policy=rules), model=FunctionModel(reply)) as client:
        turn = await client.start("clerk", "go")
        error = await ended(turn)
        report = await report_of(turn)

    [result] = report.steps[0].results
    assert result.content.startswith("This call was not run: it was denied: the policy failed:")
    assert isinstance(error, errors.LLMError)
    assert error.context["raised"] == kind.__name__
