"""Handing a turn over to another agent, on a real server."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import (
    Agent,
    AgentReport,
    Allow,
    Budget,
    Deny,
    Handoff,
    InputGuardrail,
    ModelProfile,
    Observer,
    Outcome,
    OutputGuardrail,
    Price,
    ProposedCall,
    Registry,
    RequestOptions,
    Skill,
    Step,
    Task,
    Thinking,
    TurnInfo,
    errors,
    tool,
)
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.clients.cli.drawing.progress import Progress
from perdure.clients.cli.drawing.tree import lines, rows
from perdure.clients.reading.tree import Node
from perdure.temporal import start_request
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.testing import FunctionModel, ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.turn.facts import HandedOver, Scheduled, WaitBegan
from perdure.turn.reservations import LAST_WORDS
from perdure.values.messages import AssistantMessage, ToolMessage, UserMessage
from perdure.values.reports import Usage
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.listing import entry_of, eventually_listed
from ...support.spending import ended, look, queue, until
from ...support.telemetry import Traces, attributes

FREE = {"scripted:*": Price.free()}


@tool
def refund(order: str) -> str:
    """Pay an order back."""
    return f"paid {order} back"


def support(**fields: Any) -> Agent:
    """The agent that turns are started with."""
    given = {"name": "support", "model": "scripted:support", "instructions": "You help."}
    return Agent(**{**given, "tools": [look], "handoffs": ["billing"], **fields})


def billing(**fields: Any) -> Agent:
    """The agent that they are handed over to."""
    given = {"name": "billing", "model": "scripted:billing", "description": "Knows invoices."}
    return Agent(**{**given, "instructions": "You do the bills.", "tools": [refund], **fields})


def worker(*agents: Agent) -> AgentWorker:
    """A worker with these agents, or with the two above; their models are free."""
    return AgentWorker(Registry(agents or (support(), billing())), prices=FREE)


def over(to: str = "billing", message: str = "a refund for order 7", **more: Any) -> Reply:
    """A reply that hands over."""
    return calls(call("hand_over", agent=to, message=message), **more)


def results(request: ModelRequest) -> list[str]:
    """The results in the last message of a request."""
    last = request.messages[-1]
    assert isinstance(last, ToolMessage)
    return [result.content for result in last.results]


@pytest.mark.accepts("D40", "D48")
async def test_other_agent_goes_on_in_the_same_turn(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """With its own instructions, tools and model; who did what is in the report, the events, the
    status, the records, the list and the tree.
    """
    caplog.set_level(logging.INFO, "perdure")
    models = {
        "support": ScriptedModel(calls(call("look")), over(text="one moment")),
        "billing": ScriptedModel(calls(call("refund", order="7")), says("It is paid back.")),
    }
    async with runtime(worker(), model=models) as client:
        turn = await client.start("support", "My order is wrong.", id="handed-1")
        report = await turn.result()
        events = [event async for event in turn.events()]
        status = await turn.status()
        memo = await (await client.temporal.get_workflow_handle(turn.id).describe()).memo_value(
            "perdure"
        )
        summary = [
            event.activity_task_scheduled_event_attributes.activity_id
            for event in (await client.history(turn)).events
            if event.HasField("activity_task_scheduled_event_attributes")
        ]

    first, second = models["billing"].requests
    assert first.system == "You do the bills."
    assert [item.name for item in first.tools] == ["refund"]
    assert first.messages[:-2] == models["support"].requests[1].messages
    assert results(first) == ["Handed over to billing, which goes on from here."]
    assert second.messages[: len(first.messages)] == first.messages
    [offered] = [item for item in models["support"].requests[0].tools if item.name == "hand_over"]
    assert "- billing: Knows invoices." in offered.description
    assert (report.agent, report.last_agent, report.output) == (
        "support",
        "billing",
        "It is paid back.",
    )
    assert [step.agent for step in report.steps] == ["", "", "billing", "billing"]
    assert (report.model_calls, report.tool_calls) == (4, 3)
    [fact] = [event for event in events if isinstance(event.fact, HandedOver)]
    assert (fact.step, fact.call and fact.call.name) == (2, "hand_over")
    assert {"kind": "handed_over", "to": "billing", "last_agent": "billing"}.items() <= (
        fact.public().items()
    )
    assert "instructions" not in json.dumps(fact.public())
    told = [(event.agent, event.last_agent) for event in events]
    assert told[0] == ("support", "support")
    assert told[-1] == ("support", "billing")
    assert (status.agent, status.last_agent) == ("support", "billing")
    assert (memo["agent"], memo["last_agent"]) == ("support", "billing")
    assert summary[:4] == ["step-1", "step-1.call-1", "step-2", "step-2.call-1.agent"]
    records = [record.perdure for record in caplog.records if record.name == "perdure.turns"]  # type: ignore[attr-defined]
    [handed] = [record for record in records if record["event"] == "handed_over"]
    assert {"by": "support", "to": "billing", "agent": "support"}.items() <= handed.items()
    last = [record.get("last_agent") for record in records if record["event"] == "llm_call"]
    assert last == [None, None, "billing", "billing"]
    node = Node(turn.id)
    for event in events:
        node.see(event)
    assert str(lines(rows(node))[0]).startswith("support → billing")
    screen = Progress(out := io.StringIO())
    for event in events:
        screen.show(event)
    assert "step-2.call-1.agent  → handed over to billing, asks scripted:billing, 1 tool" in (
        out.getvalue()
    )


@pytest.mark.slow
@pytest.mark.accepts("D42")
@pytest.mark.parametrize("parallel", [True, False])
async def test_calls_beside_a_handoff_do_not_run(runtime: Runtime, parallel: bool) -> None:
    """Each has an error result in the request that follows."""
    asked = calls(call("look"), call("hand_over", agent="billing", message="x"), call("look"))
    models = {"support": ScriptedModel(asked), "billing": ScriptedModel(says("done"))}
    async with runtime(worker(support(parallel_tools=parallel), billing()), model=models) as client:
        turn = await client.start("support", "go")
        report = await turn.result()
        scheduled = [
            str(event.fact.key)
            async for event in turn.events()
            if isinstance(event.fact, Scheduled)
        ]

    assert scheduled == ["step-1", "step-1.call-2.agent", "step-2"]
    refused = "This call was not run: the same answer calls hand_over"
    assert [content.startswith(refused) for content in results(models["billing"].requests[0])] == [
        True,
        False,
        True,
    ]
    assert report.last_agent == "billing"


@pytest.mark.accepts("D53")
async def test_agent_that_only_says_that_it_hands_over_does_not(runtime: Runtime) -> None:
    """Its text is the answer."""
    models = {"support": ScriptedModel(says("I hand you over to billing."))}
    async with runtime(worker(), model=models) as client:
        report = await client.run("support", "go")

    assert (report.output, report.last_agent) == ("I hand you over to billing.", "support")


@pytest.mark.slow
@pytest.mark.accepts("D41")
@pytest.mark.parametrize("keep", ["all", "last", "task"])
async def test_what_the_other_agent_is_sent_is_declared(runtime: Runtime, keep: Any) -> None:
    """The report has everything; the window and a last answer cut what is left of it."""
    models = {
        "support": ScriptedModel(calls(call("look", number=1)), calls(call("look")), over()),
        "billing": ScriptedModel(calls(call("refund", order="7")), says("done")),
    }
    agents = support(handoffs=[Handoff("billing", keep=keep)]), billing()
    async with runtime(worker(*agents), model=models) as client:
        report = await client.run("support", "help", history=[UserMessage.of("earlier")])

    kinds = [type(message).__name__ for message in models["billing"].requests[0].messages]
    look_ = ["AssistantMessage", "ToolMessage"]
    assert (
        kinds
        == {
            "all": ["UserMessage", "UserMessage", *look_, *look_, *look_],
            "last": ["UserMessage", *look_],
            "task": ["UserMessage", "UserMessage"],
        }[keep]
    )
    assert len(models["billing"].requests[1].messages) == len(kinds) + 2
    answers = [one for one in report.messages if isinstance(one, AssistantMessage)]
    assert len(answers) == 5
    left = report.steps[3].left_out
    assert (left.steps if left else 0) == {"all": 0, "last": 2, "task": 3}[keep]


@pytest.mark.slow
@pytest.mark.accepts("D51")
async def test_thoughts_of_another_agent_are_not_sent(runtime: Runtime) -> None:
    """Although the model is the same: a provider checks that nothing before them has changed."""
    look_ = calls(call("look"))
    assert look_.answer is not None
    thinking = Thinking(text="hm", signature="s")
    message = look_.answer.message
    thought = Reply(
        answer=look_.answer.model_copy(
            update={"message": message.model_copy(update={"parts": (thinking, *message.parts)})}
        )
    )
    model = ScriptedModel(thought, over(), thought, says("done"))

    def has_thoughts(request: ModelRequest) -> list[bool]:
        answers = [one for one in request.messages if isinstance(one, AssistantMessage)]
        return [any(isinstance(part, Thinking) for part in one.parts) for one in answers]

    same = {"model": "same:m"}
    agents = support(**same), billing(**same, tools=[look])
    app = AgentWorker(Registry(agents), prices={"same:*": Price.free()}, providers={"same": model})
    async with runtime(app) as client:
        report = await client.run("support", "go")

    asked = [has_thoughts(request) for request in model.requests]
    assert asked == [[], [True], [False, False], [False, False, True]]
    assert sum(isinstance(part, Thinking) for one in report.messages for part in parts(one)) == 2


def parts(message: Any) -> tuple[Any, ...]:
    return message.parts if isinstance(message, AssistantMessage) else ()


class Answer(BaseModel):
    """A typed answer."""

    paid: int


class Seen(Observer):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, str]] = []
        self.ends: list[str] = []

    async def on_step(self, turn: TurnInfo, step: Step) -> None:
        """Remember the step and its agent."""
        self.steps.append((step.number, step.agent))

    async def on_end(self, turn: TurnInfo, report: AgentReport[Any]) -> None:
        """Remember who answered."""
        self.ends.append(report.last_agent)


@pytest.mark.slow
@pytest.mark.accepts("D45")
async def test_turn_keeps_its_output_type_its_guardrails_and_its_observers(
    runtime: Runtime,
) -> None:
    """Those of the first agent; the second one's are not asked."""
    seen, other = Seen(), Seen()
    checked: list[Any] = []

    def good(report: AgentReport[Any]) -> bool:
        checked.append(report.output)
        return True

    def never(_: Task | AgentReport[Any]) -> bool:
        raise AssertionError

    agents = (
        support(output=Answer, middleware=[OutputGuardrail(good)], observers=[seen]),
        billing(output=str, middleware=[InputGuardrail(never)], observers=[other]),
    )
    models = {
        "support": ScriptedModel(over()),
        "billing": ScriptedModel(says("seven"), says('{"paid": 7}')),
    }
    async with runtime(worker(*agents), model=models) as client:
        report = await client.run("support", "go", output=Answer)

    assert report.output == Answer(paid=7)
    assert checked == [Answer(paid=7)]
    assert seen.steps == [(1, ""), (2, "billing"), (3, "billing")]
    assert (seen.ends, other.steps) == (["billing"], [])


@pytest.mark.slow
@pytest.mark.accepts("D45")
async def test_one_ledger_and_the_limits_of_the_turn(runtime: Runtime) -> None:
    """The budget counts both; the limits of the second agent are not used."""
    budget = Budget(model_calls=4)
    agents = support(budget=budget, max_iterations=9), billing(budget=Budget(model_calls=1))
    used = Usage(input_tokens=20, output_tokens=5)
    models = {
        "support": ScriptedModel(over(usage=used)),
        "billing": ScriptedModel(
            *[calls(call("refund", order=str(n)), usage=used) for n in "1234"]
        ),
    }
    async with runtime(worker(*agents), model=models) as client:
        turn = await client.start("support", "go")
        error = await ended(turn)
        status = await turn.status()

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.report is not None
    assert (error.report.spent.model_calls, error.report.spent.tokens) == (4, 100)
    assert (error.report.agent, error.report.last_agent) == ("support", "billing")
    assert (status.budget, status.max_iterations) == (budget, 9)


@pytest.mark.slow
@pytest.mark.accepts("D45")
async def test_last_answer_of_a_spent_budget_is_the_other_agents(runtime: Runtime) -> None:
    """With `on_exhausted="finish"` of the first agent."""
    models = {
        "support": ScriptedModel(over()),
        "billing": ScriptedModel(calls(call("refund", order="1")), says("so far")),
    }
    agents = support(on_exhausted="finish"), billing()
    async with runtime(worker(*agents), model=models) as client:
        report = await client.run("support", "go", budget=Budget(model_calls=3))

    assert (report.outcome, report.output) == (Outcome.BUDGET_EXHAUSTED, "so far")
    assert models["billing"].requests[-1].messages[-1] == LAST_WORDS
    assert models["billing"].requests[-1].tools == ()


@pytest.mark.slow
@pytest.mark.accepts("D45", "D50")
async def test_handoff_in_the_last_iteration_is_resumed_by_the_other_agent(
    runtime: Runtime,
) -> None:
    """The turn ends at its limit; the new one is the other agent's, with the same type."""
    models = {"support": ScriptedModel(over()), "billing": ScriptedModel(says('{"paid": 7}'))}
    async with runtime(worker(support(output=Answer), billing()), model=models) as client:
        turn = await client.start("support", "go", max_iterations=1)
        error = await ended(turn)
        assert isinstance(error, errors.MaxIterationsError)
        assert error.message.startswith("support made 1 model call")
        resumed = await turn.resume(max_iterations=3)
        report = await resumed.result()

    assert (report.agent, report.last_agent, report.output) == ("support", "billing", {"paid": 7})
    assert results(models["billing"].requests[0]) == [
        "Handed over to billing, which goes on from here."
    ]


@pytest.mark.slow
@pytest.mark.accepts("D45")
async def test_paused_turn_goes_on_with_the_other_agent(runtime: Runtime) -> None:
    """It waits for more iterations after the handoff, as the first agent says."""
    models = {"support": ScriptedModel(over()), "billing": ScriptedModel(says("done"))}
    agents = support(on_exhausted="pause", max_iterations=1), billing(on_exhausted="fail")
    async with runtime(worker(*agents), model=models) as client:
        turn = await client.start("support", "go")
        await until(turn, WaitBegan)
        status = await turn.status()
        await turn.add_budget(iterations=1)
        report = await turn.result()

    assert (status.last_agent, [wait.kind for wait in status.waits]) == ("billing", ["iterations"])
    assert (report.output, report.last_agent) == ("done", "billing")


@pytest.mark.slow
@pytest.mark.accepts("U20")
async def test_fork_and_resume_keep_the_rules_of_the_agent_that_was_started(
    runtime: Runtime,
) -> None:
    """Its guardrails, limits and observers, after a chain of handoffs and in a fork of a resumed
    turn. An agent that the caller names has its own.
    """
    seen, secret = Seen(), "the PASSWORD is hunter2"
    guard = OutputGuardrail(lambda report: "PASSWORD" not in str(report.output))
    front = support(middleware=[guard], observers=[seen], max_iterations=4)
    agents = (
        front,
        billing(max_iterations=40, handoffs=["legal"]),
        Agent(name="legal", description="Knows the law.", model="scripted:legal"),
    )
    looks = [calls(call("refund", order=number)) for number in "12345678"]
    models = {
        "support": ScriptedModel(over()),
        "billing": ScriptedModel(over("legal"), *looks, says(secret)),
        "legal": ScriptedModel(says(secret), says(secret), says("fine")),
    }
    async with runtime(worker(*agents), model=models) as client:
        turn = await client.start("support", "go")
        failed = await ended(turn)
        resumed = await turn.resume()
        failed_again = await ended(resumed)
        report = await (await resumed.fork(say="without the password")).result()
        many = await ended(await turn.fork(1))
        chosen = await (await turn.fork(1, agent="billing")).result()

    assert [type(error) for error in (failed, failed_again, many)] == [
        errors.GuardrailError,
        errors.GuardrailError,
        errors.MaxIterationsError,
    ]
    assert (report.agent, report.last_agent, report.output) == ("support", "legal", "fine")
    assert [step.agent for step in report.steps] == ["legal"]
    assert seen.ends == ["legal", "legal", "legal", "billing"]
    assert (chosen.agent, chosen.output, len(chosen.steps)) == ("billing", secret, 5)


@pytest.mark.slow
@pytest.mark.accepts("D47")
async def test_skill_of_the_other_agent_is_read_by_another_worker(perdure_server: str) -> None:
    """It finds the pins in history, those of the agent that has the turn."""
    mine = Skill(name="how", description="Mine", instructions="as support", on_demand=True)
    theirs = Skill(name="how", description="Theirs", instructions="as billing", on_demand=True)
    agents = support(skills=[mine]), billing(skills=[theirs], approval="all")
    scripts = {
        "support": ScriptedModel(over()),
        "billing": ScriptedModel(calls(call("load_skill", name="how")), says("done")),
    }
    async with queue(perdure_server) as test:
        async with test.worker(worker(*agents), by_agent(**scripts)):
            turn = await test.client.start("support", "go")
            await until(turn, WaitBegan)
        async with test.worker(worker(*agents), by_agent(**scripts)):
            [pending] = await turn.pending_approvals()
            await turn.approve(pending)
            report = await turn.result()

    [loaded] = results(scripts["billing"].requests[1])
    assert "as billing" in loaded
    assert report.output == "done"


@pytest.mark.accepts("D50")
@pytest.mark.slow
async def test_fork_goes_on_with_the_agent_at_its_step(runtime: Runtime) -> None:
    """Before the handoff the first one, after it the second one, or the one that is named."""
    models = {
        "support": ScriptedModel(calls(call("look")), over(), says("a"), says("b")),
        "billing": ScriptedModel(says("done"), says("c"), says("d")),
    }
    async with runtime(worker(), model=models) as client:
        turn = await client.start("support", "go")
        await turn.result()
        made = [
            await (await turn.fork(1)).result(),
            await (await turn.fork(2)).result(),
            await (await turn.fork(2, agent="support")).result(),
            await (await turn.fork(3, say="more")).result(),
        ]

    assert [(one.last_agent, one.output) for one in made] == [
        ("support", "a"),
        ("billing", "c"),
        ("support", "b"),
        ("billing", "d"),
    ]


@pytest.mark.slow
@pytest.mark.accepts("D43")
async def test_agents_do_not_hand_back_and_forth(runtime: Runtime) -> None:
    """Nothing is done in between, so the model is told, and answers itself."""
    agents = support(), billing(handoffs=["support"])
    models = {
        "support": ScriptedModel(over(), calls(call("look")), says("done")),
        "billing": ScriptedModel(
            over("support"), calls(call("refund", order="7")), over("support")
        ),
    }
    async with runtime(worker(*agents), model=models) as client:
        report = await client.run("support", "go")

    [refused] = results(models["billing"].requests[1])
    assert refused.startswith("hand_over: not handed over: support has just handed over to you")
    assert (report.output, report.last_agent) == ("done", "support")
    assert [step.agent for step in report.steps] == ["", *["billing"] * 3, "", ""]


def by_agent(**scripts: ScriptedModel) -> FunctionModel:
    """One model for all agents, each with a script."""

    def reply(request: ModelRequest) -> Reply:
        return scripts[request.model]._next(request)

    return FunctionModel(reply)


@pytest.mark.slow
@pytest.mark.accepts("D44", "D49", "D52")
async def test_agent_that_a_deploy_removed_is_an_error_for_the_model(perdure_server: str) -> None:
    """The turn goes on with its agent. A new turn is refused, with both names."""
    agents = support(approval="changes"), billing()
    scripts = {"support": ScriptedModel(over(), says("alone"))}
    async with queue(perdure_server) as test:
        async with test.worker(worker(*agents), by_agent(**scripts)):
            turn = await test.client.start("support", "go")
            await until(turn, WaitBegan)
            [pending] = await turn.pending_approvals()
        async with test.worker(worker(agents[0]), by_agent(**scripts)):
            await turn.approve(pending)
            report = await turn.result()
            error = await ended(await test.client.start("support", "go"))

    [said] = results(scripts["support"].requests[1])
    assert said.startswith(
        "hand_over: not handed over: UNKNOWN_AGENT: no agent named 'billing'; this worker knows"
    )
    assert (pending.tool, report.output, report.last_agent) == ("hand_over", "alone", "support")
    assert isinstance(error, errors.UnknownAgentError)
    assert "agent support hands over to 'billing', which this worker does not know" in error.message


@pytest.mark.slow
@pytest.mark.accepts("D49")
async def test_policy_denies_a_handoff_and_that_of_the_other_agent_decides_then(
    runtime: Runtime,
) -> None:
    """Each policy decides about the calls of its own agent."""
    asked: list[tuple[str, str]] = []

    def looks(proposed: ProposedCall) -> Any:
        asked.append((proposed.agent, proposed.tool))
        first = len(asked) == 1
        return Deny("not yet") if first else Allow()

    agents = support(policy=looks), billing(policy=looks)
    models = {
        "support": ScriptedModel(over(), over()),
        "billing": ScriptedModel(calls(call("refund", order="7")), says("done")),
    }
    async with runtime(worker(*agents), model=models) as client:
        report = await client.run("support", "go")

    assert asked == [("support", "hand_over"), ("support", "hand_over"), ("billing", "refund")]
    assert results(models["support"].requests[1]) == [
        "This call was not run: it was denied: not yet"
    ]
    assert report.last_agent == "billing"


@pytest.mark.slow
@pytest.mark.accepts("D45")
async def test_allowed_tools_of_the_task_hold_for_the_other_agent(runtime: Runtime) -> None:
    """It is offered only those of its tools, and a call of another ends the turn."""
    models = {
        "support": ScriptedModel(over()),
        "billing": ScriptedModel(calls(call("refund", order="7"))),
    }
    async with runtime(worker(support(), billing(tools=[refund, look])), model=models) as client:
        turn = await client.start("support", "go", allowed_tools=["look", "hand_over"])
        error = await ended(turn)

    assert isinstance(error, errors.AutonomyBoundaryError)
    assert error.message.startswith("the model of billing called 'refund'")
    assert [item.name for item in models["billing"].requests[0].tools] == ["look"]


@pytest.mark.table(1)
@pytest.mark.accepts("D54")
@pytest.mark.parametrize("protocol", ["react_text", "json"])
async def test_agents_with_other_protocols_hand_over(runtime: Runtime, protocol: Any) -> None:
    """In text and in JSON, to an agent with native calls and back."""
    react = (
        'Thought: not mine.\nAction: hand_over\nAction Input: {"agent": "billing", "message": "x"}'
    )
    choice = '{"name": "hand_over", "arguments": {"agent": "billing", "message": "x"}}'
    back = {"react_text": "Final Answer: done", "json": '{"answer": "done"}'}[protocol]
    models = {
        "support": ScriptedModel(react if protocol == "react_text" else choice, back),
        "billing": ScriptedModel(calls(call("refund", order="7")), over("support")),
    }
    agents = support(protocol=protocol), billing(handoffs=["support"])
    async with runtime(worker(*agents), model=models) as client:
        report = await client.run("support", "go")

    assert (report.output, report.last_agent) == ("done", "support")
    assert results(models["billing"].requests[0]) == [
        "Handed over to billing, which goes on from here."
    ]


@pytest.mark.slow
@pytest.mark.accepts("D47")
async def test_agents_of_factories_with_skills_and_delegates_take_over(
    runtime: Runtime, tmp_path: Path
) -> None:
    """The factory is called once in the turn, a skill is that of the agent that loads it, and a
    tool choice that the turn names does not bind an agent without that tool.
    """
    made: list[str] = []
    mine = Skill(name="how", description="Mine", instructions="as support", on_demand=True)
    theirs = Skill(name="how", description="Theirs", instructions="as billing", on_demand=True)

    def billing(info: TurnInfo) -> Agent:
        """Does the bills."""
        made.append(info.agent)
        fields = {"skills": [theirs], "delegates": ["support"]}
        return Agent(name="billing", model="scripted:billing", **fields)  # type: ignore[arg-type]

    load = calls(call("load_skill", name="how"))
    models = {
        "support": ScriptedModel(load, over(), says("four")),
        "billing": ScriptedModel(
            load, calls(call("delegate_to_agent", agent="support", task="2 + 2?")), says("done")
        ),
    }
    app = AgentWorker(Registry([support(skills=[mine]), billing]), prices=FREE)
    async with runtime(app, model=models) as client:
        turn = await client.start("support", "go", options=RequestOptions(tool_choice="load_skill"))
        report = await turn.result()

    assert "as support" in results(models["support"].requests[1])[0]
    assert "as billing" in results(models["billing"].requests[1])[0]
    assert results(models["billing"].requests[2]) == ["four"]
    assert made == ["billing"]
    [offered] = [one for one in models["support"].requests[0].tools if one.name == "hand_over"]
    assert "- billing: Does the bills." in offered.description
    assert (report.output, [child.agent for child in report.children]) == ("done", ["support"])


@pytest.mark.accepts("D47")
async def test_tool_choice_that_the_other_agent_lacks_is_not_sent(runtime: Runtime) -> None:
    """Its provider would reject the request."""
    models = {"support": ScriptedModel(over()), "billing": ScriptedModel(says("done"))}
    async with runtime(worker(), model=models) as client:
        await client.run("support", "go", options=RequestOptions(tool_choice="hand_over"))

    assert models["support"].requests[0].options.tool_choice == "hand_over"
    assert models["billing"].requests[0].options.tool_choice is None


@pytest.mark.accepts("D55")
async def test_delegate_hands_over_in_its_own_turn(runtime: Runtime) -> None:
    """Its parent gets the answer, and keeps its own agent."""
    boss = Agent(name="boss", model="scripted:boss", delegates=["support"])
    ask = calls(call("delegate_to_agent", agent="support", task="a refund"))
    models = {
        "boss": ScriptedModel(ask, says("done")),
        "support": ScriptedModel(over()),
        "billing": ScriptedModel(says("paid")),
    }
    async with runtime(worker(boss, support(), billing()), model=models) as client:
        report = await client.run("boss", "go", budget=Budget(model_calls=9))
        child = await client.turn(report.children[0].turn_id).result()

    assert results(models["boss"].requests[1]) == ["paid"]
    assert (report.last_agent, child.agent, child.last_agent) == ("boss", "support", "billing")
    assert report.spent.model_calls == 4


@pytest.mark.slow
@pytest.mark.accepts("D48")
async def test_list_names_both_agents(runtime: Runtime) -> None:
    """`list` finds the turn by the agent that it was started with."""
    models = {"support": ScriptedModel(over()), "billing": ScriptedModel(says("done"))}
    async with runtime(worker(), model=models) as client:
        turn = await client.start("support", "go", labels={"case": "handed"})
        await turn.result()
        mine: dict[str, Any] = {"labels": {"case": "handed"}, "agent": "support", "state": "ended"}
        await eventually_listed(client, [turn.id], **mine)
        entry = await entry_of(client, turn.id, **mine)

    assert (entry.agent, entry.last_agent) == ("support", "billing")


async def start_short(client: RecordingClient, turn_id: str) -> Turn:
    """Start a turn that goes on in a new run about every 24 steps."""
    request = start_request.turn_request("support", "go", max_iterations=100)
    await client.temporal.start_workflow(
        TURN,
        pack(request),
        id=turn_id,
        task_queue=client.task_queue,
        task_timeout=timedelta(seconds=1),
    )
    return client.turn(turn_id)


@pytest.mark.slow
@pytest.mark.accepts("D50")
@pytest.mark.parametrize("keep", ["all", "task"])
async def test_later_runs_of_a_turn_go_on_with_the_other_agent(runtime: Runtime, keep: Any) -> None:
    """With its tools and skills; nothing is lost, and a handoff in a later run works as well."""
    skill = Skill(name="how", description="How", instructions="as billing", on_demand=True)
    agents = (
        support(handoffs=[Handoff("billing", keep=keep)]),
        billing(handoffs=["support"], skills=[skill]),
    )
    looks = [calls(call("look", number=number)) for number in range(5)]
    refunds = [calls(call("refund", order=str(number))) for number in range(35)]
    models = {
        "support": ScriptedModel(*looks, over(), says("done")),
        "billing": ScriptedModel(
            *refunds, calls(call("load_skill", name="how")), over("support", "all paid")
        ),
    }
    async with runtime(worker(*agents), model=models) as client:
        turn = await start_short(client, f"handed-long-{keep}")
        report = await turn.result()
        runs = (await turn._feed()).runs
        events = [event async for event in turn.events()]

    assert len(runs) > 1
    assert (report.output, len(report.steps)) == ("done", 44)
    assert [step.agent for step in report.steps] == [""] * 6 + ["billing"] * 37 + [""]
    [skilled] = results(models["billing"].requests[36])
    assert "as billing" in skilled
    first = models["billing"].requests[35].messages
    assert first[0] == models["billing"].requests[0].messages[0]
    assert len(first) == len(models["billing"].requests[0].messages) + 70
    assert [event.last_agent for event in events if isinstance(event.fact, HandedOver)] == [
        "billing",
        "support",
    ]


@pytest.mark.slow
@pytest.mark.accepts("D46")
async def test_deadline_during_a_handoff_ends_the_turn(runtime: Runtime) -> None:
    """A factory that takes too long is stopped; the turn has its agent of before."""
    let_go = asyncio.Event()

    def billing(info: TurnInfo) -> Agent:
        """Does the bills."""
        asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result()
        return Agent(name="billing", model="scripted:billing")

    loop = asyncio.get_running_loop()
    app = AgentWorker(Registry([support(), billing]), prices=FREE)
    async with runtime(app, model={"support": ScriptedModel(over())}) as client:
        turn = await client.start("support", "go", budget=Budget(time=timedelta(seconds=6)))
        error = await ended(turn)
        let_go.set()

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert error.report is not None
    assert error.report.last_agent == "support"


@pytest.mark.slow
@pytest.mark.accepts("D46")
async def test_cancel_during_a_handoff_ends_the_turn(runtime: Runtime) -> None:
    """The call has a result, and the turn its agent of before."""
    let_go, begun = asyncio.Event(), asyncio.Event()

    def billing(info: TurnInfo) -> Agent:
        """Does the bills."""
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result()
        return Agent(name="billing", model="scripted:billing")

    loop = asyncio.get_running_loop()
    app = AgentWorker(Registry([support(), billing]), prices=FREE)
    async with runtime(app, model={"support": ScriptedModel(over())}) as client:
        turn = await client.start("support", "go")
        await begun.wait()
        await turn.cancel("changed my mind")
        error = await ended(turn)
        let_go.set()

    assert isinstance(error, errors.TurnCancelledError)
    assert error.report is not None
    assert (error.report.last_agent, error.report.unstopped) == ("support", ())


@pytest.mark.accepts("D41")
@pytest.mark.slow
async def test_conversation_that_is_too_long_for_the_other_agent_is_shortened(
    runtime: Runtime,
) -> None:
    """Its model has a smaller window; the oldest results are left out, and it goes on."""

    @tool(read_only=True)
    def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: " + "word " * 400

    models = {
        "support": ScriptedModel(*[calls(call("read", page=page)) for page in range(9)], over()),
        "billing": ScriptedModel(calls(call("refund", order="7")), says("done")),
    }
    app = AgentWorker(
        Registry([support(tools=[read], max_iterations=20), billing()]),
        prices=FREE,
        profiles={"scripted:billing": ModelProfile(window=4_000)},
    )
    async with runtime(app, model=models) as client:
        report = await client.run("support", "go")

    first = models["billing"].requests[0]
    sent = sum(len(str(message)) for message in first.messages)
    assert sent < sum(len(str(message)) for message in models["support"].requests[-1].messages)
    assert results(first) == ["Handed over to billing, which goes on from here."]
    assert report.output == "done"
    left = report.steps[10].left_out
    assert left is not None
    assert left.results > 0


@pytest.mark.slow
@pytest.mark.accepts("D48")
async def test_spans_name_the_agent_that_asks(runtime: Runtime) -> None:
    """The turn's span is that of the agent that it was started with."""
    traces = Traces()
    models = {
        "support": ScriptedModel(over()),
        "billing": ScriptedModel(calls(call("refund", order="7")), says("done")),
    }
    app = AgentWorker(Registry([support(), billing()]), prices=FREE, telemetry=traces.telemetry())
    async with runtime(app, model=models) as client:
        await client.run("support", "go")

    whole = attributes(traces.named("invoke_agent support"))
    assert (whole["gen_ai.agent.name"], whole["perdure.last_agent"]) == ("support", "billing")
    chats = [attributes(span) for span in traces.spans if span.name.startswith("chat")]
    assert [(one["perdure.step"], one["gen_ai.agent.name"]) for one in chats] == [
        (1, "support"),
        (2, "billing"),
        (3, "billing"),
    ]
    tool_span = attributes(traces.named("execute_tool refund"))
    assert tool_span["gen_ai.agent.name"] == "billing"
