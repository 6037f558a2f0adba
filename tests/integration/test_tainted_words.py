"""What an agent must not say, looked for on every surface.

The answer of a guarded agent is refused; its guarded delegates have an answer refused, and fail
with words beside their calls; a policy and a person deny calls. The tables say who sees which.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_core import to_json
from temporalio.client import WorkflowHandle

from perdure import Agent, Allow, Deny, OutputGuardrail, ProposedCall, RequireApproval, errors, tool
from perdure.clients import Session, Turn
from perdure.clients.gateway.application import operations
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker
from perdure.worker.telemetry import Telemetry

from ..conftest import RecordingClient, Runtime
from .gateway import messages, served
from .test_web_ui import card_of

REFUSED = "canary-refused"
DELEGATE = "canary-delegate"
BESIDE = "canary-beside"
POLICY = "canary-policy"
PERSON = "canary-person"
CANARIES = (REFUSED, DELEGATE, BESIDE, POLICY, PERSON)
ASKED = {POLICY, PERSON}
"""The arguments of denied calls: whoever follows the turn sees what was asked for."""

STREAMS = {"watch_turn", "watch_session"}
HTTP = {"get_turn_messages": ASKED, "get_messages": ASKED, "watch_turn": {REFUSED}}
"""What the operations on a turn or on a session tell; those that are not named tell nothing of it.

`watch_turn` has live text, which is not checked, unless it is left out.
"""


@tool
def refund(note: str) -> str:
    """Pay back."""
    return "paid"


def rules(proposed: ProposedCall) -> Allow | Deny | RequireApproval:
    """Deny one call, and ask a person about another one."""
    if POLICY in str(proposed.arguments):
        return Deny("not allowed")
    return RequireApproval() if PERSON in str(proposed.arguments) else Allow()


def delegated(agent: str) -> Any:
    return calls(call("delegate_to_agent", agent=agent, task="help"))


CHECKED = OutputGuardrail(lambda report: "canary" not in str(report.output))


def app(telemetry: Telemetry | None = None) -> AgentWorker:
    """Guarded agents."""
    given: dict[str, Any] = {"tools": [refund], "middleware": [CHECKED]}
    kid = Agent(name="kid", model="scripted:k", **given)
    busy = Agent(name="busy", model="scripted:b", **given, max_iterations=1, on_exhausted="fail")
    desk = Agent(name="desk", model="scripted:d", **given, policy=rules, delegates=["kid", "busy"])
    return AgentWorker([desk, kid, busy], telemetry=telemetry)


def script(*asked: str, turns: int = 1) -> dict[str, ScriptedModel]:
    """The models of turns that make these calls and are refused; the last one is followed by one
    that answers.
    """
    desk = [
        *(calls(call("refund", note=note)) for note in asked),
        delegated("kid"),
        delegated("busy"),
        says(f"It is {REFUSED}."),
    ]
    busy = calls(call("refund", note="x"), text=f"It is {BESIDE}.")
    return {
        "desk": ScriptedModel(*desk * turns, says("Hello.")),
        "kid": ScriptedModel(*[says(f"It is {DELEGATE}.")] * turns),
        "busy": ScriptedModel(*[busy] * turns),
    }


def canaries(seen: object) -> set[str]:
    """The canaries in a text, in bytes, or in a value."""
    if isinstance(seen, bytes):
        seen = seen.decode(errors="replace")
    text = seen if isinstance(seen, str) else f"{seen!r} {to_json(seen, fallback=repr).decode()}"
    return {one for one in CANARIES if one in text}


@dataclass
class Scene:
    """Two turns of a session: the first one is refused, the second one answers."""

    client: RecordingClient
    http: httpx.AsyncClient
    session: Session
    turn: Turn[Any]
    models: Mapping[str, ScriptedModel]
    error: errors.PerdureError
    asked: dict[str, object] = field(default_factory=dict)

    @property
    def run(self) -> WorkflowHandle[Any, Any]:
        return self.client.temporal.get_workflow_handle(self.turn.id)

    async def rest(self, name: str, path: str, **query: Any) -> str:
        """What an operation tells of the session and its first turn."""
        kind, _, rest = path.removeprefix("/v1/").partition("/{id:path}")
        own = self.session.id if kind == "sessions" else self.turn.id
        path = f"/v1/{kind}/{own.removeprefix('@acme/')}{rest}"
        path = path.replace("{message_id}", "m-1")
        if name not in STREAMS:
            return (await self.http.get(path)).text
        last = {"watch_turn": "turn_ended", "watch_session": "session_closed"}[name]
        told = []
        async with contextlib.aclosing(messages(self.http, path, **query)) as stream:  # type: ignore[type-var]
            async for _, data in stream:
                told.append(data)
                if data.get("kind") == last:
                    break
        return str(told)


@contextlib.asynccontextmanager
async def played(runtime: Runtime, telemetry: Telemetry | None = None) -> AsyncIterator[Scene]:
    """The scene, after its end."""
    models = script(POLICY, PERSON)
    async with runtime(app(telemetry), model=models) as client, served(client) as http:
        session = client.session("@acme/tainted", agent="desk")
        turn = await (await session.say("Help.", id="m-1")).turn()
        await turn.wait(timedelta(seconds=30))
        [waiting] = await turn.pending_approvals()
        asked: dict[str, object] = {"approver": waiting, "approvals over HTTP": None}
        asked["approvals over HTTP"] = (await http.get("/v1/approvals")).text
        await turn.deny(waiting, "no")
        with pytest.raises(errors.GuardrailError) as caught:
            await turn.result()
        await (await session.say("And now?")).result()
        await session.close()
        async for _ in session.events():
            pass  # until it is closed
        yield Scene(client, http, session, turn, models, caught.value, asked)


def rows() -> dict[str, str]:
    """The operations that tell something of one turn or of one session, with their paths."""
    return {
        one.name: one.path
        for one in operations()
        if one.method == "GET" and one.path.startswith(("/v1/turns/{", "/v1/sessions/{"))
    }


@pytest.mark.accepts("G26")
@pytest.mark.slow
async def test_what_was_refused_or_denied_is_where_it_is_documented_over_http(
    runtime: Runtime,
) -> None:
    """Every operation of the gateway that reads a turn or a session, however many there are:
    transcripts have what was asked for, live text what was refused, and nothing else has it.
    """
    async with played(runtime) as scene:
        told = {name: await scene.rest(name, path) for name, path in rows().items()}
        quiet = await scene.rest("watch_turn", rows()["watch_turn"], live="false")
        lists = {
            path: (await scene.http.get(path)).text
            for path in ("/v1/turns", "/v1/sessions", "/v1/approvals")
        }

    assert {name: canaries(text) for name, text in told.items()} == {
        name: HTTP.get(name, set()) for name in rows()
    }
    assert canaries(quiet) == set()
    assert [path for path, text in lists.items() if canaries(text)] == []


@pytest.mark.accepts("G26")
async def test_what_was_refused_or_denied_is_where_it_is_documented(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may decide sees the arguments, who follows the turn sees what was asked for, and nobody
    sees what was refused: transcripts, models, lists, memo, card, log and spans without content.
    """
    caplog.set_level(logging.INFO, "perdure")
    spans = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    async with played(runtime, Telemetry(tracer_provider=tracers)) as scene:
        client, session, turn = scene.client, scene.session, scene.turn
        told: dict[str, tuple[object, set[str]]] = {
            "approver": (scene.asked["approver"], {PERSON}),
            "approvals over HTTP": (scene.asked["approvals over HTTP"], {PERSON}),
            "report": (scene.error.report, ASKED),
            "error": (scene.error.to_dict(), set()),
            "messages of the session": (await session.messages(), ASKED),
            "conversation": (await session.conversation(), ASKED),
            "events of the session": ([one async for one in session.events()], ASKED),
            "model, next turn": (scene.models["desk"].requests[-1], ASKED),
            "model, same turn": (scene.models["desk"].requests[4], ASKED),
            "model of a delegate": (scene.models["kid"].requests[0], set()),
            "status": (await turn.status(), set()),
            "texts of events": ([one.text async for one in turn.events()], set()),
            "turns": ([one async for one in client.list()], set()),
            "sessions": ([one async for one in client.sessions()], set()),
            "card": (await card_of(client.temporal, turn.id), set()),
            "memo": (str(await (await scene.run.describe()).memo()), set()),
        }
    log = "".join(caplog.handler.format(one) + repr(vars(one)) for one in caplog.records)
    told["log"] = (log, set())
    told["spans"] = ("".join(one.to_json() for one in spans.get_finished_spans()), set())

    assert {name: canaries(seen) for name, (seen, _) in told.items()} == {
        name: expected for name, (_, expected) in told.items()
    }
