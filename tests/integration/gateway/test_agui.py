"""Runs over AG-UI: a real uvicorn, a real server and a real worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("ag_ui", reason="the extra perdure[agui] is not installed")

from ag_ui.core import PROTOCOL_VERSION

from perdure import Agent, Budget, errors, tool
from perdure.clients import AgentClient
from perdure.clients.reading import cursors
from perdure.events import Decided
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says, slowly

from ...conftest import Runtime
from ...support.client_tools import guide
from ...support.delegating import app, delegate, researcher, writer
from ...support.gateway.agui import (
    Told,
    answering,
    asking,
    events,
    official_client,
    run,
    served,
    shown,
    user,
)
from ...support.gateway.served import as_, told


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


@tool
def look_up(order: int) -> str:
    """Find an order."""
    return f"order {order}: a lamp"


DESK = Agent(name="desk", model="main", tools=[refund, look_up], instructions="Be kind.")


@contextlib.asynccontextmanager
async def desk(
    runtime: Runtime, **models: ScriptedModel
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient]]:
    """A client and a gateway of an agent whose models are chosen by the first message."""
    async with runtime(DESK, model=ByTask(models)) as client, served(client) as http:
        yield client, http


def pays(*answers: str) -> ScriptedModel:
    """A model that wants to pay back, and then answers."""
    return ScriptedModel(
        calls(call("refund", euros=40), text="I pay."), *(says(answer) for answer in answers)
    )


async def together(runs: Mapping[str, Coroutine[Any, Any, Told]]) -> dict[str, Told]:
    """The events of several runs at once, by name."""
    return dict(zip(runs, await asyncio.gather(*runs.values()), strict=True))


def brief(told: Told) -> list[tuple[str, str]]:
    """The role and the text of the messages of the last snapshot."""
    return [(one.role, str(one.content)) for one in told.snapshot]


@pytest.mark.accepts("H30")
async def test_thread_of_runs(runtime: Runtime) -> None:
    """Each message is answered once; a run that is asked for again shows what it has said."""
    model = ScriptedModel(
        calls(call("look_up", order=7)),
        says("A lamp.", thinking="It is easy."),
        says("Good bye."),
    )
    async with runtime(DESK, model=model) as client, served(client) as http:
        image = {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}}
        hello = user("What is 7?", "m-1")
        bye = {"id": "m-2", "role": "user", "content": [{"type": "text", "text": "Bye."}, image]}
        first = await run(http, "desk", asking("t1", "r-1", hello))
        again = await run(http, "desk", asking("t1", "r-1", hello))
        second = await run(http, "desk", asking("t1", "r-2", hello, bye, parentRunId="r-1"))
        joined = await run(http, "desk", asking("t1", "r-3"))
        turns = await client.session("@agui/t1").turns()

    assert [one for one in first.kinds if not one.startswith("REASONING")] == [
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
        "STEP_STARTED",
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
        *("STEP_FINISHED", "STEP_STARTED"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("STEP_FINISHED", "RUN_FINISHED"),
    ]
    started, ended = first[0], first.end
    assert (started.thread_id, started.run_id) == ("t1", "r-1")
    assert started.protocol_version == PROTOCOL_VERSION
    assert (ended.thread_id, ended.run_id, ended.outcome.type) == ("t1", "r-1", "success")
    assert (ended.result, first.text) == ("A lamp.", "A lamp.")
    assert [one.delta for one in first.of("REASONING_MESSAGE_CONTENT")] == ["It is easy."]
    assert ended.usage[0].total_tokens == ended.usage[0].input_tokens + ended.usage[0].output_tokens
    assert brief(first) == [("user", "What is 7?")]
    assert first.snapshot[0].id == "m-1"
    assert again.kinds == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert brief(again) == [
        ("user", "What is 7?"),
        ("assistant", "None"),
        ("tool", "order 7: a lamp"),
        ("reasoning", "It is easy."),
        ("assistant", "A lamp."),
    ]
    assert again.snapshot[1].tool_calls[0].id == first.of("TOOL_CALL_START")[0].tool_call_id
    assert again.snapshot[-1].id == first.of("TEXT_MESSAGE_START")[0].message_id
    assert brief(second) == [*brief(again), ("user", "Bye.")]
    assert [one.id for one in second.snapshot[:-1]] == [one.id for one in again.snapshot]
    assert second.text == second.end.result == "Good bye."
    assert second[0].parent_run_id == "r-1"
    assert "images" in second.of("CUSTOM")[0].value[0]
    assert brief(joined) == [*brief(second), ("assistant", "Good bye.")]
    assert [one.messages for one in turns] == [("m-1",), ("m-2",)]
    assert model.call_count == 3


@pytest.mark.accepts("H31", "H4", "H111")
async def test_interrupts_are_approvals(runtime: Runtime) -> None:
    """They are approved with other arguments, denied, and abandoned; who decided is the caller."""
    models = {"one": pays("Paid."), "two": pays("Not paid."), "three": pays("Never mind.")}
    async with desk(runtime, **models) as (client, http):
        asked = await together(
            {
                name: run(http, "desk", asking(f"i-{name}", "r-1", user(name, f"m-{name}")))
                for name in models
            }
        )
        [shown] = asked["two"].interrupts
        stale = denying("i-two", f"{shown.id.rpartition('#')[0]}#000000000000", approved=False)
        not_shown = await http.post("/agui/desk", json=stale)
        payloads = {
            "one": {"approved": True, "editedArgs": {"euros": 5}},
            "two": {"approved": False, "reason": "too much"},
            "three": {},
        }
        inputs = {
            name: answering(f"i-{name}", "r-2", asked[name].interrupts, **payloads[name])
            for name in models
        }
        done = await together({name: run(http, "desk", one) for name, one in inputs.items()})
        again = await run(http, "desk", inputs["one"])
        others = [
            answering("i-one", "r-3", asked["one"].interrupts, **payload)
            for payload in ({"approved": False}, {"approved": True})  # the latter as it was
        ]
        conflicts = [await http.post("/agui/desk", json=one) for one in others]
        turn = client.turn("@agui/i-one/1")
        [decided] = [one.fact async for one in turn.events() if isinstance(one.fact, Decided)]

    [interrupt] = asked["one"].interrupts
    [begun] = asked["one"].of("TOOL_CALL_START")
    assert (interrupt.reason, interrupt.tool_call_id) == ("tool_call", begun.tool_call_id)
    assert timedelta() < datetime.fromisoformat(interrupt.expires_at) - datetime.now(UTC)
    assert set(interrupt.response_schema["properties"]) == {"approved", "editedArgs", "reason"}
    assert interrupt.metadata["perdure"]["arguments"] == '{"euros": 40}'
    assert asked["one"].text == "I pay."
    results = {name: one.of("TOOL_CALL_RESULT")[0] for name, one in done.items()}
    assert {one.tool_call_id for one in results.values()} == {begun.tool_call_id}
    assert results["one"].content.startswith("paid 5 euros")
    assert "too much" in results["two"].content
    assert "TOOL_CALL_START" not in done["one"].kinds
    assert [one.end.outcome.type for one in done.values()] == ["success"] * 3
    assert [one.text for one in done.values()] == ["Paid.", "Not paid.", "Never mind."]
    assert done["one"].of("STEP_STARTED")[0].step_name == "step 1"
    assert (again.kinds[-1], again.end.result) == ("RUN_FINISHED", "Paid.")
    assert [told(one) for one in (*conflicts, not_shown)] == [(409, "APPROVAL_CONFLICT")] * 3
    assert decided.decision.by == "iris@example.com"


@pytest.mark.accepts("H32")
async def test_running_run_is_followed_by_another_process_and_cancelled(runtime: Runtime) -> None:
    """What is said so far comes again, and the disconnect of the first client changes nothing."""
    words = [f"word-{number} " for number in range(400)]
    long = slowly(says("".join(words)), pieces=words, pause=timedelta(milliseconds=100))
    async with desk(runtime, long=ScriptedModel(long)) as (client, http):
        given = asking("c1", "r-1", user("long", "m-1"))
        first = await run(http, "desk", given, until="TEXT_MESSAGE_CONTENT")
        other = AgentClient.from_temporal(client.temporal)
        async with served(other) as elsewhere:
            joined, busy = Told(), None
            async with contextlib.aclosing(events(elsewhere, "desk", given)) as stream:  # type: ignore[type-var]
                async for _, event in stream:
                    joined.append(event)
                    if event.type.value == "TEXT_MESSAGE_CONTENT" and busy is None:
                        busy = await http.post(
                            "/agui/desk", json=asking("c1", "r-2", user("more", "m-2"))
                        )
                        await http.post("/v1/sessions/c1/interrupt", json={"reason": "enough"})

    assert first.text.startswith("word-0 ")
    assert joined.kinds[:3] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STEP_STARTED"]
    assert brief(joined) == [("user", "long")]
    assert joined.text.startswith("word-0 word-1 ")
    assert (joined.end.outcome.type, joined.end.result) == ("cancelled", None)
    assert busy is not None
    assert told(busy) == (409, "SESSION_BUSY")


@pytest.mark.slow
@pytest.mark.accepts("H33")
async def test_run_goes_on_after_every_cursor(runtime: Runtime) -> None:
    """The messages so far and those that follow are all messages, each once."""
    model = ScriptedModel(
        calls(call("look_up", order=1), text="One."),
        calls(call("look_up", order=2), call("look_up", order=3)),
        says("Done."),
    )
    async with runtime(DESK, model=model) as client, served(client) as http:
        given = asking("l1", "r-1", user("all", "m-1"))
        whole = await run(http, "desk", given)
        messages = (await run(http, "desk", given)).snapshot
        other = AgentClient.from_temporal(client.temporal)
        async with served(other) as elsewhere:
            resumed = [await run(elsewhere, "desk", given, cursor) for cursor in whole.ids]
            await run(http, "desk", asking("l2", "r-1", user("all", "m-1")))
            strange = [
                await http.post("/agui/desk", json=one, headers={"Last-Event-ID": cursor})
                for one, cursor in (
                    (asking("l2", "r-1"), whole.ids[0]),
                    (given, "bad"),
                    (given, cursor_at(whole.ids[0], 999)),
                )
            ]

    assert len(whole.ids) > 5
    everything = {message.id: str(message.content) for message in messages}
    for one in resumed:
        assert shown(one) == everything
        assert one.end.result == "Done."
    assert [told(one) for one in strange] == [
        (410, "STALE_CURSOR"),
        *[(422, "INVALID_REQUEST")] * 2,
    ]


@pytest.mark.slow
@pytest.mark.accepts("H32")
async def test_text_of_a_failed_call_is_void(runtime: Runtime) -> None:
    """A snapshot without it comes before the text of the next attempt."""
    gone = slowly(
        fails(errors.LLMUnavailableError("gone")),
        pieces=["I th", "ink, "],
        pause=timedelta(seconds=1.5),
    )
    model = ScriptedModel(gone, says("Done."))
    async with runtime(DESK, model=model) as client, served(client) as http:
        seen = await run(http, "desk", asking("v1", "r-1", user("one", "m-1")))

    assert seen.kinds.count("MESSAGES_SNAPSHOT") == 2
    assert seen.text.startswith("I th")
    assert seen.text.endswith("Done.")
    assert list(shown(seen).values()) == ["one", "Done."]
    assert seen.end.result == "Done."


@pytest.mark.slow
@pytest.mark.accepts("H31")
async def test_turn_that_waits_for_budget_ends_its_run(runtime: Runtime) -> None:
    """No answer of the protocol ends that wait; the REST API does, and the run is followed."""
    spender = Agent(
        name="spender",
        model="main",
        tools=[look_up],
        budget=Budget(model_calls=1),
        on_exhausted="pause",
    )
    model = ScriptedModel(calls(call("look_up", order=1)), says("Done."))
    async with runtime(spender, model=model) as client, served(client) as http:
        given = asking("p1", "r-1", user("one", "m-1"))
        paused = await run(http, "spender", given)
        [interrupt] = paused.interrupts
        resume = [{"interruptId": interrupt.id, "status": "resolved", "payload": True}]
        again = await run(http, "spender", asking("p1", "r-2", resume=resume))
        more = {"budget": {"model_calls": 1}}
        added = await http.post("/v1/turns/p1/1/add-budget", json=more)
        done = await run(http, "spender", given)

    assert (interrupt.reason, interrupt.response_schema) == ("perdure:budget", None)
    assert "not an interrupt that an answer ends" in again.of("CUSTOM")[0].value[0]
    assert [one.id for one in again.interrupts] == [interrupt.id]
    assert added.status_code == 200
    assert done.end.result == "Done."


@pytest.mark.accepts("H35")
@pytest.mark.slow
async def test_delegates_are_subagents(runtime: Runtime) -> None:
    """An interrupt of a delegate suspends it, and the answer lets it go on under the same id."""
    models = {
        "editor": ScriptedModel(delegate("writer", "Pay."), says("It is paid.")),
        "writer": ScriptedModel(calls(call("refund", euros=40)), says("Paid.")),
    }
    both = app(researcher(), writer(tools=[refund]))
    async with runtime(both, model=models) as client, served(client) as http:
        asked = await run(http, "editor", asking("s1", "r-1", user("Pay.", "m-1")))
        answer = answering("s1", "r-2", asked.interrupts, approved=True)
        done = await run(http, "editor", answer)

    [interrupt] = asked.interrupts
    [begun], [goes_on] = asked.of("SUBAGENT_STARTED"), done.of("SUBAGENT_STARTED")
    [suspended], [finished] = asked.of("SUBAGENT_FINISHED"), done.of("SUBAGENT_FINISHED")
    [delegated] = asked.of("TOOL_CALL_START")
    assert (begun.name, begun.parent_tool_call_id) == ("writer", delegated.tool_call_id)
    assert goes_on.subagent_run_id == begun.subagent_run_id == interrupt.subagent_run_id
    assert suspended.outcome.type == "suspended"
    assert suspended.outcome.interrupt_ids == [interrupt.id]
    assert (interrupt.reason, interrupt.tool_call_id) == ("confirmation", None)
    assert interrupt.metadata["perdure"]["tool"] == "refund"
    assert (finished.outcome, finished.result) == (None, "Paid.")
    assert done.end.result == "It is paid."
    assert [bool(one.model) for one in done.end.usage] == [True, False]  # the last is the delegate


def saying(thread: str = "b1", **more: Any) -> dict[str, Any]:
    """The input of a run that says something."""
    return asking(thread, "r-1", user("one", "m-1"), **more)


def denying(thread: str, interrupt: str, **payload: Any) -> dict[str, Any]:
    """The input of a run that answers one interrupt."""
    entry = {"interruptId": interrupt, "status": "resolved", "payload": payload}
    return asking(thread, "r-1", resume=[entry])


NOT_VALID: dict[str, dict[str, Any]] = {
    "/threadId": {"runId": "r-1", "messages": []},
    "/messages/0": asking("b1", "r-1", {"id": "1", "role": "judge", "content": "Guilty."}),
    "/tools/0": saying(tools=[{"name": "a b", "description": "Show."}]),
    "/messages/0/content": asking("b1", "r-1", user(" ", "m-1")),
    "/resume/0/payload": denying("b1", "a#b#c", approved="yes"),
    "/resume/0/payload/editedArgs": denying("b1", "a#b#c", approved=False, editedArgs={}),
}
"""Bodies that are refused, by the place that is not valid."""
REFUSED: tuple[tuple[int, str, dict[str, Any]], ...] = (
    (404, "SESSION_NOT_FOUND", asking("b1", "r-1")),
    (404, "SESSION_NOT_FOUND", denying("b1", "a#b#c", approved=True)),
    (422, "INVALID_REQUEST", saying("x/events")),
    (422, "INVALID_REQUEST", saying("x" * 99)),
    (422, "INVALID_REQUEST", asking("b1", "r-1", user("one", "m\n1"))),
    (422, "INVALID_REQUEST", {**saying("b1"), "resume": denying("b1", "a#b#c")["resume"]}),
)


@pytest.mark.accepts("H34", "H2", "H3")
async def test_bad_input_is_refused_and_tenants_are_apart(runtime: Runtime) -> None:
    """Nothing is begun, and nothing of another tenant is seen or decided."""
    other = Agent(name="other", model="main")
    async with (
        runtime([DESK, other], model=ByTask({"one": pays(), "two": pays()})) as client,
        served(client) as http,
    ):
        invalid = {
            place: await http.post("/agui/desk", json=body) for place, body in NOT_VALID.items()
        }
        refused = [await http.post("/agui/desk", json=body) for _, _, body in REFUSED]
        begun = [one async for one in client.sessions(id_prefix="@agui/b1")]
        asked = await run(http, "desk", saying("b2"))
        [interrupt] = asked.interrupts
        stranger = as_("olga")
        hidden = [
            await http.post("/agui/desk", json=asking(thread, "r-1"), headers=stranger)
            for thread in ("b2", "@agui/b2", "@theirs/../@agui/b2")
        ]
        reader = as_("ivan")
        lacking = [
            await http.post("/agui/desk", json=body, headers=reader)
            for body in (saying("b3"), denying("b2", interrupt.id, approved=True))
        ]
        seen = await run(http, "desk", asking("b2", "r-2"), **reader)
        await run(http, "desk", asking("b2", "r-1", user("two", "m-1")), **stranger)
        theirs = await run(http, "desk", denying("b2", interrupt.id, approved=True), **stranger)
        conflict = await http.post("/agui/other", json=asking("b2", "r-1"))
        unknown = await run(http, "nobody", saying("b4"))
        waits = (await client.turn("@agui/b2/1").status()).waits
        for turn in ("@agui/b2/1", "@theirs/b2/1"):
            await client.turn(turn).cancel()

    assert {told(one) for one in invalid.values()} == {(422, "INVALID_REQUEST")}
    assert [one.json()["errors"][0]["pointer"] for one in invalid.values()] == [
        f"#{place}" for place in NOT_VALID
    ]
    assert [told(one) for one in refused] == [(status, code) for status, code, _ in REFUSED]
    assert begun == []
    assert {told(one) for one in hidden} == {(404, "SESSION_NOT_FOUND")}
    assert {told(one) for one in lacking} == {(403, "FORBIDDEN")}
    assert [one.id for one in seen.interrupts] == [interrupt.id]
    assert "not an interrupt of the last run" in theirs.of("CUSTOM")[0].value[0]
    assert theirs.interrupts[0].id.startswith("@theirs/")
    assert told(conflict) == (409, "TURN_CONFLICT")
    assert (unknown.end.type.value, unknown.end.code) == ("RUN_ERROR", "UNKNOWN_AGENT")
    assert [one.call.call_id for one in waits if one.call] == [interrupt.tool_call_id]


@pytest.mark.slow
@pytest.mark.accepts("H36", "E193")
async def test_client_of_the_protocol(runtime: Runtime) -> None:
    """`@ag-ui/client`, which refuses a stream that breaks the rules of the protocol."""
    found = official_client()
    if found is None:
        pytest.skip("@ag-ui/client is not installed: make mcp-servers")
    node, modules = found
    gone = fails(errors.LLMUnavailableError("gone"))
    models = {
        "desk": ScriptedModel(
            calls(call("refund", euros=40), text="I pay."),
            says("Done.", thinking="Paid."),
            slowly(gone, pieces=["You ", "are "], pause=timedelta(seconds=1.5)),
            says("You are welcome."),
        ),
        "editor": ScriptedModel(
            *(delegate("writer", "Pay."), says("It is paid.")),
            *(delegate("researcher", "Look."), says("It rains."), says("Good bye.")),
        ),
        "researcher": ScriptedModel(
            slowly(gone, pieces=["It sn", "ows."], pause=timedelta(seconds=1.5)), says("Rain.")
        ),
        "writer": ScriptedModel(calls(call("refund", euros=40)), says("Paid.")),
        "guide": ScriptedModel(calls(call("locate"), call("locate")), says("You are in Bern.")),
    }
    agents = app(researcher(), writer(tools=[refund]), DESK, guide(model="guide"))
    async with runtime(agents, model=models) as client, served(client) as http:
        program = str(Path(__file__).parents[2] / "support/gateway/agui_client.js")
        process = await asyncio.create_subprocess_exec(
            *(node, program, str(http.base_url).rstrip("/"), "iris"),
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, "NODE_PATH": modules},
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()

    done = json.loads(out)
    asked, paid, thanked = done["desk"]
    delegated, back = done["editor"]
    assert (asked["interrupts"], delegated["interrupts"]) == ([""], ["@agui/js-2/1/writer-1"])
    assert [one["result"] for one in (paid, thanked, back)] == [
        "Done.",
        "You are welcome.",
        "It is paid.",
    ]
    assert "TOOL_CALL_RESULT" in paid["seen"]
    assert thanked["seen"].count("MESSAGES_SNAPSHOT") == 2  # the second without what does not count
    assert "SUBAGENT_FINISHED" in delegated["seen"]
    roles = [one["role"] for one in done["messages"] if one["role"] != "reasoning"]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert {one["id"]: one for one in done["messages"]} == {
        one["id"]: one for one in done["others"]
    }
    told, last = done["teller"]
    assert told["seen"].count("MESSAGES_SNAPSHOT") == 2  # the second without what does not count
    assert [(one["content"], one["name"]) for one in done["below"]] == [("Rain.", "researcher")]
    assert "CUSTOM" not in last["seen"]  # messages of subagents that come back are no surprise
    assert last["result"] == "Good bye."
    located, found_out = done["guide"]
    assert located["interrupts"] == []
    assert "TOOL_CALL_RESULT" not in located["seen"]
    assert found_out["seen"].count("TOOL_CALL_RESULT") == 2
    assert found_out["result"] == "You are in Bern."


def cursor_at(cursor: str, event: int) -> str:
    """A cursor of the same run at another event."""
    return str(cursors.read(cursor)._replace(event=event))
