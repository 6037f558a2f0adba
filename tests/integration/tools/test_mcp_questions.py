"""Questions of MCP servers during calls: people answer them, and the server goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, MCPServer, ToolOutcome, errors, tool
from perdure.clients import Turn
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime, eventually
from ...support.approving import questions
from ...support.gateway.served import served

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ...support.mcp.task_server import TaskServer, asking, done, needs, task_server

BUILD = calls(call("works__build", what="a house"))
PAINT = calls(call("works__paint", what="the door"))
COLOUR = {"colour": {"type": "string", "enum": ["red", "green"]}}
FLOORS = {"floors": {"type": "integer", "minimum": 1}}


@pytest.fixture
async def works() -> AsyncIterator[TaskServer]:
    """The server."""
    async with task_server() as server:
        yield server


def builder(works: TaskServer, **options: Any) -> Agent:
    """An agent with the server."""
    return Agent(
        name="builder",
        model="scripted:x",
        toolboxes=[works.box(**options)],
        parallel_tools=True,
    )


def model(*replies: Any) -> ScriptedModel:
    """A model that calls, and then is content."""
    return ScriptedModel(*replies, says("ok"))


async def result_of(turn: Turn[Any]) -> tuple[ToolOutcome, str]:
    """The result of the only call."""
    report = await turn.result()
    [result] = report.steps[0].results
    return result.outcome, result.content


@pytest.mark.accepts("T72")
async def test_question_of_a_task_is_asked_as_that_of_a_model(
    runtime: Runtime, works: TaskServer
) -> None:
    """It says which server and tool ask; the answer goes to the server, and the task goes on."""
    works.new = needs(colour=asking("Which colour?\u200b", **COLOUR))
    async with runtime(builder(works), model=model(BUILD)) as client:
        turn = await client.start("builder", "go")
        [asked] = await questions(turn)
        with pytest.raises(errors.InvalidRequestError, match='colour is "blue", not one of'):
            await turn.answer(asked, {"colour": "blue"})
        await turn.answer(asked, {"colour": "green"}, by="anna")
        report = await turn.result()

    question = asked.question
    assert question is not None
    assert (asked.kind, asked.tool, question.server) == ("form", "works__build", "works")
    assert question.text.startswith(
        "The MCP server 'works' asks, in a call of works__build: Which colour?\n\n[The answer goes"
    )
    assert question.form == {"type": "object", "properties": COLOUR, "required": ["colour"]}
    assert works.answers == [{"colour": {"action": "accept", "content": {"colour": "green"}}}]
    [result] = report.steps[0].results
    assert (result.outcome, result.content) == (ToolOutcome.DONE, "a house")
    assert [decision.in_words for decision in report.steps[0].decisions] == ["answered by anna"]
    assert (report.tool_calls, report.spent.tool_calls, len(works.built)) == (1, 1, 1)


@pytest.mark.accepts("T73")
async def test_first_answer_to_a_server_counts(runtime: Runtime, works: TaskServer) -> None:
    """Of two at once, one is told who has answered; and so is one that comes later."""
    works.new = needs(colour=asking("Which colour?", **COLOUR))
    works.then = needs(floors=asking("How many floors?", **FLOORS))
    async with runtime(builder(works), model=model(BUILD)) as client:
        turn = await client.start("builder", "go")
        [asked] = await questions(turn)
        answers = await asyncio.gather(
            turn.answer(asked, {"colour": "red"}, by="anna"),
            turn.answer(asked, {"colour": "green"}, by="ben"),
            return_exceptions=True,
        )
        await eventually(lambda: len(works.answers) == 1, "the task has the answer")
        works.then = done("a house")
        [second] = await questions(turn)
        with pytest.raises(errors.ApprovalConflictError, match="already answered by") as late:
            await turn.answer(asked, {"colour": "red"}, by="carl")
        with pytest.raises(errors.ApprovalConflictError, match="already answered by"):
            await turn.answer(asked.call_id, {"colour": "red"}, token=asked.token, by="carl")
        with pytest.raises(errors.ApprovalConflictError, match="are asked more than once"):
            await turn.answer(second.call_id, {"floors": 2}, by="carl")
        await turn.answer(second, {"floors": 2}, by="carl")
        await turn.result()

    [conflict] = [error for error in answers if error is not None]
    first = "ben" if answers[0] is conflict else "anna"
    assert isinstance(conflict, errors.ApprovalConflictError)
    assert f"already answered by {first}" in conflict.message
    assert f"already answered by {first}" in late.value.message
    assert [set(answer) for answer in works.answers] == [{"colour"}, {"floors"}]


@pytest.mark.accepts("T74")
async def test_several_questions_are_asked_one_after_the_other(
    runtime: Runtime, works: TaskServer
) -> None:
    """All answers go out together. To deny one is to decline it; a form without fields asks for
    consent.
    """
    works.new = needs(
        colour=asking("Which colour?", **COLOUR),
        floors=asking("How many floors?", **FLOORS),
        go=asking("Shall I begin?"),
    )
    async with runtime(builder(works), model=model(BUILD)) as client:
        turn = await client.start("builder", "go")
        [first] = await questions(turn)
        await turn.answer(first, {"colour": "red"}, by="anna")
        [second] = await questions(turn)
        await turn.deny(second, "as you like", by="ben")
        [third] = await questions(turn)
        assert third.question is not None
        assert third.question.options == ("accept",)
        await turn.answer(third, "accept", by="carl")
        found = await result_of(turn)

    assert len({each.token for each in (first, second, third)}) == 3
    assert works.answers == [
        {
            "colour": {"action": "accept", "content": {"colour": "red"}},
            "floors": {"action": "decline"},
            "go": {"action": "accept", "content": {}},
        }
    ]
    assert found == (ToolOutcome.DONE, "a house")


@pytest.mark.accepts("T74")
async def test_message_that_denies_what_waits_declines_all_questions(
    runtime: Runtime, works: TaskServer
) -> None:
    """Also those that people were not asked yet, so that the model reads the message."""
    works.new = needs(a=asking("Shall I begin?"), b=asking("Shall I end?"))
    async with runtime(builder(works), model=model(BUILD)) as client:
        turn = await client.start("builder", "go")
        await questions(turn)
        await turn.steer("Do as you like.", deny_pending=True)
        await turn.result()

    assert works.answers == [{"a": {"action": "decline"}, "b": {"action": "decline"}}]


@pytest.mark.accepts("T75")
async def test_question_in_an_ordinary_call_is_answered_with_the_next_round(
    runtime: Runtime, works: TaskServer
) -> None:
    """The call is made again with the answer and the state of the server, and counts once."""
    works.asks = [{"colour": asking("Which colour?", **COLOUR)}, {}, {"go": asking("Really?")}]
    async with runtime(builder(works), model=model(PAINT)) as client:
        turn = await client.start("builder", "go")
        [first] = await questions(turn)
        await turn.answer(first, {"colour": "green"}, by="anna")
        [second] = await questions(turn)
        await turn.answer(second, "accept", by="ben")
        report = await turn.result()

    [result] = report.steps[0].results
    assert (result.outcome, result.content) == (ToolOutcome.DONE, "the door is painted")
    green = {"colour": {"action": "accept", "content": {"colour": "green"}}}
    assert works.rounds == [
        (None, None),
        (green, "round 1"),
        (None, "round 2"),
        ({"go": {"action": "accept", "content": {}}}, "round 3"),
    ]
    assert report.spent.tool_calls == 1


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "address": (
        {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Log in", "url": "https://evil.example.com"},
        },
        "it wants its user to open an address",
    ),
    "sampling": (
        {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}},
        "it asks for sampling/createMessage",
    ),
    "password": (
        asking("Who are you?", code={"type": "string", "format": "password"}),
        "it asks for a password (code), which would be kept in history",
    ),
    "nested": (
        asking("Where?", place={"type": "object", "properties": {"x": {"type": "number"}}}),
        "its form cannot be shown: place is no text",
    ),
}


@pytest.mark.accepts("T76")
@pytest.mark.parametrize(("request_", "words"), REFUSED.values(), ids=REFUSED)
@pytest.mark.table(2)
async def test_what_people_are_not_asked_ends_the_task_or_the_call(
    runtime: Runtime, works: TaskServer, request_: dict[str, Any], words: str
) -> None:
    """The task is cancelled, and the model reads why; so it does of an ordinary call."""
    works.new, works.asks = needs(it=request_), [{"it": request_}]
    both = calls(call("works__build", what="a house"), call("works__paint", what="the door"))
    async with runtime(builder(works), model=model(both)) as client:
        report = await (await client.start("builder", "go")).result()

    built, painted = report.steps[0].results
    assert built.outcome is ToolOutcome.UNKNOWN
    assert f"was cancelled, because {words}" in built.content
    assert works.tasks == {"build-1": {"status": "cancelled"}}
    assert painted.outcome is ToolOutcome.FAILED
    assert f"because {words}" in painted.content


@pytest.mark.accepts("T76")
async def test_answer_that_the_server_refuses_ends_the_task(
    runtime: Runtime, works: TaskServer
) -> None:
    """It fits the form, so nobody could give a better one."""
    works.new = needs(colour=asking("Which colour?", **COLOUR))
    works.refuses_answers = True
    async with runtime(builder(works), model=model(BUILD)) as client:
        turn = await client.start("builder", "go")
        [asked] = await questions(turn)
        await turn.answer(asked, {"colour": "green"})
        outcome, content = await result_of(turn)

    assert outcome is ToolOutcome.UNKNOWN
    assert "because it refused the answer of a person: green is sold out; whether" in content


@pytest.mark.accepts("T77")
async def test_server_learns_with_each_request_that_it_may_ask(
    runtime: Runtime, works: TaskServer
) -> None:
    """Forms alone, with requests whose questions people are asked; and never with asks=False."""
    works.new = needs(go=asking("Shall I begin?"))
    async with runtime(builder(works), model=model(BUILD)) as client:
        turn = await client.start("builder", "go")
        [asked] = await questions(turn)
        await turn.answer(asked, "accept")
        await turn.result()
    declared, works.forms = works.forms, []
    async with runtime(builder(works, asks=False), model=model(BUILD)) as client:
        outcome, content = await result_of(await client.start("builder", "go"))

    assert {method for method, _ in declared} == {"tools/call", "tasks/get", "tasks/update"}
    assert all(forms == {"form": {}} for _, forms in declared)
    assert works.forms == []
    assert outcome is ToolOutcome.UNKNOWN
    assert "because it asks its user something, which it cannot here" in content


@pytest.mark.accepts("T78")
async def test_time_of_a_task_goes_on_while_people_are_asked(
    runtime: Runtime, works: TaskServer
) -> None:
    """At its end the question is gone, and the task is cancelled."""
    works.new = needs(go=asking("Shall I begin?"))
    agent = builder(works, tasks=timedelta(seconds=2))
    async with runtime(agent, model=model(BUILD)) as client:
        turn = await client.start("builder", "go")
        [asked] = await questions(turn)
        outcome, content = await result_of(turn)
        with pytest.raises(errors.PerdureError):
            await turn.answer(asked, "accept")

    assert outcome is ToolOutcome.UNKNOWN
    assert "its job 'build-1' has no result after 2 s, so it was cancelled" in content
    assert works.tasks == {"build-1": {"status": "cancelled"}}


@pytest.mark.accepts("T78")
async def test_cancel_of_a_turn_cancels_the_task_that_asks(
    runtime: Runtime, works: TaskServer
) -> None:
    """Nobody can answer any more."""
    works.new = needs(go=asking("Shall I begin?"))
    async with runtime(builder(works), model=model(BUILD)) as client:
        turn = await client.start("builder", "go")
        [asked] = await questions(turn)
        await turn.cancel("it rains")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
        with pytest.raises(errors.TurnOverError):
            await turn.answer(asked, "accept")

    assert works.tasks == {"build-1": {"status": "cancelled"}}


@pytest.mark.accepts("T79")
async def test_answer_that_got_lost_is_sent_again(runtime: Runtime, works: TaskServer) -> None:
    """As long as the task names its question; not more often."""
    works.new = needs(go=asking("Shall I begin?"))
    works.loses_answers = 2
    async with runtime(builder(works), model=model(BUILD)) as client:
        turn = await client.start("builder", "go")
        [asked] = await questions(turn)
        await turn.answer(asked, "accept")
        found = await result_of(turn)

    assert found == (ToolOutcome.DONE, "a house")
    assert len(works.times("tasks/update")) == 3
    assert len(works.answers) == 1


@pytest.mark.accepts("J21")
async def test_other_tasks_are_polled_while_one_asks(runtime: Runtime, works: TaskServer) -> None:
    """One of them ends, and another asks as well: people see both questions."""
    works.upcoming = [
        needs(a=asking("Shall I begin?")),
        {"status": "working", "pollIntervalMs": 500},
        {"status": "working", "pollIntervalMs": 500},
    ]
    three = calls(*(call("works__build", what=what) for what in ("a house", "a shed", "a pond")))
    async with runtime(builder(works), model=model(three)) as client:
        turn = await client.start("builder", "go")
        [first] = await questions(turn)
        works.tasks["build-2"] = done("a shed")
        works.tasks["build-3"] = needs(b=asking("How deep?", **FLOORS))
        [second] = [each for each in await questions(turn, 2) if each.call_id != first.call_id]
        await turn.answer(second, {"floors": 3})
        await eventually(lambda: len(works.answers) == 1, "the other task has its answer")
        [still] = await questions(turn)
        await turn.answer(first, "accept")
        report = await turn.result()

    assert still == first
    contents = [result.content for result in report.steps[0].results]
    assert sorted(contents) == ["a house", "a house", "a shed"]
    assert [set(answer) for answer in works.answers] == [{"b"}, {"a"}]


@pytest.mark.slow
@pytest.mark.accepts("T72", "H41")
async def test_approval_in_another_deployment_is_a_question_here(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gateway asks the user of its client, which is a person here."""
    monkeypatch.setenv("DESK_TOKEN", "anna")

    @tool(requires_approval=True)
    def send(to: str) -> str:
        """Send a letter."""
        return f"sent to {to}"

    desk = Agent(name="desk", model="main", tools=[send])
    of_desk = ScriptedModel(calls(call("send", to="ben")), says("It is sent."))
    async with runtime(desk, model=of_desk) as client, served(client) as http:
        other = MCPServer.http(
            "other", f"{http.base_url}/mcp", headers_env={"authorization": "DESK_TOKEN"}
        )
        boss = Agent(name="boss", model="scripted:x", toolboxes=[other])
        start = call("other__start_turn", agent="desk", task="Send it.", id="t72")
        async with runtime(boss, model=model(calls(start))) as above:
            turn = await above.start("boss", "go")
            [asked] = await questions(turn)
            await turn.answer(asked, {"approve": True, "reason": "fine"}, by="carl")
            outcome, content = await result_of(turn)
        decided = (await client.turn("@acme/t72").result()).steps[0].decisions

    assert asked.question is not None
    assert "wants to call send with" in asked.question.text
    assert outcome is ToolOutcome.DONE
    assert '"output": "It is sent."' in content
    assert [(each.approve, each.reason, each.by) for each in decided] == [
        (True, "fine", "anna@example.com")
    ]
