"""MCP over streamable HTTP: the SDK's own client, a real uvicorn, server and worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.routing import Route

from perdure import Agent, tool
from perdure.clients import AgentClient
from perdure.clients.gateway import Caller, app
from perdure.clients.gateway.permissions import Permission
from perdure.errors import LLMAuthError
from perdure.events import Decided
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says

from ...conftest import Runtime
from ...support.gateway.served import MANY_VALUES, as_, by_name, served, told

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, InputRequiredResult, InputResponses

from ...support.mcp.tasks import TASKS, User, WithTasks, ask, assistant, refusal, until, use

YES: JsonValue = {"action": "accept", "content": {"approve": True}}

NO: JsonValue = {"action": "decline"}


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


DESK = Agent(name="desk", model="main", tools=[refund])


def asks(*answers: str) -> ScriptedModel:
    """A model that wants to pay back, and then answers."""
    return ScriptedModel(calls(call("refund", euros=40)), *(says(answer) for answer in answers))


def delegates(task: str) -> ScriptedModel:
    """A model that has the desk do a task, and then answers."""
    return ScriptedModel(
        calls(call("delegate_to_agent", agent="desk", task=task)), says("All paid.")
    )


@contextlib.asynccontextmanager
async def gateways(
    runtime: Runtime, **models: ScriptedModel
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient, httpx.AsyncClient]]:
    """A client, and two processes of a gateway."""
    async with (
        runtime(DESK, model=ByTask(models)) as client,
        served(client) as one,
        served(client) as other,
    ):
        yield client, one, other


async def deciders(client: AgentClient, turn: str) -> list[tuple[str | None, str]]:
    """Who decided about the calls of a turn, and why."""
    facts = [one.fact async for one in client.turn(turn).events()]
    return [(one.decision.by, one.decision.reason) for one in facts if isinstance(one, Decided)]


@pytest.mark.table(1)
@pytest.mark.accepts("H40", "H44")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_turn_is_started_decided_about_and_read_with_tools(
    runtime: Runtime, mode: str
) -> None:
    """With a handshake and without, each request in another process; a question is answered in
    another one than it was asked in.
    """
    user = User(approve=True)
    async with gateways(runtime, lost=asks("Done.")) as (client, one, other):
        async with assistant(one, other, user=user, mode=mode) as mcp:
            asked = {"agent": "desk", "task": "lost", "id": f"m40-{mode}"}
            started = [await use(mcp, "start_turn", **asked) for _ in range(2)]
            seen = await use(mcp, "turn_result", turn=f"m40-{mode}")
            [waiting] = seen["waiting_calls"]
            named = {"turn": seen["turn"], "call": waiting["call"], "digest": waiting["digest"]}
            await use(mcp, "steer_turn", turn=f"m40-{mode}", text="Be quick.")
            await use(mcp, "approve_call", **named, reason="fine")
            ended = await use(mcp, "turn_result", turn=f"m40-{mode}")
            status = await use(mcp, "turn_status", turn=f"@acme/m40-{mode}")
        by = await deciders(client, f"@acme/m40-{mode}")

    assert [one["turn"] for one in started] == [f"@acme/m40-{mode}"] * 2
    assert by == [("anna@example.com", "fine")]
    assert (ended["outcome"], ended["output"]) == ("completed", "Done.")
    assert status == ended
    question = f'Turn "@acme/m40-{mode}" wants to call refund with {{"euros": 40}}. Let it run?'
    assert user.asked == ([question] if mode == "auto" else [])


@pytest.mark.table(1)
@pytest.mark.accepts("H143")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_gateway_declares_tools_and_tasks_alone(runtime: Runtime, mode: str) -> None:
    """Whichever revision the client speaks."""
    async with gateways(runtime) as (_, one, _), assistant(one, mode=mode) as mcp:
        declared = mcp.server_capabilities.model_dump(exclude_none=True)
        with pytest.raises(MCPError) as none:
            await mcp.list_prompts()
        tools = (await mcp.list_tools()).tools

    assert set(declared) - {"extensions"} == {"tools"}
    assert none.value.error.code == METHOD_NOT_FOUND
    assert tools


@pytest.mark.slow
@pytest.mark.accepts("H41", "H42")
async def test_turn_is_a_task_that_any_process_tells(runtime: Runtime) -> None:
    """`start_turn` returns the task, whose questions the user answers, and then its result."""
    async with gateways(runtime, lost=asks("Done."), other=asks("Not paid.")) as (
        client,
        one,
        other,
    ):
        yes, no = User(approve=True, reason="fine"), User(approve=False, reason="too much")
        tasks = WithTasks(yes), WithTasks(no)
        async with (
            assistant(one, other, user=yes, extensions=[tasks[0]]) as first,
            assistant(one, other, user=no, extensions=[tasks[1]]) as second,
        ):
            ended = await use(first, "start_turn", agent="desk", task="lost", id="m41-1")
            denied = await use(second, "start_turn", agent="desk", task="other")
            [[begun], [random]] = (one.created for one in tasks)
            task = await ask(first.session, "tasks/get", "m41-1")
            late = await ask(first.session, "tasks/update", "m41-1", {"unknown": YES})
            others = await use(second, "turn_status", turn="m41-1")
        by = [await deciders(client, one.task_id) for one in (begun, random)]

    assert (begun.task_id, begun.ttl_ms, begun.poll_interval_ms) == ("@acme/m41-1", None, 2000)
    assert begun.status in ("working", "input_required")
    assert random.task_id.startswith("@acme/desk/")
    assert (ended["outcome"], ended["output"], ended) == ("completed", "Done.", others)
    assert denied["output"] == "Not paid."
    assert by == [[("anna@example.com", "fine")], [("anna@example.com", "too much")]]
    assert yes.asked == ['Turn "@acme/m41-1" wants to call refund with {"euros": 40}. Let it run?']
    assert (task["resultType"], task["taskId"], task["status"]) == (
        "complete",
        "@acme/m41-1",
        "completed",
    )
    assert task["result"]["structuredContent"] == ended
    assert not task["result"]["isError"]
    assert task["ttlMs"] >= 3_600_000  # the namespace keeps it for at least an hour
    assert late == {"resultType": "complete"}


@pytest.mark.accepts("H42", "H43")
async def test_question_of_a_task_is_answered_once_or_dismissed(runtime: Runtime) -> None:
    """A delegate's too. A dismissed one waits on, a bad answer decides nothing, and a late one is
    ignored. A task that is cancelled, or whose turn fails, says so.
    """
    lead = Agent(name="lead", model="lead", delegates=["desk"])
    models = {
        "lead": ByTask({"go": delegates("Pay."), "stop": delegates("Wait.")}),
        "desk": ByTask(
            {
                "Pay.": asks("Paid."),
                "Wait.": asks(),
                "bad": ScriptedModel(fails(LLMAuthError("no"))),
            }
        ),
    }
    async with runtime([lead, DESK], model=models) as client, served(client) as http:
        user = User()
        started = [
            (await client.start(agent, task, id=f"@acme/m42-{task}")).id
            for agent, task in (("lead", "go"), ("lead", "stop"), ("desk", "bad"))
        ]
        async with assistant(http, user=user, extensions=[WithTasks()]) as mcp:
            session = mcp.session
            asked = await until(session, started[0], "input_required")
            [(key, question)] = asked["inputRequests"].items()
            refused = [
                await refusal(session, "tasks/update", started[0], responses={key: bad})
                for bad in ({"action": "accept", "content": {"approve": "yes"}}, 5, {"action": "x"})
            ]
            await ask(session, "tasks/update", started[0], {key: {"action": "cancel"}})
            still = await ask(session, "tasks/get", started[0])
            for answer in (YES, NO):
                await ask(session, "tasks/update", started[0], {key: answer})
            ended = await until(session, started[0], "completed")
            await until(session, started[1], "input_required")
            await ask(session, "tasks/cancel", started[1])
            cancelled = await until(session, started[1], "cancelled")
            await ask(session, "tasks/cancel", started[1])
            failed = await until(session, started[2], "completed")
        by = await deciders(client, "@acme/m42-go/desk-1")

    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == (
        'Turn "@acme/m42-go/desk-1" wants to call refund with {"euros": 40}. Let it run?'
    )
    assert question["params"]["requestedSchema"]["required"] == ["approve"]
    assert [code for code, _ in refused] == [-32602] * 3
    assert all(f"the response to {key} is not valid" in text for _, text in refused)
    assert still["inputRequests"] == asked["inputRequests"]
    assert by == [("anna@example.com", "")]
    assert ended["result"]["structuredContent"]["output"] == "All paid."
    assert cancelled["statusMessage"] == "the turn was cancelled: by anna@example.com"
    assert "result" not in cancelled
    assert failed["result"]["isError"]
    assert failed["result"]["structuredContent"]["error"].startswith("LLM_AUTH: ")


@pytest.mark.slow
@pytest.mark.accepts("H41", "H42")
async def test_client_gets_only_what_it_can_handle(runtime: Runtime) -> None:
    """Without the extension no task; without forms, or the permission, no question."""
    async with gateways(runtime, one=asks("Done.")) as (client, http, _):
        async with (
            assistant(http) as plain,
            assistant(http, extensions=[WithTasks()]) as silent,
            assistant(http, user=User(), extensions=[WithTasks()], name="rita") as reader,
            assistant(http, mode="legacy") as old,
        ):
            view = await use(plain, "start_turn", agent="desk", task="one", id="m41-one")
            await use(plain, "turn_result", turn="m41-one")
            refused = [
                await refusal(one.session, method, "m41-one")
                for one in (plain, old)
                for method in ("tasks/get", "tasks/cancel")
            ]
            seen = [await ask(one.session, "tasks/get", "m41-one") for one in (silent, reader)]
            offered = [one.server_capabilities.extensions or {} for one in (plain, old)]
        await client.turn("@acme/m41-one").cancel()

    assert (view["turn"], view["state"]) == ("@acme/m41-one", "running")
    assert refused[0] == (
        -32021,
        f"the request needs the extension {TASKS}, which the client does not declare",
    )
    assert [code for code, _ in refused] == [-32021, -32021, -32601, -32601]
    assert [(one["status"], one["ttlMs"]) for one in seen] == [("working", None)] * 2
    assert not any("inputRequests" in one for one in seen)
    assert "waits for approval" in seen[0]["statusMessage"]
    assert TASKS in offered[0]


@pytest.mark.slow
@pytest.mark.accepts("H44")
async def test_tenant_and_permissions_are_those_of_the_gateway(runtime: Runtime) -> None:
    """A turn of another tenant is not found, and nothing is done without the permission."""
    async with gateways(runtime, one=asks()) as (client, http, _):
        turn = await client.start("desk", "one", id="@acme/m44-one")
        status = await turn.wait(timeout=60)
        [pending] = [one.call for one in status.waits if one.call]
        named = {"turn": turn.id, "call": pending.call_id, "digest": pending.token}
        acts: dict[str, dict[str, Any]] = {
            "turn_status": {"turn": turn.id},
            "turn_result": {"turn": turn.id},
            "steer_turn": {"turn": turn.id, "text": "Hello."},
            "cancel_turn": {"turn": turn.id},
            "add_budget": {"turn": turn.id, "more": {"tokens": 5}},
            "resume_turn": {"turn": turn.id},
            "approve_call": named,
            "deny_call": named,
            "settle_call": {**named, "settlement": "done"},
            "answer_call": {**named, "answer": "yes"},
        }
        starts: dict[str, Any] = {"agent": "desk", "task": "one", "id": "m44-two"}
        async with (
            assistant(http, name="otto", user=User(), extensions=[WithTasks()]) as otto,
            assistant(http, name="rita", user=User(), extensions=[WithTasks()]) as rita,
        ):
            found = {name: await use(otto, name, **act) for name, act in acts.items()}
            hidden = [
                await refusal(otto.session, method, turn.id, **more)
                for method, more in TASK_REQUESTS.items()
            ]
            listed = [(await use(one, "list_turns"))["result"] for one in (otto, rita)]
            lacking = {name: await use(rita, name, **act) for name, act in acts.items()}
            lacking["start_turn"] = await use(rita, "start_turn", **starts)
            forbidden = [
                await refusal(rita.session, method, turn.id, **TASK_REQUESTS[method])
                for method in ("tasks/update", "tasks/cancel")
            ]
        async with httpx.AsyncClient(base_url=http.base_url, timeout=60) as nobody:
            unknown = [
                await nobody.post("/mcp", json={"jsonrpc": "2.0"}, headers=headers)
                for headers in ({}, as_("nobody"))
            ]
        after = await client.turn(turn.id).status()
        started = [one.id async for one in client.turns(id_prefix="@acme/m44-")]
        await turn.cancel()

    for one in found.values():
        assert one["refused"].startswith("TURN_NOT_FOUND: there is no turn '@other/@acme/m44-one'")
    assert [code for code, _ in hidden] == [-32602] * 3
    assert listed[0] == []
    assert all(one["id"].startswith("@acme/") for one in listed[1])
    allowed = {name for name, one in lacking.items() if "refused" not in one}
    assert allowed == {"turn_status", "turn_result"}
    refused = {one["refused"].partition(":")[0] for one in lacking.values() if "refused" in one}
    assert refused == {"FORBIDDEN"}
    assert {code for code, _ in forbidden} == {-32600}
    assert [told(one) for one in unknown] == [(401, "UNAUTHENTICATED")] * 2
    assert unknown[0].headers["www-authenticate"] == "Bearer"
    assert after.waits == status.waits
    assert started in ([], [turn.id])  # the list may lag


TASK_REQUESTS: dict[str, dict[str, Any]] = {
    "tasks/get": {},
    "tasks/update": {"responses": {}},
    "tasks/cancel": {},
}


@pytest.mark.slow
@pytest.mark.accepts("H44")
async def test_tool_tells_nothing_to_who_may_not_read(runtime: Runtime) -> None:
    """Also one that does something. A task can be cancelled, which returns nothing."""
    may = frozenset[Permission]({"start", "control", "decide", "budget"})
    async with (
        runtime(DESK, model=ByTask({})) as client,
        served(client, lambda _: Caller("robot", "acme", may)) as http,
        assistant(http, user=User(), extensions=[WithTasks()]) as mcp,
    ):
        turn = await client.start("desk", "one", delay=timedelta(hours=1), id="@acme/m44-blind")
        refused = [
            await use(mcp, "start_turn", agent="desk", task="one", id="m44-blind"),
            await use(mcp, "steer_turn", turn="m44-blind", text="Hello."),
            await use(mcp, "add_budget", turn="m44-blind", more={"tokens": 5}),
        ]
        hidden = await refusal(mcp.session, "tasks/get", "m44-blind")
        nothing = await ask(mcp.session, "tasks/cancel", "m44-blind")
        status = await turn.wait(timeout=60)

    assert refused == [{"refused": "FORBIDDEN: this needs the permission 'read'"}] * 3
    assert hidden == (-32600, "FORBIDDEN: this needs the permission 'read'")
    assert nothing == {"resultType": "complete"}
    assert status.error is not None
    assert status.error.message == "the turn was cancelled: by robot"


@pytest.mark.accepts("H44")
@pytest.mark.slow
async def test_state_of_a_question_is_of_its_caller_alone(runtime: Runtime) -> None:
    """Another caller cannot go on with it, nor can it be used for another call."""
    async with gateways(runtime, one=asks()) as (client, http, other):
        turn = await client.start("desk", "one", id="@acme/m44-sealed")
        status = await turn.wait(timeout=60)
        [pending] = [one.call for one in status.waits if one.call]
        named = {"turn": turn.id, "call": pending.call_id, "digest": pending.token}
        async with (
            assistant(http, user=User()) as anna,
            assistant(other, user=User(), name="root") as root,
        ):
            asked = await anna.session.call_tool("approve_call", named, allow_input_required=True)
            assert isinstance(asked, InputRequiredResult)
            assert asked.input_requests
            yes = User(approve=True).answer
            answers: InputResponses = dict.fromkeys(asked.input_requests, yes)
            refused = []
            for who, arguments, state in (
                (root, named, asked.request_state),
                (anna, {**named, "reason": "x"}, asked.request_state),
                (anna, named, "v1.forged"),
            ):
                with pytest.raises(MCPError) as error:
                    await who.session.call_tool(
                        "approve_call", arguments, input_responses=answers, request_state=state
                    )
                refused.append(error.value.error.code)
        after = await client.turn(turn.id).status()
        await turn.cancel()

    assert refused == [-32602] * 3
    assert after.waits == status.waits


@pytest.mark.accepts("H45")
async def test_bad_input_is_refused_and_nothing_is_started(runtime: Runtime) -> None:
    """Bad JSON and messages, other sites, and strange ids; the server continues."""
    async with gateways(runtime) as (client, http, _):
        headers = {"Accept": "application/json, text/event-stream", **as_("anna")}
        modern = {**headers, "MCP-Protocol-Version": "2026-07-28"}
        json = {**modern, "Content-Type": "application/json"}
        deep = b"[" * 100_000
        bad = [
            await http.post("/mcp", content=content, headers=json)
            for content in (b"", b"{", b"[]", b"5", b"\xff", deep, b'{"jsonrpc": "2.0", "id": 1}')
        ]
        huge = [
            await http.post("/mcp", content=content, headers=json)
            for content in (b" " * 5_000_000, MANY_VALUES)
        ]
        text = await http.post("/mcp", content=b"{}", headers={**modern, "Content-Type": "text/x"})
        elsewhere = await http.post(
            "/mcp", content=b"{}", headers={**json, "Origin": "https://evil.example"}
        )
        others = [await http.request(method, "/mcp") for method in ("GET", "DELETE", "PUT")]
        strange = ("", " ", "x" * 2000, "a\nb", "ü", "no such turn", "../@other/x")
        async with assistant(http, user=User(), extensions=[WithTasks()]) as mcp:
            unknown = [await refusal(mcp.session, "tasks/get", one) for one in strange]
            wrong = [
                await use(mcp, "start_turn", agent="desk", task="one", **more)
                for more in (
                    {"id": "m45-1/events"},
                    {"id": ""},
                    {"id": "m45-" + "x" * 200},
                    {"id": "m45-2", "budget": {"usd": "much"}},
                    {"id": "m45-3", "max_iterations": 0},
                )
            ]
            wrong.append(await use(mcp, "turn_result", turn="x", wait_s=-1))
            wrong.append(await use(mcp, "no_such_tool"))
        started = [one async for one in client.turns(id_prefix="@acme/m45")]

    assert [one.status_code for one in bad] == [400] * 7
    assert all(one.json()["error"]["code"] in (-32700, -32600) for one in bad)
    assert [told(one) for one in huge] == [(413, "TOO_LARGE")] * 2
    assert (text.status_code, elsewhere.status_code) == (400, 403)
    assert [told(one) for one in others] == [(405, "METHOD_NOT_ALLOWED")] * 3
    assert {code for code, _ in unknown} == {-32602}
    assert all("refused" in one for one in wrong), wrong
    assert started == []


@pytest.mark.slow
@pytest.mark.accepts("H46")
async def test_calls_that_wait_are_counted(runtime: Runtime) -> None:
    """Among the streams of the caller, until they end or are given up. Others are answered."""
    async with (
        runtime(DESK, model=ByTask({})) as client,
        served(client, max_streams_of_caller=1) as http,
        assistant(http) as mcp,
    ):
        asked = {"agent": "desk", "task": "one", "id": "m46-one", "delay": "PT1H"}
        await use(mcp, "start_turn", **asked)
        waits = asyncio.create_task(use(mcp, "turn_result", turn="m46-one"))
        refused = await result_once(mcp, "m46-one", is_refused=True)
        seen = await use(mcp, "turn_status", turn="m46-one")
        waits.cancel()
        given = await result_once(mcp, "m46-one", is_refused=False)
        await use(mcp, "cancel_turn", turn="m46-one")

    assert refused["refused"].startswith("TOO_MANY_REQUESTS: 1 streams and long polls of this")
    assert seen == given


async def result_once(mcp: Client, turn: str, *, is_refused: bool) -> Any:
    """What `turn_result` answers without a wait, when it is refused, or no longer is."""
    async with asyncio.timeout(60):
        while True:
            found = await use(mcp, "turn_result", turn=turn, wait_s=0)
            if ("refused" in found) == is_refused:
                return found
            await asyncio.sleep(0.05)


@pytest.mark.accepts("H46")
async def test_without_the_extra_there_is_no_mcp(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other routes are there. With it, the log stays as it is configured."""
    async with runtime(DESK, model=ByTask({})) as client:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "mcp", None)
            without = paths(app(client, by_name))
        root = logging.getLogger()
        with monkeypatch.context() as patch:
            patch.setattr(root, "handlers", [])
            before = root.level
            async with served(client) as http:
                answered = await http.post("/mcp", json={})
            after = (root.handlers, root.level)
        found = paths(app(client, by_name))

    assert found - without == {"/mcp"}
    assert (answered.status_code, after) == (400, ([], before))


def paths(application: Starlette) -> set[str]:
    """The paths that an application answers."""
    return {one.path for one in application.routes if isinstance(one, Route)}
