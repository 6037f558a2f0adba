"""Agents over A2A: the official client, a real uvicorn, a real server and a real worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from pydantic import BaseModel

from perdure import Agent, OutputGuardrail, limits
from perdure.activities.provider import Heard
from perdure.clients import AgentClient
from perdure.events import Decided
from perdure.testing import (
    ByTask,
    ModelRequest,
    Reply,
    ScriptedModel,
    call,
    calls,
    says,
)
from perdure.values.answers import ModelAnswer
from perdure.values.messages import Media, Text, UserMessage

from ...conftest import Runtime
from ...support.delegating import delegate
from ...support.gateway.a2a import (
    DESK,
    PUBLISHED,
    agent_of,
    asks,
    decision,
    get,
    message,
    refund,
    refused,
    send,
)
from ...support.gateway.served import MANY_VALUES, as_, served, told, until_not
from ...support.listing import entry_of, eventually_listed
from ...support.speaking import Speaker

_COMPLETED = TaskState.TASK_STATE_COMPLETED
_WORKS = TaskState.TASK_STATE_WORKING
_ASKS = TaskState.TASK_STATE_INPUT_REQUIRED


class Price(BaseModel):
    euros: int


CLERK = Agent(name="clerk", model="main", output=Price)


class Held(ScriptedModel):
    """A model that answers when it may."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.begun.set()
        await self.go_on.wait()
        return await super().complete(request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        self.begun.set()
        await self.go_on.wait()
        return await super().stream(request, heard)


@contextlib.asynccontextmanager
async def desk(
    runtime: Runtime, **models: ScriptedModel
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient]]:
    """A client and a gateway of agents whose models are chosen by the task."""
    async with (
        runtime([DESK, CLERK], model=ByTask(models)) as client,
        served(client, a2a_agents=PUBLISHED) as http,
    ):
        yield client, http


def end_of(stream: list[StreamResponse]) -> tuple[TaskState, str]:
    """The last state of a task, and its answer. A task that is over at once comes as a whole."""
    last = stream[-1]
    if last.HasField("task"):
        return last.task.status.state, last.task.artifacts[0].parts[0].text
    artifact = stream[-2].artifact_update.artifact
    return last.status_update.status.state, artifact.parts[0].text


@pytest.mark.slow
@pytest.mark.accepts("H50")
async def test_card_tells_what_the_operator_publishes(runtime: Runtime) -> None:
    """Without a token, and only of agents that are published."""
    async with desk(runtime) as (_, http):
        path = "/a2a/desk/.well-known/agent-card.json"
        async with httpx.AsyncClient(base_url=http.base_url, timeout=60) as nobody:
            public = await nobody.get(path)
            known = {"If-None-Match": public.headers["etag"]}
            unchanged = await nobody.get(path, headers=known)
            card = await A2ACardResolver(nobody, f"{http.base_url}/a2a/desk").get_agent_card()
            other = await A2ACardResolver(nobody, f"{http.base_url}/a2a/clerk").get_agent_card()
            missing = await nobody.get("/a2a/other/.well-known/agent-card.json")
        url = f"{http.base_url}/a2a/desk"

    assert public.headers["cache-control"] == "public, max-age=300"
    assert unchanged.status_code == 304
    assert (card.name, card.description, card.version) == ("desk", "Pays back.", "2")
    [interface] = card.supported_interfaces
    assert (interface.url, interface.protocol_binding) == (url, "JSONRPC")
    assert interface.protocol_version == "1.0"
    assert (card.capabilities.streaming, card.capabilities.push_notifications) == (True, True)
    assert card.security_schemes["bearer"].http_auth_security_scheme.scheme == "bearer"
    assert [list(one.schemes) for one in card.security_requirements] == [["bearer"]]
    [skill] = card.skills
    assert (skill.name, list(skill.tags), list(skill.examples)) == (
        "desk",
        ["money"],
        ["It is lost."],
    )
    assert other.supported_interfaces[0].url == "https://agents.example.com/a2a/clerk"
    assert missing.status_code == 404


@pytest.mark.accepts("H144")
async def test_address_with_a_slash_at_its_end_is_served(runtime: Runtime) -> None:
    """The official client follows no redirect: to the card, or to the address that it has."""
    async with desk(runtime, Hi=ScriptedModel(says("Hello."))) as (_, http):
        url = f"{http.base_url}/a2a/desk/"
        card = await A2ACardResolver(http, url).get_agent_card()
        card.supported_interfaces[0].url = url
        agent = ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(card)
        task = await send(agent, message("Hi", "a2a-slash-m1"))
        raw = await http.post(url, json={})

    assert task.status.state == _COMPLETED
    assert raw.status_code == 200


@pytest.mark.accepts("H51", "H52", "H111")
async def test_task_is_sent_asks_for_approval_and_is_completed(runtime: Runtime) -> None:
    """A message again is the same one; text is not taken as a decision; a context has its tasks."""
    async with desk(runtime, lost=asks("Done.", "Again.", "Third.")) as (client, http):
        agent = await agent_of(http)
        asked = [await send(agent, message("lost", "a2a1-m1")) for _ in range(2)]
        task = asked[0]
        text = await send(agent, message("yes, approve", "a2a1-m2", task_id=task.id))
        wrong = await refused(send(agent, decision(task, "a2a1-m3", token="0" * 12)))
        unknown = await refused(send(agent, decision(task, "a2a1-m4", by="otto@example.com")))
        denial = decision(task, "a2a1-m8", approve=False, token="0" * 12)
        denied = await refused(send(agent, denial))
        done = [
            await send(agent, decision(task, "a2a1-m5", reason="fine", arguments={"euros": 30}))
            for _ in range(2)
        ]
        late = await refused(send(agent, message("more", "a2a1-m6", task_id=task.id)))
        following = await send(agent, message("lost", "a2a1-m7", context_id=task.context_id))
        brief = await get(agent, task.id, history_length=0)
        whole = await get(agent, task.id)
        turn = client.turn(f"@acme/a2a/desk/{task.id}")
        [decided] = [one.fact async for one in turn.events() if isinstance(one.fact, Decided)]

    assert asked[0] == asked[1]
    assert (task.id, task.status.state) == (f"{task.context_id}/1", _ASKS)
    assert text.status == task.status
    part = MessageToDict(task.status.message.parts[1])["data"]
    assert (part["type"], part["tool"], part["arguments"]) == ("approval", "refund", {"euros": 40})
    assert isinstance(wrong, InvalidParamsError)
    assert isinstance(unknown, InvalidParamsError)
    assert isinstance(denied, InvalidParamsError)
    assert [one.status.state for one in done] == [_COMPLETED] * 2
    assert [part.text for part in done[0].artifacts[0].parts] == ["Done."]
    assert isinstance(late, UnsupportedOperationError)
    assert (following.id, following.status.state) == (f"{task.context_id}/2", _COMPLETED)
    assert following.artifacts[0].parts[0].text == "Again."
    assert not brief.history
    assert [(one.role, one.parts[0].text) for one in whole.history] == [
        (Role.ROLE_USER, "lost"),
        (Role.ROLE_AGENT, "I pay."),
    ]
    assert (decided.decision.by, decided.decision.arguments) == (
        "anna@example.com",
        '{"euros":30}',
    )


@pytest.mark.slow
@pytest.mark.accepts("H53")
async def test_task_is_streamed_and_subscribed_to_from_another_process(runtime: Runtime) -> None:
    """A client that goes away affects nothing; a stream ends when the task asks or is over."""
    model = Held(calls(call("refund", euros=40), text="I pay."), says("Done."))
    async with (
        runtime(DESK, model=model) as client,
        served(client, a2a_agents=PUBLISHED) as http,
    ):
        agent = await agent_of(http, streams=True)
        request = SendMessageRequest(message=message("lost", "a2a2-m1"))
        sent = agent.send_message(request)
        task = (await anext(sent)).task
        model.go_on.set()
        updates = [one async for one in sent]
        again = [one async for one in agent.send_message(request)]
        elsewhere = AgentClient.from_temporal(client.temporal)
        async with served(elsewhere, a2a_agents=PUBLISHED) as other:
            there = await agent_of(other, streams=True)
            stream = there.subscribe(SubscribeToTaskRequest(id=task.id))
            followed = [await anext(stream)]
            waiting = await get(agent, task.id)
            answer = SendMessageRequest(message=decision(waiting, "a2a2-m2"))
            answered = [one async for one in agent.send_message(answer)]
            followed += [one async for one in stream]
            late = [one async for one in there.send_message(request)]
            over = await refused(anext(there.subscribe(SubscribeToTaskRequest(id=task.id))))

    assert [one.task.status.state for one in late] == [_COMPLETED]
    assert task.status.state == _WORKS
    changes = [one.status_update.status for one in updates if one.HasField("status_update")]
    assert [(one.state, one.message.parts[0].text[:6]) for one in changes] == [
        (_WORKS, "I pay."),
        (_ASKS, "The ca"),
    ]
    drafts = [one.artifact_update for one in updates if one.HasField("artifact_update")]
    *said, dropped = [(one.artifact.parts[0].text, one.append) for one in drafts]
    assert "".join(text for text, _ in said) == "I pay."  # while it was generated
    assert dropped == ("", False)  # for it stood beside a call
    assert [one.task.status.state for one in again] == [_ASKS]
    assert followed[0].task.status.state == _ASKS
    assert [one.WhichOneof("payload") for one in followed[-2:]] == [
        "artifact_update",
        "status_update",
    ]
    assert end_of(followed) == end_of(answered) == (_COMPLETED, "Done.")
    assert isinstance(over, UnsupportedOperationError)


@pytest.mark.accepts("H54")
@pytest.mark.slow
async def test_task_is_queued_steered_listed_and_cancelled(runtime: Runtime) -> None:
    """A message to a context whose task runs is a task that has not begun, until that is over."""
    async with desk(runtime, one=asks("Done.")) as (client, http):
        agent, streaming = await agent_of(http), await agent_of(http, streams=True)
        task = await send(agent, message("one", "a2a3-m1", context_id="a2a3"))
        queued = await send(agent, message("two", "a2a3-m2", context_id="a2a3"), at_once=True)
        found = await get(agent, queued.id)
        uncancelable = await refused(agent.cancel_task(CancelTaskRequest(id=queued.id)))
        following = streaming.subscribe(SubscribeToTaskRequest(id=queued.id))
        first = await anext(following)
        cancelled = await agent.cancel_task(CancelTaskRequest(id=task.id))
        twice = await refused(agent.cancel_task(CancelTaskRequest(id=task.id)))
        seen = [one async for one in following]
        done = await get(agent, queued.id)
        lists = [
            await agent.list_tasks(ListTasksRequest(context_id="a2a3", **more))
            for more in ({}, {"status": _COMPLETED}, {"page_size": 1}, {"include_artifacts": True})
        ]
        rest = await agent.list_tasks(
            ListTasksRequest(context_id="a2a3", page_token=lists[2].next_page_token)
        )
        status = await client.turn("@acme/a2a/desk/a2a3/1").status()

    assert (task.id, task.context_id, task.status.state) == ("a2a3/1", "a2a3", _ASKS)
    assert queued == found == first.task
    assert (queued.id, queued.status.state) == ("a2a3/2", TaskState.TASK_STATE_SUBMITTED)
    assert isinstance(uncancelable, TaskNotCancelableError)
    assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
    assert isinstance(twice, TaskNotCancelableError)
    assert status.error is not None
    assert "anna@example.com" in status.error.message
    assert (done.id, done.status.state) == ("a2a3/2", _COMPLETED)
    assert end_of(seen) == (_COMPLETED, "Done.")
    assert [[one.id for one in found.tasks] for found in (*lists, rest)] == [
        ["a2a3/2", "a2a3/1"],
        ["a2a3/2"],
        ["a2a3/2"],
        ["a2a3/2", "a2a3/1"],
        ["a2a3/1"],
    ]
    assert [len(one.artifacts) for one in lists[3].tasks] == [1, 0]
    assert (lists[2].total_size, rest.next_page_token) == (2, "")


@pytest.mark.accepts("H247")
async def test_files_of_a_message_reach_the_model(runtime: Runtime) -> None:
    """Also those of a message to a task that works; the history of the task names them."""
    model = Held(says("A cat."), says("And a dog."))
    parts = [Part(text="What is it?"), Part(raw=b"cat", media_type="image/png")]
    more = [Part(raw=b"dog", filename="dog.jpg")]
    async with (
        runtime(DESK, model=model) as client,
        served(client, a2a_agents=PUBLISHED) as http,
    ):
        agent = await agent_of(http)
        begins = Message(message_id="a2a7-m1", role=Role.ROLE_USER, parts=parts)
        task = await send(agent, begins, at_once=True)
        await model.begun.wait()
        adds = Message(message_id="a2a7-m2", role=Role.ROLE_USER, parts=more, task_id=task.id)
        await send(agent, adds, at_once=True)
        model.go_on.set()
        done = await send(agent, begins)

    [first, second] = [
        [message.parts for message in request.messages if isinstance(message, UserMessage)]
        for request in model.requests
    ]
    cat = Media(media_type="image/png", data="Y2F0")
    assert first == [(Text(text="What is it?"), cat)]
    assert second[1:] == [(Media(media_type="image/jpeg", data="ZG9n"),)]
    assert done.status.state == _COMPLETED
    assert "image/png" in done.history[0].parts[0].text


@pytest.mark.accepts("H54")
async def test_working_task_is_steered_and_has_typed_output(runtime: Runtime) -> None:
    """A message to a task that works is read by it, once; an output with a type is data."""
    model = Held(says('{"euros": 6}'), says('{"euros": 7}'))
    async with (
        runtime(CLERK, model=model) as client,
        served(client, a2a_agents=PUBLISHED) as http,
    ):
        agent = await agent_of(http, agent="clerk")
        task = await send(agent, message("price", "a2a4-m1"), at_once=True)
        await model.begun.wait()
        said = message("In euros.", "a2a4-m2", task_id=task.id)
        steered = [await send(agent, said, at_once=True) for _ in range(2)]
        model.go_on.set()
        done = await send(agent, message("price", "a2a4-m1"))
        again = await send(agent, said)
        whole = await get(agent, task.id)

    assert task.status.state == _WORKS
    assert [one.id for one in steered] == [task.id] * 2
    assert done == again == whole
    assert done.status.state == _COMPLETED
    assert MessageToDict(done.artifacts[0].parts[0])["data"] == {"euros": 7}
    assert [(one.message_id, one.parts[0].text) for one in done.history] == [
        (f"{task.id}/task", "price"),
        ("a2a4-m2", "In euros."),
    ]


@pytest.mark.accepts("H52", "H53")
async def test_call_of_a_delegate_is_decided_through_its_task(runtime: Runtime) -> None:
    """The stream of the task tells of it, and the delegate is no task of its own."""
    boss = Agent(name="desk", model="main", delegates=["helper"])
    helper = Agent(name="helper", model="main", tools=[refund], description="Pays.")
    models = {
        "go": ScriptedModel(delegate("helper", "pay"), says("All is paid.")),
        "pay": asks("Paid."),
    }
    async with (
        runtime([boss, helper], model=ByTask(models)) as client,
        served(client, a2a_agents=PUBLISHED) as http,
    ):
        agent = await agent_of(http, streams=True)
        request = SendMessageRequest(message=message("go", "a2a7-m1", context_id="a2a7"))
        asked = [one async for one in agent.send_message(request)]
        waiting = await get(agent, "a2a7/1")
        answer = SendMessageRequest(message=decision(waiting, "a2a7-m2"))
        answered = [one async for one in agent.send_message(answer)]
        await entry_of(client, "@acme/a2a/desk/a2a7/1")
        listed = await agent.list_tasks(ListTasksRequest(context_id="a2a7"))

    last = asked[-1].status_update if len(asked) > 1 else asked[-1].task
    assert last.status.state == waiting.status.state == _ASKS
    assert end_of(answered) == (_COMPLETED, "All is paid.")
    assert [one.id for one in listed.tasks] == ["a2a7/1"]


@pytest.mark.accepts("H55")
async def test_tenants_and_permissions_hold_over_a2a(runtime: Runtime) -> None:
    """Tasks of another tenant are not found, and nothing is done without the permission."""
    async with desk(runtime, one=asks("Done.")) as (client, http):
        agent = await agent_of(http)
        task = await send(agent, message("one", "a2a5-m1", context_id="a2a5"))
        before = (await client.turn("@acme/a2a/desk/a2a5/1").status()).model_dump(exclude={"spent"})
        found: dict[str, list[A2AError]] = {}
        for name in ("otto", "rita", "nobody"):
            async with httpx.AsyncClient(
                headers=as_(name), base_url=http.base_url, timeout=60
            ) as theirs:
                other = await agent_of(theirs)
                found[name] = [
                    await refused(send(other, decision(task, "a2a5-m2"))),
                    await refused(send(other, message("Stop.", "a2a5-m3", task_id=task.id))),
                    await refused(other.cancel_task(CancelTaskRequest(id=task.id))),
                ]
                if name == "rita":
                    found[name].append(await refused(send(other, message("one", "a2a5-m4"))))
                    seen = await get(other, task.id)
                if name == "otto":
                    found[name].append(await refused(get(other, task.id)))
                    found[name].append(await refused(get(other, f"@acme/a2a/desk/{task.id}")))
                    nothing = await other.list_tasks(ListTasksRequest())
        after = (await client.turn("@acme/a2a/desk/a2a5/1").status()).model_dump(exclude={"spent"})
        await eventually_listed(client, ["@acme/a2a/desk/a2a5/1"], id_prefix="@acme/a2a/desk/a2a5")
        await agent.cancel_task(CancelTaskRequest(id=task.id))

    assert {type(one) for one in found["otto"]} == {TaskNotFoundError}
    assert {"403" in one.message for one in found["rita"]} == {True}
    assert {"401" in one.message for one in found["nobody"]} == {True}
    assert seen.status == task.status
    assert not nothing.tasks
    assert after == before


OLD = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "bad/1"}}
BAD_MESSAGES: dict[str, tuple[dict[str, Any], type[A2AError]]] = {
    "no parts": ({"parts": []}, InvalidParamsError),
    "an empty text": ({"parts": [{"text": " "}]}, InvalidParamsError),
    "a file of no type": ({"parts": [{"url": "https://x"}]}, ContentTypeNotSupportedError),
    "no id": ({"messageId": ""}, InvalidParamsError),
    "an id of two lines": ({"messageId": "a\nb"}, InvalidParamsError),
    "a long id": ({"messageId": "a" * 101}, InvalidParamsError),
    "the role of an agent": ({"role": "ROLE_AGENT"}, InvalidParamsError),
    "a long context": ({"contextId": "c" * 90}, InvalidParamsError),
    "a context of two lines": ({"contextId": "a\nb"}, InvalidParamsError),
    "a reserved context": ({"contextId": "events"}, InvalidParamsError),
    "a context with a slash": ({"contextId": "bad/1"}, InvalidParamsError),
    "an unknown task": ({"taskId": "bad/1"}, TaskNotFoundError),
    "a strange task": ({"taskId": "bad"}, TaskNotFoundError),
    "a huge number": ({"taskId": "bad/" + "9" * 5000}, TaskNotFoundError),
}


@pytest.mark.accepts("H56")
async def test_bad_messages_are_refused_and_start_nothing(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """With the errors of the protocol, and text of callers forges no line of the log."""
    good = {"messageId": "bad-1", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    async with desk(runtime) as (client, http):
        agent = await agent_of(http)
        found = {}
        for name, (part, _) in BAD_MESSAGES.items():
            given = ParseDict({**good, **part}, Message())
            found[name] = type(await refused(send(agent, given)))
        lists = [
            await refused(agent.list_tasks(ListTasksRequest(**more)))
            for more in ({"page_size": 0}, {"page_size": 101}, {"page_token": "bad"})
        ]
        version = {"A2A-Version": "1.0"}
        bodies = {
            "": -32700,
            "[" * 100_000: -32700,
            '{"jsonrpc": "2.0", "id": "\\ud800", "method": "GetTask"}': -32700,
            "[]": -32600,
            '{"jsonrpc": "2.0", "id": "a\\nERROR forged", "method": "None"}': -32601,
            '{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": 7}': -32600,
            '{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": ["\\nx"]}}': -32602,
            '{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}': -32602,
        }
        answers = {
            body: (await http.post("/a2a/desk", content=body, headers=version)).json()
            for body in bodies
        }
        old = await http.post("/a2a/desk", json=OLD, headers={"A2A-Version": "0.3"})
        huge = [
            await http.post("/a2a/desk", content=content, headers=version)
            for content in (b" " * (limits.HTTP_BODY_BYTES + 1), MANY_VALUES)
        ]
        started = [one async for one in client.turns(id_prefix="@acme/a2a/desk/bad")]

    assert found == {name: cls for name, (_, cls) in BAD_MESSAGES.items()}
    assert {type(one) for one in lists} == {InvalidParamsError}
    assert {body: answer["error"]["code"] for body, answer in answers.items()} == bodies
    assert old.json()["error"]["code"] == -32009
    assert [told(one) for one in huge] == [(413, "TOO_LARGE")] * 2
    assert started == []
    assert caplog.records
    assert not any("\n" in one.getMessage() or one.exc_info for one in caplog.records)


@pytest.mark.accepts("H57")
@pytest.mark.slow
async def test_streams_over_a2a_count_as_open_requests(runtime: Runtime) -> None:
    """A task can still be looked at and cancelled, and a place is free when a stream ends."""
    async with (
        runtime(DESK, model=ByTask({"one": asks(), "two": asks()})) as client,
        served(client, a2a_agents=PUBLISHED, max_streams_of_caller=1) as http,
    ):
        agent, streaming = await agent_of(http), await agent_of(http, streams=True)
        task = await send(agent, message("one", "a2a6-m1", context_id="a2a6"))
        stream = streaming.subscribe(SubscribeToTaskRequest(id=task.id))
        await anext(stream)
        second = await refused(send(agent, message("two", "a2a6-m2")))
        plain = await get(agent, task.id)
        await agent.cancel_task(CancelTaskRequest(id=task.id))
        last = [one async for one in stream]
        running = await send(agent, message("two", "a2a6-m3"))
        left = streaming.subscribe(SubscribeToTaskRequest(id=running.id))
        await anext(left)
        await left.aclose()  # type: ignore[attr-defined]  # an async generator
        freed = await until_not(429, lambda: _status_of(http, running.id))
        await agent.cancel_task(CancelTaskRequest(id=running.id))

    assert "429" in second.message
    assert plain.status == task.status
    assert last[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
    assert freed == 200


async def _status_of(http: httpx.AsyncClient, task: str) -> int:
    """The status of a subscription, which its client leaves."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    headers = {"A2A-Version": "1.0"}
    async with http.stream("POST", "/a2a/desk", json=body, headers=headers) as stream:
        return stream.status_code


@pytest.mark.accepts("E191")
async def test_answer_is_streamed_in_pieces_that_the_whole_replaces(runtime: Runtime) -> None:
    """Each piece is given when the one before it was heard."""
    speaker = Speaker("one ", "two ", "three")
    async with (
        runtime(DESK, model=speaker) as client,
        served(client, a2a_agents=PUBLISHED) as http,
    ):
        agent = await agent_of(http, streams=True)
        pieces, whole = list[tuple[str, bool]](), ""
        async for update in agent.send_message(SendMessageRequest(message=message("go", "a2a9"))):
            if not update.HasField("artifact_update"):
                continue
            artifact = update.artifact_update
            if artifact.last_chunk:
                whole = artifact.artifact.parts[0].text
                continue
            pieces.append((artifact.artifact.parts[0].text, artifact.append))
            for gate in speaker.gates[: len(pieces)]:
                gate.set()

    assert pieces == [("one ", False), ("two ", True), ("three", True)]
    assert whole == "one two three"


@pytest.mark.slow
@pytest.mark.accepts("E191", "G35")
async def test_answer_that_is_checked_is_not_shown_before(runtime: Runtime) -> None:
    """The check refuses it, so it is nowhere in the stream."""
    guarded = Agent(name="desk", model="main", middleware=[OutputGuardrail(lambda _: False)])
    async with (
        runtime(guarded, model=ScriptedModel(says("a refused answer"))) as client,
        served(client, a2a_agents=PUBLISHED) as http,
    ):
        agent = await agent_of(http, streams=True)
        request = SendMessageRequest(message=message("go", "a2a10"))
        updates = [str(update) async for update in agent.send_message(request)]

    assert len(updates) > 1
    assert not [update for update in updates if "refused answer" in update]
