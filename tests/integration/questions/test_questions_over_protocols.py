"""Questions over every protocol: what is shown of them, and who answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from google.protobuf.json_format import MessageToDict

from perdure import Agent, ToolOutcome
from perdure.clients import AgentClient, Turn
from perdure.clients.gateway import A2AAgent
from perdure.testing import ScriptedModel, call, calls, says
from perdure.toolboxes import asking

from ...conftest import Runtime
from ...support.approving import pending
from ...support.gateway import a2a, agui, assistants
from ...support.gateway.responses import openai_of
from ...support.gateway.served import messages, served, told
from ...support.listing import listed_calls
from ...support.mcp import tasks

HOSTILE = "Which?\x1b[2K\u202e"
COLOURS = ["red", "green"]
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "euros": {"type": "integer", "minimum": 1, "exclusiveMaximum": 100},
        "urgent": {"type": "boolean"},
        "day": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    },
    "required": ["euros", "day"],
}
NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {"lines": {"type": "array", "items": {"type": "string"}}},
}


@contextlib.asynccontextmanager
async def desk(
    runtime: Runtime, question: dict[str, Any], **options: Any
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient]]:
    """A client and a gateway of an agent that asks."""
    agent = Agent(name="desk", model="main", toolboxes=[asking()])
    model = ScriptedModel(calls(call("ask", **question)), says("Done."))
    serving = options.pop("serving", served)
    async with runtime(agent, model=model) as client, serving(client, **options) as http:
        yield client, http


async def end_of(turn: Turn[Any]) -> tuple[ToolOutcome, str, list[str]]:
    """The result of the only call, and what was decided about it."""
    report = await turn.result()
    [result] = report.steps[0].results
    decided = [decision.in_words for decision in report.steps[0].decisions]
    return result.outcome, result.content, decided


@pytest.mark.accepts("J11", "H1")
async def test_question_is_listed_and_answered_over_http(runtime: Runtime) -> None:
    """It is in the list of the approvals; a misfit is refused at once, and a second answer too."""
    question = {"question": HOSTILE, "options": COLOURS, "default": "red"}
    async with desk(runtime, question) as (client, http):
        await http.post("/v1/turns", json={"agent": "desk", "task": "paint", "id": "j-rest"})
        turn = client.turn("@acme/j-rest")
        await pending(turn)
        await listed_calls(client, turn.id)
        approvals = (await http.get("/v1/approvals")).json()["approvals"]
        [listed] = [one for one in approvals if one["turn"]["id"] == turn.id]
        named = {"call_id": listed["call"]["call_id"], "token": listed["call"]["token"]}
        path = "/v1/turns/j-rest/answer"
        reader = {"Authorization": "Bearer rita"}
        refused = [
            await http.post(path, json={**named, "answer": "blue"}),
            await http.post(path, json={**named, "answer": ["red"]}),
            await http.post(path, json=named),
            await http.post(path, json={**named, "token": "0" * 12, "answer": "red"}),
            await http.post(path, json={**named, "answer": "red"}, headers=reader),
            await http.post("/v1/turns/j-rest/approve", json=named),
        ]
        done = await http.post(path, json={**named, "answer": "green"})
        await http.get("/v1/turns/j-rest/result", params={"wait": 30})
        again = await http.post(path, json={**named, "answer": "green"})
        public, private = [
            [one async for _, one in messages(http, "/v1/turns/j-rest/events", **query)]
            for query in ({}, {"include": "results"})
        ]
        ended = await end_of(turn)

    assert listed["call"]["is_question"]
    assert listed["call"]["question"] == {
        "text": HOSTILE,
        "options": COLOURS,
        "form": None,
        "default": "red",
    }
    assert [told(one) for one in refused] == [
        (422, "INVALID_REQUEST"),
        (422, "INVALID_REQUEST"),
        (422, "INVALID_REQUEST"),
        (409, "APPROVAL_CONFLICT"),
        (403, "FORBIDDEN"),
        (409, "APPROVAL_CONFLICT"),
    ]
    assert "not one of" in refused[0].json()["detail"]
    assert (done.status_code, told(again)) == (204, (409, "APPROVAL_CONFLICT"))
    assert "already answered by anna@example.com" in again.json()["detail"]
    assert ended == (ToolOutcome.DONE, "green", ["answered by anna@example.com"])
    [waited] = [one for one in public if one["kind"] == "wait_began"]
    assert waited["pending"][0]["is_question"]
    decided = [next(one for one in of if one["kind"] == "decided") for of in (public, private)]
    assert [(one["is_answer"], one.get("result")) for one in decided] == [
        (True, None),
        (True, '"green"'),
    ]


@pytest.mark.slow
@pytest.mark.accepts("J8")
async def test_of_eight_answers_on_two_gateways_one_counts(runtime: Runtime) -> None:
    """The others read whose it is."""
    async with (
        desk(runtime, {"question": "Which?", "options": COLOURS}) as (client, http),
        served(client) as other,
    ):
        await http.post("/v1/turns", json={"agent": "desk", "task": "paint", "id": "j-two"})
        [waiting] = await pending(client.turn("@acme/j-two"))
        named = {"call_id": waiting.call_id, "token": waiting.token}
        answers = await asyncio.gather(
            *(
                (http, other)[number % 2].post(
                    "/v1/turns/j-two/answer", json={**named, "answer": COLOURS[number // 4]}
                )
                for number in range(8)
            )
        )
        _, content, decided = await end_of(client.turn("@acme/j-two"))

    codes = [answer.status_code for answer in answers]
    winner = codes.index(204)
    assert sorted(codes) == [204, *[409] * 7]
    assert content == COLOURS[winner // 4]
    assert decided == ["answered by anna@example.com"]
    late = [answer.json()["detail"] for answer in answers if answer.status_code == 409]
    assert all("already answered by anna@example.com" in detail for detail in late)


@pytest.mark.table(1)
@pytest.mark.accepts("J12", "H44")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_client_of_mcp_shows_the_question_to_its_user(runtime: Runtime, mode: str) -> None:
    """The form is that of the question; what the model of the client says is not used."""
    user = tasks.User(euros=40, urgent=True)
    async with (
        desk(runtime, {"question": HOSTILE, "schema": FORM}) as (client, http),
        tasks.assistant(http, user=user, mode=mode) as mcp,
    ):
        turn_id = f"j-mcp-{mode}"
        await tasks.use(mcp, "start_turn", agent="desk", task="pay", id=turn_id)
        seen = await tasks.use(mcp, "turn_result", turn=turn_id)
        [waiting] = seen["waiting_calls"]
        named = {"turn": turn_id, "call_id": waiting["call_id"], "digest": waiting["digest"]}
        approved = await tasks.use(mcp, "approve_call", **named)
        await tasks.use(mcp, "answer_call", **named, answer={"euros": 1, "day": None})
        ended = await tasks.use(mcp, "turn_result", turn=turn_id)
        outcome, content, decided = await end_of(client.turn(f"@acme/{turn_id}"))

    assert waiting["is_question"]
    assert waiting["question"]["form"] == FORM
    assert "is a question" in next(iter(approved.values()))
    assert ended["output"] == "Done."
    if mode == "auto":
        [asked] = user.asked
        assert asked.startswith(f'The model of turn "@acme/{turn_id}" asks you, by the tool ask.')
        assert asked.endswith('"Which?\\u001b[2K\\u202e"')
        assert content == '{"euros":40,"urgent":true,"day":null}'
    else:  # the client declares that it cannot ask
        assert content == '{"euros":1,"day":null}'
    assert (outcome, decided) == (ToolOutcome.DONE, ["answered by anna@example.com"])


@pytest.mark.slow
@pytest.mark.accepts("J12", "H44")
@pytest.mark.parametrize(
    ("question", "answer", "content"),
    [
        ({"question": "Which?", "options": COLOURS}, "green", "green"),
        ({"question": "Which?"}, "any", "any"),
        ({"question": "Which?", "schema": NESTED}, '{"lines": ["a"]}', '{"lines":["a"]}'),
    ],
)
async def test_question_that_is_no_flat_form_has_one_field(
    runtime: Runtime, question: dict[str, Any], answer: str, content: str
) -> None:
    """Of text, with the options, or of JSON. A user who dismisses it answers nothing."""
    users = [
        assistants.User(action="decline"),
        assistants.User(action="accept", content={"answer": answer}),
    ]
    async with desk(runtime, question) as (client, _):
        turn = await client.start("desk", "paint")
        [call_] = await pending(turn)
        named = {"turn": turn.id, "call_id": call_.call_id, "digest": call_.token}
        said = []
        for user in users:
            async with assistants.assistant(client, user=user) as mcp:
                said.append(await assistants.use(mcp, "answer_call", **named, answer="made up"))
        ended = await end_of(turn)

    assert "the user did not answer" in said[0]["error"]
    assert ended[:2] == (ToolOutcome.DONE, content)


@pytest.mark.slow
@pytest.mark.accepts("J12", "H41")
async def test_question_of_a_task_is_answered_by_the_user(runtime: Runtime) -> None:
    """Its form is an input request of the task."""
    user = tasks.User(answer="green")
    async with (
        desk(runtime, {"question": "Which?", "options": COLOURS}) as (client, http),
        tasks.assistant(http, user=user, extensions=[tasks.WithTasks(user)]) as mcp,
    ):
        created = await tasks.use(mcp, "start_turn", agent="desk", task="paint", id="j-task")
        ended = await end_of(client.turn("@acme/j-task"))

    assert created["outcome"] == "completed"
    assert ended == (ToolOutcome.DONE, "green", ["answered by anna@example.com"])
    assert "asks you, by the tool ask" in user.asked[0]


@pytest.mark.accepts("J13", "H31")
async def test_interrupt_of_agui_is_answered(runtime: Runtime) -> None:
    """Its schema is that of the answer; the same answer again is no conflict."""
    question = {"question": "Which?", "options": COLOURS}
    async with desk(runtime, question, serving=agui.served) as (client, http):
        asked = await agui.run(http, "desk", agui.asking("j13", "r-1", agui.user("pay", "m-1")))
        [shown] = asked.interrupts
        approve, both, wrong, answer = [
            agui.answering("j13", "r-2", [shown], **payload)
            for payload in (
                {"approved": True},
                {"approved": True, "answer": "red"},
                {"answer": "blue"},
                {"answer": "red"},
            )
        ]
        refused = [await http.post("/agui/desk", json=one) for one in (approve, both, wrong)]
        done = await agui.run(http, "desk", answer)
        again = await agui.run(http, "desk", answer)
        ended = await end_of(client.turn("@agui/j13/1"))

    assert shown.message == "The model asks, by ask: Which?"
    assert shown.response_schema["properties"]["answer"] == {"type": "string", "enum": COLOURS}
    assert [told(one) for one in refused] == [
        (409, "APPROVAL_CONFLICT"),
        (422, "INVALID_REQUEST"),
        (422, "INVALID_REQUEST"),
    ]
    assert (done.text, again.end.result) == ("Done.", "Done.")
    assert ended == (ToolOutcome.DONE, "red", ["answered by iris@example.com"])


@pytest.mark.slow
@pytest.mark.accepts("J13", "H51")
async def test_task_of_a2a_is_answered(runtime: Runtime) -> None:
    """Its message has the question and the schema; the same answer again changes nothing."""
    question = {"question": "How much?", "schema": FORM}
    async with desk(runtime, question, a2a_agents=[A2AAgent("desk", "Asks.")]) as (client, http):
        agent = await a2a.agent_of(http)
        task = await a2a.send(agent, a2a.message("pay", "m-1"))
        text, data = task.status.message.parts
        shown = MessageToDict(data)["data"]
        filled = {"euros": 40, "day": None}
        both = a2a.decision(task, "m-2", answer=filled)
        await a2a.refused(a2a.send(agent, both))
        wrong = a2a.decision(task, "m-3", approve=None, answer={"euros": 400, "day": None})
        misfit = await a2a.refused(a2a.send(agent, wrong))
        answered = a2a.decision(task, "m-4", approve=None, answer=filled)
        done = await a2a.send(agent, answered)
        again = await a2a.send(agent, answered)
        ended = await end_of(client.turn(f"@acme/a2a/desk/{task.id}"))

    assert text.text.endswith("The question is:\n\nHow much?")
    assert (shown["type"], shown["schema"]["properties"].keys()) == (
        "question",
        FORM["properties"].keys(),
    )
    assert "euros is 400, not less than 100" in str(misfit)
    assert {one.artifacts[0].parts[0].text for one in (done, again)} == {"Done."}
    assert ended == (
        ToolOutcome.DONE,
        '{"day":null,"euros":40}',
        ["answered by anna@example.com"],
    )


@pytest.mark.slow
@pytest.mark.accepts("J13", "H21")
async def test_response_has_the_question_and_takes_the_answer(runtime: Runtime) -> None:
    """In a field beside those of the protocol; an approval without it is refused."""
    async with (
        desk(runtime, {"question": "Which?", "options": COLOURS}) as (client, http),
        openai_of(http) as ai,
    ):
        waits = await ai.responses.create(model="desk", input="paint")
        request: Any = waits.output[-1]
        approval: dict[str, Any] = {
            "type": "mcp_approval_response",
            "approval_request_id": request.id,
            "approve": True,
        }

        async def say(**more: Any) -> Any:
            item: Any = {**approval, **more}
            return await ai.responses.create(
                model="desk", previous_response_id=waits.id, input=[item]
            )

        with pytest.raises(openai.ConflictError, match="is a question"):
            await say()
        with pytest.raises(openai.APIStatusError, match="not one of"):
            await say(answer="blue")
        done = await say(answer="red")
        ended = await end_of(client.turn(waits.id))

    assert request.question == {
        "text": "Which?",
        "options": COLOURS,
        "form": None,
        "default": None,
    }
    assert done.output_text == "Done."
    assert ended == (ToolOutcome.DONE, "red", ["answered by anna@example.com"])
