"""Questions of MCP servers over every protocol: they say which server asks, and who answers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from google.protobuf.json_format import MessageToDict

from perdure import Agent, ToolOutcome
from perdure.clients import AgentClient, Turn
from perdure.clients.gateway import A2AAgent
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime
from ...support.approving import questions
from ...support.delegating import app as delegating
from ...support.delegating import delegate, researcher
from ...support.gateway import a2a, agui
from ...support.gateway.responses import openai_of
from ...support.gateway.served import served, told
from ...support.listing import listed_calls
from ...support.mcp import tasks
from ...support.receiver import Receiver

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ...support.mcp.task_server import TaskServer, asking, needs, task_server

WHO = "The MCP server 'works' asks, in a call of works__build: Which colour?"
COLOUR = {"colour": {"type": "string", "enum": ["red", "green"], "title": "Colour"}}
GREEN = {"colour": "green"}


@contextlib.asynccontextmanager
async def site(
    runtime: Runtime, **options: Any
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient, TaskServer]]:
    """A client and a gateway of an agent whose server asks, and that server."""
    async with task_server() as works:
        works.new = needs(colour=asking("Which colour?\x1b[2K", **COLOUR))
        agent = Agent(name="desk", model="main", toolboxes=[works.box()])
        model = ScriptedModel(calls(call("works__build", what="a house")), says("Done."))
        serving = options.pop("serving", served)
        async with runtime(agent, model=model) as client, serving(client, **options) as http:
            yield client, http, works


async def check(turn: Turn[Any], works: TaskServer, by: str) -> None:
    """The server has the answer, and the turn has the result of the task and who answered."""
    report = await turn.result()
    [result] = report.steps[0].results
    decided = [decision.in_words for decision in report.steps[0].decisions]

    assert works.answers == [{"colour": {"action": "accept", "content": GREEN}}]
    assert (result.outcome, result.content) == (ToolOutcome.DONE, "a house")
    assert decided == [f"answered by {by}"]


@pytest.mark.accepts("J20", "H1")
async def test_question_of_a_server_is_answered_over_http(runtime: Runtime) -> None:
    """It is on the board; a misfit is refused, and a second answer learns whose is first."""
    async with site(runtime) as (client, http, works):
        await http.post("/v1/turns", json={"agent": "desk", "task": "build", "id": "j20"})
        turn = client.turn("@acme/j20")
        await questions(turn)
        await listed_calls(client, turn.id)
        approvals = (await http.get("/v1/approvals")).json()["approvals"]
        [listed] = [one for one in approvals if one["turn"]["id"] == turn.id]
        named = {"call_id": listed["call"]["call_id"], "token": listed["call"]["token"]}
        path = "/v1/turns/j20/answer"
        misfit = await http.post(path, json={**named, "answer": {"colour": "blue"}})
        done = await http.post(path, json={**named, "answer": GREEN})
        await http.get("/v1/turns/j20/result", params={"wait": 30})
        again = await http.post(path, json={**named, "answer": GREEN})
        await check(turn, works, "anna@example.com")

    question = listed["call"]["question"]
    assert (question["server"], question["form"]["properties"]) == ("works", COLOUR)
    assert question["text"].startswith(WHO)
    assert "\x1b" not in question["text"]
    assert told(misfit) == (422, "INVALID_REQUEST")
    assert (done.status_code, told(again)) == (204, (409, "APPROVAL_CONFLICT"))
    assert "already answered by anna@example.com" in again.json()["detail"]


@pytest.mark.accepts("J20", "H44")
async def test_client_of_mcp_shows_the_question_of_a_server_to_its_user(runtime: Runtime) -> None:
    """The form of the server is that of the elicitation."""
    user = tasks.User(**GREEN)
    async with (
        site(runtime) as (client, http, works),
        tasks.assistant(http, user=user) as mcp,
    ):
        await tasks.use(mcp, "start_turn", agent="desk", task="build", id="j20-mcp")
        seen = await tasks.use(mcp, "turn_result", turn="j20-mcp")
        [waiting] = seen["waiting_calls"]
        named = {"turn": "j20-mcp", "call_id": waiting["call_id"], "digest": waiting["digest"]}
        await tasks.use(mcp, "answer_call", **named, answer={"colour": "red"})
        await check(client.turn("@acme/j20-mcp"), works, "anna@example.com")

    assert user.asked[0].startswith('An MCP server, works, of turn "@acme/j20-mcp" asks you')
    assert WHO in user.asked[0]


@pytest.mark.accepts("J20")
async def test_webhook_tells_each_question_of_a_server(
    runtime: Runtime, receiver: Receiver
) -> None:
    """Its receiver answers with the tokens that it was told."""
    async with site(runtime) as (client, _, works):
        works.new["inputRequests"]["go"] = asking("Shall I begin?")
        turn = await client.start("desk", "build", on_wait=receiver.url("/waits"))
        told_ = []
        for number, answer in enumerate((GREEN, "accept"), 1):
            hooks = await receiver.until("/waits", number)
            [waits] = hooks[-1].verified()["data"]["pending"]
            await turn.answer(waits["call_id"], answer, token=waits["token"], by="anna")
            told_.append(waits["question"])
        await turn.result()

    assert [each["server"] for each in told_] == ["works", "works"]
    assert told_[0]["text"].startswith(WHO)
    assert [sorted(each) for each in works.answers] == [["colour", "go"]]


@pytest.mark.accepts("J20", "J15")
async def test_question_of_the_server_of_a_delegate_is_shown_above(runtime: Runtime) -> None:
    """The status of the turn that delegates has it; it is answered at the turn of the delegate."""
    async with task_server() as works:
        works.new = needs(colour=asking("Which colour?", **COLOUR))
        models = {
            "editor": ScriptedModel(delegate("researcher", "build"), says("done")),
            "researcher": ScriptedModel(
                calls(call("works__build", what="a house")), says("It is built.")
            ),
        }
        workers = delegating(researcher(toolboxes=[works.box()]), delegates=["researcher"])
        async with runtime(workers, model=models) as client:
            turn = await client.start("editor", "go")
            await turn.wait()
            [wait] = [wait for wait in (await turn.status()).waits if wait.call]
            assert wait.call is not None
            await client.turn(wait.turn_id).answer(wait.call, GREEN, by="anna")
            report = await turn.result()

    assert wait.turn_id != turn.id
    assert wait.call.question is not None
    assert wait.call.question.text.startswith(WHO)
    assert report.output == "done"


@pytest.mark.slow
@pytest.mark.accepts("J20", "H31")
async def test_question_of_a_server_is_an_interrupt_of_agui(runtime: Runtime) -> None:
    """Its schema is that of the form."""
    async with site(runtime, serving=agui.served) as (client, http, works):
        asked = await agui.run(http, "desk", agui.asking("j20", "r-1", agui.user("go", "m-1")))
        [shown] = asked.interrupts
        answer = agui.answering("j20", "r-2", [shown], answer=GREEN)
        await agui.run(http, "desk", answer)
        await check(client.turn("@agui/j20/1"), works, "iris@example.com")

    assert shown.message.startswith(WHO)


@pytest.mark.slow
@pytest.mark.accepts("J20", "H51")
async def test_question_of_a_server_is_an_input_of_a_task_of_a2a(runtime: Runtime) -> None:
    """Its message has the question and the schema."""
    async with site(runtime, a2a_agents=[A2AAgent("desk", "Builds.")]) as (client, http, works):
        agent = await a2a.agent_of(http)
        task = await a2a.send(agent, a2a.message("build", "m-1"))
        text, data = task.status.message.parts
        answered = a2a.decision(task, "m-2", approve=None, answer=GREEN)
        await a2a.send(agent, answered)
        await check(client.turn(f"@acme/a2a/desk/{task.id}"), works, "anna@example.com")

    assert WHO in text.text
    assert "for the MCP server 'works'. To answer" in text.text
    assert MessageToDict(data)["data"]["schema"]["properties"] == COLOUR


@pytest.mark.slow
@pytest.mark.accepts("J20", "H21")
async def test_response_has_the_question_of_a_server(runtime: Runtime) -> None:
    """It is an approval request with the form."""
    async with (
        site(runtime) as (client, http, works),
        openai_of(http) as ai,
    ):
        waits = await ai.responses.create(model="desk", input="build")
        request: Any = waits.output[-1]
        item: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": request.id,
            "approve": True,
            "answer": GREEN,
        }
        await ai.responses.create(model="desk", previous_response_id=waits.id, input=[item])
        await check(client.turn(waits.id), works, "anna@example.com")

    assert request.question["text"].startswith(WHO)
