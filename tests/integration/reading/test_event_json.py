"""Events for backends: as JSON, complete or for a browser; with the progress of tools, a mark
between past and live events, and cursors that are validated.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import pytest

from perdure import (
    Agent,
    Deny,
    OutputGuardrail,
    ProposedCall,
    RequireApproval,
    ToolContext,
    errors,
    tool,
)
from perdure.clients import CaughtUp, Event, TextBegins, ToolProgress
from perdure.clients.reading.cursors import Cursor
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import Scheduled
from perdure.turn.keys import ToolKey

from ...conftest import Runtime, eventually
from ...support.resets import reset, task_ends

SECRETS = (
    "PROMPT-1",
    "INSTRUCTION-2",
    "ARGUMENT-3",
    "RESULT-4",
    "REASON-5",
    "REFUSED-6",
    "ARGUMENT-7",
)
SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs/assets/events.schema.json").read_text(encoding="utf-8")
)


@tool(requires_approval=True)
def look_up(word: str) -> str:
    """Look a word up."""
    return f"RESULT-4 of {word}"


def no_secrets(answer: Any) -> bool | str:
    """Refuses what names one."""
    return "it names REASON-5" if "REFUSED-6" in str(answer.output) else True


def rules(call: ProposedCall) -> RequireApproval | Deny:
    """Ask for approval, and refuse one word."""
    return Deny("REASON-5") if "ARGUMENT-7" in call.arguments else RequireApproval()


def strictly(view: str) -> dict[str, Any]:
    """The schema of a view, strict about unknown fields."""
    return {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{view}"}], "unevaluatedProperties": False}


@pytest.mark.accepts("E15", "E16")
async def test_events_are_told_as_json_and_to_a_browser_without_what_is_private(
    runtime: Runtime,
) -> None:
    """Both conform to the published schema; the public view has the names of tools, and private
    data only if requested.
    """
    agent = Agent(
        name="clerk",
        model="scripted:clerk",
        instructions="INSTRUCTION-2",
        tools=[look_up],
        policy=rules,
        middleware=[OutputGuardrail(no_secrets)],
    )
    model = ScriptedModel(
        calls(
            call("look_up", word="ARGUMENT-3"), call("look_up", word="ARGUMENT-7"), text="I look."
        ),
        says("REFUSED-6 is the word"),
    )
    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, f"PROMPT-1\n{'more ' * 99}", id="told")
        [wait] = (await turn.wait(60)).waits
        assert wait.call is not None
        await turn.approve(wait.call, reason="REASON-5")
        with pytest.raises(errors.GuardrailError):
            await turn.result()
        events = [event async for event in turn.events()]

    whole, public = [event.to_json() for event in events], [event.public() for event in events]
    everything = [event.public({"task", "arguments", "results", "errors"}) for event in events]
    for view, told in (("event", whole), ("public_event", public), ("public_event", everything)):
        validator = jsonschema.Draft202012Validator(strictly(view))
        assert [
            (one["kind"], error.message) for one in told for error in validator.iter_errors(one)
        ] == []
    assert [secret for secret in SECRETS if secret in json.dumps(public)] == []
    assert [secret for secret in SECRETS if secret not in json.dumps(everything)] == [
        "INSTRUCTION-2",
        "REFUSED-6",
    ]
    assert [secret for secret in SECRETS if secret not in json.dumps(whole)] == []
    assert everything[0]["text"] == f"PROMPT-1\n{'more ' * 99}"
    assert {(one["v"], one["turn"], one["agent"]) for one in public} == {(1, "told", "clerk")}
    scheduled = [
        (one["activity"], one["tool"], one["call_id"], one["step"])
        for one in public
        if one["kind"] == "scheduled"
    ]
    kinds = [one["kind"] for one in public]
    answered = public[kinds.index("model_answered")]
    ids = [one["call_id"] for one in answered["calls"]]  # type: ignore[union-attr,index,call-overload]
    assert (
        scheduled.count(("policy", "look_up", ids[0], 1)),
        ("tool", "look_up", ids[0], 1) in scheduled,
    ) == (1, True)
    assert [one["text"] for one in public if "text" in one] == ["I look."]
    assert public[-1] == {
        **public[-1],
        "kind": "turn_ended",
        "outcome": "failed",
        "error": "GUARDRAIL",
    }
    with pytest.raises(
        errors.InvalidRequestError,
        match="include has 'prompt'; give a set of arguments, errors, results, task",
    ):
        events[0].public({"prompt"})  # type: ignore[arg-type]


@pytest.mark.accepts("E17")
async def test_progress_of_a_tool_is_told_while_it_runs_and_live_goes_on_after_a_cursor(
    runtime: Runtime,
) -> None:
    """Each note once, with its tool; a returning watcher gets no event or text twice, and a mark
    where the past ends.
    """
    gates = [threading.Event(), threading.Event()]

    @tool
    async def index(ctx: ToolContext[Any], book: str) -> str:
        """Index a book."""
        for page, gate in enumerate(gates, 1):
            ctx.heartbeat("page", page)
            await eventually(gate.is_set, "the watcher has seen the page")
        return "done"

    agent = Agent(name="indexer", model="scripted:indexer", tools=[index])
    async with runtime(
        agent, model=ScriptedModel(calls(call("index", book="b"), text="I index."), says("ready"))
    ) as client:
        turn = await client.start(agent, "go")
        first, cursor = [], ""
        async with asyncio.timeout(60):
            async for one in turn.live():
                first.append(one)
                cursor = one.cursor if isinstance(one, Event) else cursor
                if isinstance(one, ToolProgress):
                    gates[0].set()
                    if one.details == ("page", 2):
                        break
            gates[1].set()
            second = [one async for one in turn.live(after=cursor)]
            third = [
                one
                async for one in turn.live(
                    after=second[-1].cursor if isinstance(second[-1], Event) else cursor
                )
            ]
        events = [event async for event in turn.events()]

    progress = [one for one in first if isinstance(one, ToolProgress)]
    [scheduled] = [
        one
        for one in events
        if isinstance(one.fact, Scheduled) and isinstance(one.fact.key, ToolKey)
    ]
    assert scheduled.call is not None
    assert [(one.tool, one.call_id, one.step, one.details) for one in progress[-2:]] == [
        ("index", scheduled.call.id, 1, ("page", 1)),
        ("index", scheduled.call.id, 1, ("page", 2)),
    ]
    assert progress[-1].to_json() == {
        "v": 1,
        "kind": "tool_progress",
        "step": 1,
        "attempt": 1,
        "tool": "index",
        "call_id": scheduled.call.id,
        "details": ["page", 2],
    }
    assert [one for one in (*first, *second) if isinstance(one, Event)] == events
    assert [one for one in (*first, *second) if isinstance(one, str | TextBegins)] == [
        TextBegins(1),
        "I index.",
        TextBegins(2),
        "ready",
    ]
    assert [sum(isinstance(one, CaughtUp) for one in told) for told in (first, second, third)] == [
        1,
        1,
        1,
    ]
    assert third == [CaughtUp()]
    assert all(before.at <= after.at for before, after in pairwise(events))


@pytest.mark.accepts("E18")
async def test_cursor_that_is_not_of_this_run_is_refused(runtime: Runtime) -> None:
    """Before the iteration, so that a server can still answer with an error, and by the iteration;
    the error for a cursor from before a reset says so.
    """
    agent = Agent(name="adder", model="scripted:adder")
    async with runtime(agent, model=ScriptedModel(says("one"), says("two"))) as client:
        turn = await client.start(agent, "go")
        await turn.result()
        cursor = [event async for event in turn.events()][-1].cursor
        again = await reset(client, turn, task_ends(await client.history(turn))[-1])
        await again.result()

        def first_of(watch: Callable[..., AsyncIterator[Any]]) -> Callable[[str], Awaitable[Any]]:
            return lambda after: anext(watch(after=after))

        for check in (again.check_cursor, first_of(again.events), first_of(again.live)):
            with pytest.raises(
                errors.StaleCursorError, match=f"{turn.id}.* was reset or started again since"
            ) as caught:
                await check(cursor)
            with pytest.raises(errors.InvalidRequestError, match="is not a cursor"):
                await check("bad")
        beyond = str(Cursor(await turn.first_run(), await turn.first_run(), 9_999))
        with pytest.raises(errors.InvalidRequestError, match="beyond the end"):
            await anext(turn.live(after=beyond))

    assert (caught.value.code, caught.value.context) == ("STALE_CURSOR", {"turn_id": turn.id})
