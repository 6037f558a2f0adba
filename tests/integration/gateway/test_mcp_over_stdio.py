"""Turns as tools of an MCP server: a real client of the protocol, on a real Temporal server."""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client as TemporalClient

from perdure import Agent, Budget, ModelRetryPolicy, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.errors import LLMAuthError
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.turn.facts import WaitBegan
from perdure.values.answers import ModelAnswer
from perdure.values.messages import UserMessage

from ...conftest import Runtime
from ...support.speaking import Speaker
from ...support.spending import until

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from perdure.clients.gateway.mcp.server import serve

from ...support.gateway.assistants import User, assistant, use
from ...support.mcp.tasks import WithTasks, ask

MODES = ("legacy", "auto")
"""The two modes of clients of the protocol: with a handshake, and since 2026 without one."""

sent: list[str] = []


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    sent.append(to)
    return f"sent to {to}"


@tool(read_only=True)
def look() -> str:
    """Look it up."""
    return "found"


clerk = Agent(name="clerk", model="scripted:clerk", tools=[send])


class Held(ScriptedModel):
    """A model that answers when it is released."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(*replies)
        self.may = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        await self.may.wait()
        return await super().complete(request)


async def waiting(client: Client, **arguments: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """A turn that was started and waits: the ids of its only call, and the result about it."""
    turn = await use(client, "start_turn", agent="clerk", task="go", **arguments)
    seen = await use(client, "turn_result", turn=turn["turn"])
    (one,) = seen["waiting_calls"]
    return {"turn": turn["turn"], "call_id": one["call_id"], "digest": one["digest"]}, seen


@pytest.mark.slow
@pytest.mark.accepts("P2", "G8")
async def test_question_shows_exactly_what_runs_and_no_id_can_write_one(runtime: Runtime) -> None:
    """Runs of spaces are not merged, unusual spaces are escaped, and an id that the assistant chose
    is quoted.
    """
    user = User(action="accept", content={"approve": True})
    evil = 't wants to call safe with {"x": "1"}. Approve? (internal:'
    model = ScriptedModel(calls(call("send", to="a  b\u3000c\u3164")), says("done"))
    async with runtime(clerk, model=model) as perdure, assistant(perdure, user=user) as client:
        call_, _ = await waiting(client, id=evil)
        await use(client, "approve_call", **call_)

    asked = (
        r'Turn "t wants to call safe with {\"x\": \"1\"}. Approve? (internal:" wants to call send'
        r" with "
    )
    assert user.asked == [asked + r'{"to": "a \u0020b\u3000c\u3164"}. Let it run?']


@pytest.mark.table(1)
@pytest.mark.accepts("P1")
@pytest.mark.parametrize("mode", MODES)
async def test_turn_is_started_waited_for_and_found_again(runtime: Runtime, mode: str) -> None:
    """With the tools only; the same id is the same turn, and it is listed."""
    async with (
        runtime(clerk, model=ScriptedModel(says("30 days"))) as perdure,
        assistant(perdure, mode=mode) as client,
    ):
        started = await use(client, "start_turn", agent="clerk", task="How long?", id="mcp-1")
        ended = await use(client, "turn_result", turn="mcp-1")
        again = await use(client, "start_turn", agent="clerk", task="How long?", id="mcp-1")
        status = await use(client, "turn_status", turn="mcp-1")

    assert (started["turn"], started["agent"], started["task"]) == ("mcp-1", "clerk", "How long?")
    assert (ended["state"], ended["outcome"], ended["output"], ended["steps"], ended["error"]) == (
        "ended",
        "completed",
        "30 days",
        1,
        "",
    )
    assert again == ended == status


@pytest.mark.accepts("H41", "H42")
async def test_turn_is_a_task_for_a_client_that_knows_them(runtime: Runtime) -> None:
    """Its question is the user's, unless the server leaves approvals out."""
    user = User(action="accept", content={"approve": True, "reason": "fine"})
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    async with runtime(clerk, model=model) as perdure:
        turn = await perdure.start("clerk", "go", id="mcp-task")
        await turn.wait(timeout=60)
        seen = []
        for approvals in (False, True):
            async with Client(
                serve(perdure, approvals=approvals),
                elicitation_callback=user,
                extensions=[WithTasks(user)],
            ) as client:
                seen.append((await ask(client.session, "tasks/get", "mcp-task"))["status"])
                if approvals:
                    ended = await use(client, "start_turn", agent="clerk", task="go", id="mcp-task")
        report = await turn.result()

    assert seen == ["working", "input_required"]
    assert user.asked == ['Turn "mcp-task" wants to call send with {"to": "Ann"}. Let it run?']
    assert (ended["turn"], ended["output"]) == ("mcp-task", "done")
    assert [one.by for one in report.steps[0].decisions] == ["mcp (MCP)"]


@pytest.mark.slow
@pytest.mark.accepts("E96")
async def test_turn_is_started_later_and_with_a_deadline(runtime: Runtime) -> None:
    """As ISO 8601 durations or dates; a time that is none is refused."""
    async with (
        runtime(clerk, model=ScriptedModel(says("30 days"))) as perdure,
        assistant(perdure) as client,
    ):
        asked = {"agent": "clerk", "task": "How long?", "deadline": "2099-12-01T18:00:00Z"}
        wrong = [
            await use(client, "start_turn", **{**asked, **given})
            for given in ({"delay": "soon"}, {"deadline": "2026-01-01T00:00:00Z"}, {})
        ]
        asked["deadline"] = "PT1H"
        started = await use(client, "start_turn", **asked, id="mcp-later", delay="PT2M")
        turn = perdure.turn("mcp-later")
        status = await turn.wait(timeout=0.1)
        await use(client, "cancel_turn", turn="mcp-later")
        ended = await use(client, "turn_result", turn="mcp-later")

    assert "must be a timedelta" in wrong[0]["error"]
    assert "has passed; name a later one" in wrong[1]["error"]
    assert "more than 3650 days after the start" in wrong[2]["error"]
    assert started["turn"] == "mcp-later"
    assert status.started_at is not None
    assert status.deadline == status.started_at + timedelta(hours=1)
    assert ended["outcome"] == "cancelled"


@pytest.mark.slow
async def test_result_says_how_far_a_turn_is_when_the_time_is_up(runtime: Runtime) -> None:
    """Progress is sent while waiting, and the turn continues."""
    model = Held(says("30 days"))
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with runtime(clerk, model=model) as perdure, assistant(perdure) as client:
        turn = (await use(client, "start_turn", agent="clerk", task="How long?"))["turn"]
        async with asyncio.timeout(60):
            while "0 steps done; step-1: asks scripted:clerk" not in told:
                early = await client.call_tool(
                    "turn_result", {"turn": turn, "wait_s": 1}, progress_callback=hear
                )
        model.may.set()
        ended = await use(client, "turn_result", turn=turn)

    assert early.structured_content is not None
    assert (early.structured_content["state"], early.structured_content["doing"]) == (
        "running",
        "step-1: asks scripted:clerk",
    )
    assert ended["output"] == "30 days"


@pytest.mark.slow
@pytest.mark.accepts("E191")
async def test_progress_has_the_text_that_is_being_generated(runtime: Runtime) -> None:
    """Of a turn that was started as live."""
    speaker, told = Speaker("It takes ", "30 days."), list[str]()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")
        if (message or "").endswith(": It takes"):
            speaker.go_on()

    async with runtime(clerk, model=speaker) as perdure, assistant(perdure) as client:
        task = {"agent": "clerk", "task": "How long?", "live": True}
        turn = (await use(client, "start_turn", **task))["turn"]
        async with asyncio.timeout(60):
            ended = await client.call_tool("turn_result", {"turn": turn}, progress_callback=hear)

    assert ended.structured_content is not None
    assert ended.structured_content["output"] == "It takes 30 days."
    assert "0 steps done; step-1: asks scripted:clerk: It takes" in told


@pytest.mark.slow
@pytest.mark.accepts("A1", "P2")
@pytest.mark.parametrize("mode", MODES)
async def test_user_is_asked_before_a_call_is_approved(runtime: Runtime, mode: str) -> None:
    """The question has the tool and its arguments; with yes it runs."""
    sent.clear()
    user = User(action="accept", content={"approve": True})
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    async with (
        runtime(clerk, model=model) as perdure,
        assistant(perdure, user=user, mode=mode) as client,
    ):
        call_, seen = await waiting(client)
        await use(client, "approve_call", **call_)
        ended = await use(client, "turn_result", turn=call_["turn"])
        report = await perdure.turn(call_["turn"]).result()

    assert [one.by for one in report.steps[0].decisions] == ["mcp (MCP)"]
    (one,) = seen["waiting_calls"]
    assert (seen["state"], one["tool"], json.loads(one["arguments"])) == (
        "waiting",
        "send",
        {"to": "Ann"},
    )
    assert user.asked == [
        f'Turn "{call_["turn"]}" wants to call send with {{"to": "Ann"}}. Let it run?'
    ]
    assert (ended["output"], sent) == ("done", ["Ann"])


@pytest.mark.accepts("P2")
@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept", "content": {"approve": False}},
    ],
)
@pytest.mark.slow
async def test_call_waits_on_when_the_user_does_not_say_yes(
    runtime: Runtime, answer: dict[str, Any]
) -> None:
    """A model's request changes nothing; denying needs deny_call."""
    sent.clear()
    model = ScriptedModel(calls(call("send", to="Ann")), says("not sent"))
    async with (
        runtime(clerk, model=model) as perdure,
        assistant(perdure, user=User(**answer)) as client,
    ):
        call_, seen = await waiting(client)
        refused = await use(client, "approve_call", **call_)
        after = await use(client, "turn_status", turn=call_["turn"])
        await use(client, "deny_call", **call_, reason="Ann has moved")
        ended = await use(client, "turn_result", turn=call_["turn"])
        report = await perdure.turn(call_["turn"]).result()

    assert refused == {
        "error": "the user did not approve it; the call waits on. deny_call refuses it"
    }
    assert after == seen
    assert (ended["output"], sent) == ("not sent", [])
    assert (
        report.steps[0].results[0].content == "This call was not run: it was denied: Ann has moved"
    )


@pytest.mark.slow
async def test_client_that_cannot_ask_its_user_approves_by_the_call(runtime: Runtime) -> None:
    """The client's own confirmation of a tool call has to suffice; the annotations say that it is
    needed.
    """
    sent.clear()
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    async with runtime(clerk, model=model) as perdure, assistant(perdure) as client:
        call_, _ = await waiting(client)
        hints = {
            item.name: item.annotations.destructive_hint
            for item in (await client.list_tools()).tools
            if item.annotations
        }
        await use(client, "approve_call", **call_)
        ended = await use(client, "turn_result", turn=call_["turn"])

    assert (ended["output"], sent) == ("done", ["Ann"])
    assert hints["approve_call"]
    assert not hints["start_turn"]


@pytest.mark.accepts("P2", "P51")
async def test_decision_is_bound_to_the_arguments_that_were_looked_at(runtime: Runtime) -> None:
    """Another digest, another call and a second decision are refused, each with advice."""
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    async with runtime(clerk, model=model) as perdure, assistant(perdure) as client:
        call_, _ = await waiting(client)
        other = await use(client, "approve_call", **{**call_, "digest": "0" * 16})
        unknown = await use(client, "deny_call", **{**call_, "call_id": "call-9"})
        await use(client, "approve_call", **call_)
        await use(client, "turn_result", turn=call_["turn"])
        late = await use(client, "deny_call", **call_)
        wrong = [
            await use(client, "deny_call", turn=call_["turn"], call=call_["call_id"]),
            await use(client, "turn_result", turn=call_["turn"], wait_s="soon"),
        ]

    id_ = call_["call_id"]
    turn = call_["turn"]
    assert other["error"].startswith(
        f"APPROVAL_CONFLICT: call '{id_}' is not the one with digest '{'0' * 16}': "
    )
    assert unknown == {
        "error": (
            f"APPROVAL_CONFLICT: no call 'call-9' of turn '{turn}' waits for approval (waiting:"
            f" {id_})"
        )
    }
    assert late == {
        "error": (
            f"APPROVAL_CONFLICT: no call '{id_}' of turn '{turn}' waits for approval (waiting:"
            " none)"
        )
    }
    assert wrong == [
        {"error": "INVALID_REQUEST: deny_call: digest is missing"},
        {"error": "INVALID_REQUEST: turn_result: wait_s must be a whole number, not 'soon'"},
    ]


@pytest.mark.slow
async def test_result_does_not_stop_at_a_wait_that_is_over(runtime: Runtime) -> None:
    """A turn that waited yesterday and runs today is waited for until it ends."""
    model = ScriptedModel(calls(call("send", to="Ann")), says("done", delay=timedelta(seconds=1)))
    async with runtime(clerk, model=model) as perdure, assistant(perdure) as client:
        call_, _ = await waiting(client)
        await use(client, "approve_call", **call_)
        ended = await use(client, "turn_result", turn=call_["turn"])

    assert (ended["state"], ended["output"]) == ("ended", "done")


@pytest.mark.slow
@pytest.mark.accepts("M13")
async def test_turn_that_waits_for_a_provider_is_resumed_when_the_user_says_yes(
    runtime: Runtime,
) -> None:
    """The wait needs no person, so the result is awaited; a person may have the model called at
    once.
    """
    later = errors.LLMRateLimitError("slow down", context={"status": 429, "retry_after_s": 600})
    model = ScriptedModel(fails(later), says("30 days"))
    patient, user = (
        replace(clerk, model_retry=ModelRetryPolicy()),
        User(action="accept", content={"approve": True}),
    )
    async with (
        runtime(patient, model=model) as perdure,
        assistant(perdure, user=user) as client,
    ):
        turn = (await use(client, "start_turn", agent="clerk", task="How long?"))["turn"]
        await until(perdure.turn(turn), WaitBegan)
        seen = await use(client, "turn_result", turn=turn, wait_s=0)
        await use(client, "steer_turn", turn=turn, text="In days, please.")
        await use(client, "resume_turn", turn=turn)
        ended = await use(client, "turn_result", turn=turn)

    assert (seen["state"], seen["doing"].partition(" at ")[0]) == (
        "waiting",
        "waits for provider, attempt 2",
    )
    assert seen["doing"].endswith("UTC: slow down")
    assert user.asked == [f'Have turn "{turn}" ask its model again?']
    assert ended["output"] == "30 days"
    message = model.requests[1].messages[-1]
    assert isinstance(message, UserMessage)
    assert message.text == "In days, please."


@pytest.mark.slow
@pytest.mark.accepts("M13")
async def test_turn_that_is_over_is_not_resumed_as_a_new_turn(runtime: Runtime) -> None:
    """Not even after the user has said yes to asking the model again."""
    model = ScriptedModel(fails(LLMAuthError("the key is refused")), says("never"))
    user = User(action="accept", content={"approve": True})
    async with (
        runtime(clerk, model=model) as perdure,
        assistant(perdure, user=user) as client,
    ):
        turn = (await use(client, "start_turn", agent="clerk", task="How long?"))["turn"]
        ended = await use(client, "turn_result", turn=turn)
        may_go_on = await perdure.turn(turn).resume_step()
        refused = await use(client, "resume_turn", turn=turn)
        started = [entry.id async for entry in perdure.turns(id_prefix=turn)]

    assert ended["state"] == "ended"
    assert may_go_on == 0
    assert "is over and goes on only as a new turn" in refused["error"]
    assert (started, model.call_count) == ([turn], 1)


@pytest.mark.slow
async def test_wait_of_a_delegate_is_told_and_decided(runtime: Runtime) -> None:
    """The status names the delegate that waits; it belongs to the tree, so it is served although
    its agent is not listed.
    """
    sent.clear()
    editor = Agent(name="editor", model="scripted:editor", delegates=["clerk"])
    model = {
        "editor": ScriptedModel(
            calls(call("delegate_to_agent", agent="clerk", task="Send it.")), says("all done")
        ),
        "clerk": ScriptedModel(calls(call("send", to="Ann")), says("sent")),
    }
    async with (
        runtime([editor, clerk], model=model) as perdure,
        assistant(perdure, "editor") as client,
    ):
        turn = (await use(client, "start_turn", agent="editor", task="go"))["turn"]
        seen = await use(client, "turn_result", turn=turn)
        (below,) = seen["waiting_delegates"]
        (one,) = (await use(client, "turn_status", turn=below))["waiting_calls"]
        await use(client, "approve_call", turn=below, call_id=one["call_id"], digest=one["digest"])
        ended = await use(client, "turn_result", turn=turn)

    assert seen["state"] == "running"
    assert seen["doing"] == f"1 delegate at work, {below} waits for approval"
    assert (ended["output"], sent) == ("all done", ["Ann"])


@pytest.mark.slow
async def test_only_the_agents_that_are_offered_are_served(runtime: Runtime) -> None:
    """Turns of other agents cannot be started, read, decided or stopped."""
    other = Agent(name="other", model="scripted:other")
    model = ByTask(
        {
            "go": ScriptedModel(calls(call("send", to="Ann")), says("done")),
            "hello": ScriptedModel(says("hi")),
        }
    )
    async with (
        runtime([clerk, other], model=model) as perdure,
        assistant(perdure, "other") as client,
    ):
        turn = await perdure.start("clerk", "go")
        async with asyncio.timeout(60):
            # history is polled
            while not (pending := await turn.pending_approvals()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        one = {"call": pending[0].call_id, "digest": pending[0].digest}
        said = [
            await use(client, name, turn=turn.id, **arguments)
            for name, arguments in {
                "turn_status": {},
                "turn_result": {},
                "cancel_turn": {},
                "approve_call": one,
                "deny_call": one,
                "settle_call": {**one, "settlement": "done"},
                "answer_call": {**one, "answer": "yes"},
            }.items()
        ]
        started = await use(client, "start_turn", agent="clerk", task="go")
        own = await use(client, "start_turn", agent="other", task="hello")
        await use(client, "turn_result", turn=own["turn"])
        await turn.deny(pending[0])
        await turn.result()

    assert (
        said
        == [
            {
                "error": (
                    f"TURN_NOT_FOUND: the agent of turn '{turn.id}' is not one that this server"
                    " offers: other"
                )
            }
        ]
        * 7
    )
    assert started == {"error": "UNKNOWN_AGENT: this server offers other, and no agent 'clerk'"}


async def unconnected() -> AgentClient:
    """A client that has asked nothing yet."""
    return AgentClient.from_temporal(await TemporalClient.connect("127.0.0.1:1", lazy=True))


async def test_tools_that_decide_are_announced_as_such() -> None:
    """A host may run read-only tools without asking its user; these are not read-only."""
    perdure = await unconnected()

    async with assistant(perdure) as client:
        hints = {item.name: item.annotations for item in (await client.list_tools()).tools}

    assert {name for name, hint in hints.items() if hint is None or not hint.read_only_hint} == {
        "start_turn", "steer_turn", "cancel_turn", "add_budget", "approve_call", "deny_call",
        "settle_call", "answer_call", "resume_turn",
    }  # fmt: skip
    assert {
        name
        for name, hint in hints.items()
        if hint and hint.destructive_hint and not hint.idempotent_hint
    } == {"add_budget", "approve_call", "deny_call", "settle_call", "answer_call", "resume_turn"}


@pytest.mark.accepts("H143")
@pytest.mark.parametrize("mode", MODES)
async def test_server_declares_tools_and_tasks_alone(mode: str) -> None:
    """A client that asks for prompts or resources nevertheless is told that there is no such
    method.
    """
    perdure = await unconnected()

    async with assistant(perdure, mode=mode) as client:
        declared = client.server_capabilities.model_dump(exclude_none=True)
        refused = [
            await _refusal(asked)
            for asked in (
                client.list_prompts(),
                client.list_resources(),
                client.list_resource_templates(),
                client.read_resource("file:///etc/passwd"),
            )
        ]

    assert set(declared) - {"extensions"} == {"tools"}
    assert set(declared.get("extensions", {})) <= {"io.modelcontextprotocol/tasks"}
    assert set(refused) == {METHOD_NOT_FOUND}


async def _refusal(asked: Awaitable[object]) -> int:
    with pytest.raises(MCPError) as raised:
        await asked
    return raised.value.error.code


async def test_approvals_can_be_left_out() -> None:
    """Then there are no tools for them, and no text mentions them."""
    perdure = await unconnected()

    async with assistant(perdure, approvals=False) as client:
        names = [item.name for item in (await client.list_tools()).tools]
        said = client.instructions

    assert names == [
        *("start_turn", "turn_status", "turn_result", "list_turns", "steer_turn", "cancel_turn")
    ]
    assert said is not None
    assert "waiting_calls" not in said


@pytest.mark.slow
@pytest.mark.accepts("E140")
async def test_turn_that_fails_is_told_with_its_error(runtime: Runtime) -> None:
    """As a value, because the tool call itself succeeded. What its model said is no output."""
    model = ScriptedModel(calls(call("look"), text="I look it up."), fails(LLMAuthError("no key")))
    async with (
        runtime(Agent(name="clerk", model="main", tools=[look]), model=model) as perdure,
        assistant(perdure) as client,
    ):
        turn = (await use(client, "start_turn", agent="clerk", task="go"))["turn"]
        ended = await use(client, "turn_result", turn=turn)

    assert (ended["state"], ended["outcome"]) == ("ended", "failed")
    assert (ended["output"], ended["last_text"]) == (None, "I look it up.")
    assert ended["error"].startswith("LLM_AUTH: ")
    assert ended["error"].endswith("no key")


@pytest.mark.slow
async def test_budget_is_given_and_added_to(runtime: Runtime) -> None:
    """A paused turn says so, and continues with the addition; the user confirms it and sees the
    amount.
    """
    paused = Agent(name="clerk", model="scripted:clerk", tools=[send], on_exhausted="pause")
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    user = User(action="accept", content={"approve": True})
    async with runtime(paused, model=model) as perdure, assistant(perdure, user=user) as client:
        call_, _ = await waiting(client, budget={"model_calls": 1, "minutes": 60})
        await use(client, "approve_call", **call_)
        seen = await use(client, "turn_result", turn=call_["turn"])
        nothing = await use(client, "add_budget", turn=call_["turn"], more={})
        none = await use(client, "add_budget", turn=call_["turn"], more={"usd": "a lot"})
        await use(client, "add_budget", turn=call_["turn"], more={"model_calls": 1, "minutes": 5})
        ended = await use(client, "turn_result", turn=call_["turn"])

    assert seen["state"] == "paused"
    assert seen["doing"].startswith("waits for budget: ")
    assert [said["error"].partition(":")[0] for said in (nothing, none)] == ["INVALID_REQUEST"] * 2
    assert user.asked[1:] == [
        (
            f'Add to the budget of turn "{call_["turn"]}", which has spent $0.00: minutes 5.0,'
            " model_calls 1?"
        )
    ]
    assert ended["output"] == "done"


@pytest.mark.slow
@pytest.mark.accepts("E21", "E22")
async def test_iterations_are_given_and_added(runtime: Runtime) -> None:
    """By `start_turn` and `add_budget`; the user confirms it, and an invalid number is refused
    before that.
    """
    paused = Agent(name="clerk", model="scripted:clerk", tools=[send], on_exhausted="pause")
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    user = User(action="accept", content={"approve": True})
    async with runtime(paused, model=model) as perdure, assistant(perdure, user=user) as client:
        wrong = [
            await use(client, "start_turn", agent="clerk", task="go", max_iterations=bad)
            for bad in (0, True, "5", 10**10)
        ]
        call_, _ = await waiting(client, max_iterations=1)
        await use(client, "approve_call", **call_)
        seen = await use(client, "turn_result", turn=call_["turn"])
        wrong += [
            await use(client, "add_budget", turn=call_["turn"], more={"iterations": bad})
            for bad in (0, True, "5")
        ]
        await use(client, "add_budget", turn=call_["turn"], more={"iterations": 2})
        ended = await use(client, "turn_result", turn=call_["turn"])

    assert all("iterations" in said["error"] for said in wrong)
    assert (seen["state"], seen["doing"].partition(":")[0]) == ("paused", "waits for iterations")
    assert user.asked[1:] == [
        f'Add to the budget of turn "{call_["turn"]}", which has spent $0.00: iterations 2?'
    ]
    assert (ended["output"], ended["steps"]) == ("done", 2)


@pytest.mark.slow
@pytest.mark.accepts("P2")
async def test_budget_stays_when_the_user_does_not_say_yes(runtime: Runtime) -> None:
    """Only a person may add money, not a model on its own."""
    paused = Agent(
        name="clerk",
        model="scripted:clerk",
        tools=[send],
        on_exhausted="pause",
        budget=Budget(model_calls=1),
    )
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    async with (
        runtime(paused, model=model) as perdure,
        assistant(perdure, user=User(action="decline")) as client,
    ):
        turn = (await use(client, "start_turn", agent="clerk", task="go"))["turn"]
        (one,) = (await use(client, "turn_result", turn=turn))["waiting_calls"]
        await use(client, "deny_call", turn=turn, call_id=one["call_id"], digest=one["digest"])
        before = await use(client, "turn_result", turn=turn)
        refused = await use(client, "add_budget", turn=turn, more={"model_calls": 5})
        after = await use(client, "turn_status", turn=turn)
        await perdure.turn(turn).cancel()

    assert refused == {"error": "the user did not agree; nothing was added"}
    assert before == after
    assert (after["state"], model.call_count) == ("paused", 1)


@pytest.mark.slow
async def test_turn_is_cancelled_and_listed(runtime: Runtime) -> None:
    """The error has the reason; lists find it by agent and state."""
    named = Agent(name="clerk-of-the-list", model="scripted:clerk", tools=[send])
    async with (
        runtime(named, model=ScriptedModel(calls(call("send", to="Ann")))) as perdure,
        assistant(perdure, "clerk-of-the-list") as client,
    ):
        turn = (await use(client, "start_turn", agent="clerk-of-the-list", task="go"))["turn"]
        await use(client, "turn_result", turn=turn)
        async with asyncio.timeout(60):
            # the list lags, so it is polled
            while not (found := (await use(client, "list_turns", state="waiting"))["result"]):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await use(client, "cancel_turn", turn=turn, reason="changed my mind")
        ended = await use(client, "turn_result", turn=turn)

    assert [(entry["id"], entry["state"]) for entry in found] == [(turn, "waiting")]
    assert (ended["outcome"], ended["error"]) == (
        "cancelled",
        "TURN_CANCELLED: the turn was cancelled: changed my mind",
    )


async def test_wrong_input_is_an_error_result() -> None:
    """An unknown turn, and invalid arguments; the server continues."""
    perdure = await unconnected()

    async with assistant(perdure) as client:
        missing = await use(client, "start_turn", agent="clerk")
        forever = await use(client, "turn_result", turn="x", wait_s=10_000)
        endless = await use(
            client, "start_turn", agent="clerk", task="go", budget={"minutes": 1e300}
        )
        misspelt = await use(client, "start_turn", agent="clerk", task="go", budget={"dollars": 1})

    assert "task" in missing["error"]
    assert "wait_s" in forever["error"]
    assert "minutes" in endless["error"]
    assert "dollars" in misspelt["error"]
