"""Calls whose outcome is unknown, over every protocol: what is shown of them, and who settles them.

A model calls a tool whose first answer is lost. The turn waits until somebody says what became of
it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from google.protobuf.json_format import MessageToDict

from perdure import Agent, ToolOutcome, tool
from perdure.clients import AgentClient, Turn
from perdure.clients.gateway import A2AAgent
from perdure.events import Decided
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.approvals import Settlement
from perdure.values.states import State

from ...conftest import Runtime
from ...support.approving import pending
from ...support.gateway import a2a, agui, assistants
from ...support.gateway.responses import openai_of
from ...support.gateway.served import messages, served, told
from ...support.listing import entry_of
from ...support.mcp import tasks

REASON = "pay: ReadTimeout: no answer in 5 s"


@pytest.fixture
def paid() -> list[str]:
    """The invoices that were paid, in order."""
    return []


@contextlib.asynccontextmanager
async def desk(
    runtime: Runtime, paid: list[str], **options: Any
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient]]:
    """A client and a gateway of an agent that pays, and does not hear of its first payment."""

    @tool(on_unknown=options.pop("on_unknown", "pause"))
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        paid.append(invoice)
        if len(paid) == 1:
            raise httpx.ReadTimeout("no answer in 5 s")
        return f"paid {invoice}"

    agent = Agent(name="desk", model="main", tools=[pay])
    model = ScriptedModel(calls(call("pay", invoice="i-1")), says("Done."))
    serving = options.pop("serving", served)
    async with runtime(agent, model=model) as client, serving(client, **options) as http:
        yield client, http


async def end_of(
    turn: Turn[Any],
) -> tuple[ToolOutcome, str, list[tuple[Settlement | None, str | None]]]:
    """The result of the only call, and what was decided about it, and by whom."""
    report = await turn.result()
    [result] = report.steps[0].results
    facts = [one.fact async for one in turn.events()]
    decided = [
        (one.decision.settlement, one.decision.by) for one in facts if isinstance(one, Decided)
    ]
    return result.outcome, result.content, decided


@pytest.mark.slow
@pytest.mark.accepts("T55", "H1")
async def test_call_is_listed_and_settled_over_http(runtime: Runtime, paid: list[str]) -> None:
    """The reason is in the list, and in events with private values only."""
    async with desk(runtime, paid) as (client, http):
        await http.post("/v1/turns", json={"agent": "desk", "task": "pay", "id": "t55-rest"})
        turn = client.turn("@acme/t55-rest")
        await pending(turn)
        [listed] = (await http.get("/v1/approvals")).json()["approvals"]
        status = (await http.get("/v1/turns/t55-rest")).json()
        named = {"call_id": listed["call"]["call_id"], "token": listed["call"]["token"]}
        settle = "/v1/turns/t55-rest/settle"
        approved = await http.post("/v1/turns/t55-rest/approve", json=named)
        refused = [
            await http.post(settle, json={**named, "settlement": "maybe"}),
            await http.post(settle, json={**named, "token": "0" * 12, "settlement": "done"}),
        ]
        said = {"settlement": "done", "result": "number 7"}
        done = await http.post(settle, json={**named, **said})
        result = (await http.get("/v1/turns/t55-rest/result", params={"wait": 30})).json()
        again = await http.post(settle, json={**named, **said})
        public, private = [
            [one async for _, one in messages(http, "/v1/turns/t55-rest/events", **query)]
            for query in ({}, {"include": "errors"})
        ]
        outcome, content, decided = await end_of(turn)

    assert listed["call"]["is_unknown"]
    assert listed["call"]["reason"].startswith(REASON)
    [wait] = status["waits"]
    assert (wait["kind"], wait["call"]) == ("approval", listed["call"])
    assert wait["reason"].startswith(f"somebody has to say what became of pay ({named['call_id']})")
    assert told(approved) == (409, "APPROVAL_CONFLICT")
    assert "settle it as done, absent or again" in approved.json()["detail"]
    assert [told(one) for one in refused] == [(422, "INVALID_REQUEST"), (409, "APPROVAL_CONFLICT")]
    assert (done.status_code, told(again)[0]) == (204, 409)
    assert (result["output"], result["unsettled"]) == ("Done.", [])
    assert (outcome, decided) == (ToolOutcome.VERIFIED, [("done", "anna@example.com")])
    assert "has taken effect: number 7" in content
    [[shown], [with_reason]] = [
        one["pending"]
        for events in (public, private)
        for one in events
        if one["kind"] == "wait_began"
    ]
    assert (shown["is_unknown"], "message" in shown) == (True, False)
    assert with_reason["message"].startswith(REASON)
    settled = next(one for one in public if one["kind"] == "decided")
    assert (settled["settlement"], settled["approve"]) == ("done", False)


@pytest.mark.slow
@pytest.mark.accepts("T55", "H1")
async def test_caller_who_may_not_decide_may_not_settle(runtime: Runtime, paid: list[str]) -> None:
    """A call that was denied stays unknown, and its result over HTTP lists it."""
    async with desk(runtime, paid) as (client, http):
        await http.post("/v1/turns", json={"agent": "desk", "task": "pay", "id": "t55-rita"})
        turn = client.turn("@acme/t55-rita")
        [call_] = await pending(turn)
        named = {"call_id": call_.call_id, "token": call_.token}
        path = "/v1/turns/t55-rita"
        reader = {"Authorization": "Bearer rita"}
        refused = await http.post(
            f"{path}/settle", json={**named, "settlement": "again"}, headers=reader
        )
        await http.post(f"{path}/deny", json=named)
        result = (await http.get(f"{path}/result", params={"wait": 30})).json()
        status = (await http.get(path)).json()
        entry = await entry_of(client, turn.id, in_state=State.ENDED)

    assert told(refused) == (403, "FORBIDDEN")
    assert [one["tool"] for one in result["unsettled"]] == ["pay"]
    assert (status["unsettled"], entry.unsettled) == (1, 1)
    assert paid == ["i-1"]


@pytest.mark.slow
@pytest.mark.accepts("T55", "H44")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_call_is_settled_with_a_tool_of_mcp(
    runtime: Runtime, paid: list[str], mode: str
) -> None:
    """The user is asked what became of it, and not whether it may run."""
    user = tasks.User(approve=True)
    turn_id = f"t55-{mode}"
    async with (
        desk(runtime, paid) as (client, http),
        tasks.assistant(http, user=user, mode=mode) as mcp,
    ):
        await tasks.use(mcp, "start_turn", agent="desk", task="pay", id=turn_id)
        seen = await tasks.use(mcp, "turn_result", turn=turn_id)
        [waiting] = seen["waiting_calls"]
        named = {"turn": turn_id, "call_id": waiting["call_id"], "digest": waiting["digest"]}
        approved = await tasks.use(mcp, "approve_call", **named)
        await tasks.use(mcp, "settle_call", **named, settlement="again")
        ended = await tasks.use(mcp, "turn_result", turn=turn_id)
        outcome, content, decided = await end_of(client.turn(f"@acme/{turn_id}"))

    assert waiting["is_unknown"]
    assert waiting["reason"].startswith(REASON)
    assert "settle it as done, absent or again" in next(iter(approved.values()))
    assert ended["output"] == "Done."
    assert (outcome, content, decided) == (
        ToolOutcome.DONE,
        "paid i-1",
        [("again", "anna@example.com")],
    )
    assert paid == ["i-1", "i-1"]
    if mode == "auto":
        [asked] = user.asked
        assert asked.startswith(f'Turn "@acme/{turn_id}" has called pay with {{"invoice": "i-1"}}')
        assert "the outcome is unknown" in asked
        assert asked.endswith("What became of it? Make it again?")


@pytest.mark.slow
@pytest.mark.accepts("T55", "H44")
async def test_user_who_does_not_confirm_settles_nothing(runtime: Runtime, paid: list[str]) -> None:
    """What a model says about a call is not what became of it."""
    user = assistants.User(action="decline")
    async with (
        desk(runtime, paid) as (client, _),
        assistants.assistant(client, user=user) as mcp,
    ):
        turn = await client.start("desk", "pay")
        [call_] = await pending(turn)
        named = {"turn": turn.id, "call_id": call_.call_id, "digest": call_.token}
        said = await assistants.use(mcp, "settle_call", **named, settlement="done", result="7")
        waits = await turn.pending_approvals()
        await turn.cancel()

    assert said == {"error": "the user did not confirm it; the call waits on"}
    assert waits == (call_,)
    assert user.asked[0].endswith('Record that it has taken effect, with the result "7"?')


@pytest.mark.slow
@pytest.mark.accepts("T55", "H42")
async def test_task_of_mcp_asks_what_became_of_a_call(runtime: Runtime, paid: list[str]) -> None:
    """The form has the three answers."""
    user = tasks.User(settlement="absent", result="nothing in the books")
    async with (
        desk(runtime, paid) as (client, http),
        tasks.assistant(http, user=user, extensions=[tasks.WithTasks(user)]) as mcp,
    ):
        created = await tasks.use(mcp, "start_turn", agent="desk", task="pay", id="t55-task")
        outcome, content, decided = await end_of(client.turn("@acme/t55-task"))

    assert created["outcome"] == "completed"
    assert (outcome, decided) == (ToolOutcome.FAILED, [("absent", "anna@example.com")])
    assert "it has not taken effect: nothing in the books" in content
    assert "the outcome is unknown" in user.asked[0]


@pytest.mark.slow
@pytest.mark.accepts("T55", "H31")
async def test_interrupt_of_agui_is_settled(runtime: Runtime, paid: list[str]) -> None:
    """Its schema has the three answers; an approval is a conflict."""
    async with desk(runtime, paid, serving=agui.served) as (client, http):
        asked = await agui.run(http, "desk", agui.asking("t55", "r-1", agui.user("pay", "m-1")))
        [shown] = asked.interrupts
        approve, settle, both = [
            agui.answering("t55", "r-2", [shown], **payload)
            for payload in (
                {"approved": True},
                {"settlement": "done", "result": "number 7"},
                {"approved": True, "settlement": "done"},
            )
        ]
        refused = [await http.post("/agui/desk", json=one) for one in (approve, both)]
        done = await agui.run(http, "desk", settle)
        again = await agui.run(http, "desk", settle)
        outcome, content, decided = await end_of(client.turn("@agui/t55/1"))

    assert shown.message.startswith(
        f"The call of pay was made, and its outcome is unknown: {REASON}"
    )
    assert shown.response_schema["properties"]["settlement"]["enum"] == ["done", "absent", "again"]
    assert [told(one) for one in refused] == [(409, "APPROVAL_CONFLICT"), (422, "INVALID_REQUEST")]
    assert (done.text, again.end.result) == ("Done.", "Done.")
    assert (outcome, decided) == (ToolOutcome.VERIFIED, [("done", "iris@example.com")])
    assert "number 7" in content


@pytest.mark.slow
@pytest.mark.accepts("T55", "H51")
async def test_task_of_a2a_is_settled(runtime: Runtime, paid: list[str]) -> None:
    """Its message says that the call was made; the same decision again changes nothing."""
    async with desk(runtime, paid, a2a_agents=[A2AAgent("desk", "Pays.")]) as (client, http):
        agent = await a2a.agent_of(http)
        task = await a2a.send(agent, a2a.message("pay", "m-1"))
        text, data = task.status.message.parts
        shown = MessageToDict(data)["data"]
        wrong = await a2a.refused(a2a.send(agent, a2a.decision(task, "m-2", settlement="done")))
        said = a2a.decision(task, "m-3", settlement="done", result="number 7", approve=None)
        done = await a2a.send(agent, said)
        outcome, content, decided = await end_of(client.turn(f"@acme/a2a/desk/{task.id}"))

    assert "was made, and its outcome is unknown" in text.text
    assert (shown["type"], shown["tool"]) == ("settlement", "pay")
    assert shown["reason"].startswith(REASON)
    assert "either approve or settlement" in str(wrong)
    assert done.artifacts[0].parts[0].text == "Done."
    assert (outcome, decided) == (ToolOutcome.VERIFIED, [("done", "anna@example.com")])
    assert "number 7" in content


@pytest.mark.accepts("T55", "H21")
async def test_response_shows_the_call_and_does_not_approve_it(
    runtime: Runtime, paid: list[str]
) -> None:
    """The protocol has no third answer: a denial leaves the outcome unknown."""
    async with desk(runtime, paid) as (client, http), openai_of(http) as ai:
        waits = await ai.responses.create(model="desk", input="pay")
        request: Any = waits.output[-1]
        answer: dict[str, Any] = {
            "type": "mcp_approval_response",
            "approval_request_id": request.id,
            "approve": True,
        }
        with pytest.raises(openai.ConflictError) as conflict:
            await ai.responses.create(
                model="desk",
                previous_response_id=waits.id,
                input=[answer],  # type: ignore[list-item]
            )
        denial = {**answer, "approve": False, "reason": "ask the bank"}
        done = await ai.responses.create(
            model="desk",
            previous_response_id=waits.id,
            input=[denial],  # type: ignore[list-item]
        )
        outcome, content, decided = await end_of(client.turn(waits.id))

    assert (request.name, json.loads(request.arguments)) == ("pay", {"invoice": "i-1"})
    assert request.is_unknown
    assert request.reason.startswith(REASON)
    assert "settle it as done, absent or again" in conflict.value.message
    assert done.output_text == "Done."
    assert (outcome, decided) == (ToolOutcome.UNKNOWN, [(None, "anna@example.com")])
    assert "does not know: ask the bank" in content


@pytest.mark.slow
@pytest.mark.accepts("T57", "H1")
async def test_call_of_a_turn_that_is_over_is_settled_over_http(
    runtime: Runtime, paid: list[str]
) -> None:
    """With its id alone; the caller is who has said so. MCP says where that is done."""
    async with (
        desk(runtime, paid, on_unknown="tell") as (client, http),
        tasks.assistant(http, user=tasks.User(approve=True), mode="auto") as mcp,
    ):
        path = "/v1/turns/t57-rest"
        await http.post("/v1/turns", json={"agent": "desk", "task": "pay", "id": "t57-rest"})
        before = (await http.get(f"{path}/result", params={"wait": 30})).json()
        said = {"call_id": before["unsettled"][0]["call_id"], "settlement": "done"}
        reader = {"Authorization": "Bearer rita"}
        forbidden = await http.post(f"{path}/settle", json=said, headers=reader)
        again = await http.post(f"{path}/settle", json={**said, "settlement": "again"})
        over_mcp = await tasks.use(mcp, "settle_call", turn="t57-rest", digest="0", **said)
        done = await http.post(f"{path}/settle", json={**said, "result": "number 7"})
        second = await http.post(f"{path}/settle", json=said)
        after = (await http.get(f"{path}/result")).json()
        status = (await http.get(path)).json()
        await client.turn("@acme/t57-rest").result()

    assert told(forbidden) == (403, "FORBIDDEN")
    assert told(again) == (422, "INVALID_REQUEST")
    assert "`perdure settle`" in next(iter(over_mcp.values()))
    assert (done.status_code, told(second)) == (204, (409, "APPROVAL_CONFLICT"))
    assert "already settled by anna@example.com: done" in second.json()["detail"]
    assert (len(before["unsettled"]), after["unsettled"], status["unsettled"]) == (1, [], 0)
