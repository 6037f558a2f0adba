"""What an agent must not say, looked for on every surface.

The answer of a guarded agent is refused, and an answer before it, after which it reads a message of
its user, is not checked. Its guarded delegates have an answer refused, fail with words beside their
calls, decline to answer, and give an answer of the wrong type; a policy and a person deny calls.
The provider of another delegate sends back its key, and a tool returns an image. The tables say who
sees which.
"""

from __future__ import annotations

import contextlib
import io
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import WorkflowHandle
from temporalio.worker import Worker

from perdure import errors
from perdure.clients import Session, Turn
from perdure.clients.cli.drawing.csv_rows import CsvRows
from perdure.clients.gateway.application import operations
from perdure.testing import ScriptedModel
from perdure.worker import AgentWorker, PerdurePlugin
from perdure.worker.telemetry import Telemetry

from ...conftest import RecordingClient, Runtime
from ...support.gateway.served import messages, served
from ...support.refused_words import (
    ASKED,
    BESIDE,
    EARLY,
    PERSON,
    POLICY,
    REFUSED,
    TRANSCRIPT,
    app,
    canaries,
    script,
)
from ...support.web_ui import card_of

STREAMS = {"watch_turn", "watch_session"}
HTTP = {
    "get_turn_messages": TRANSCRIPT,
    "get_messages": TRANSCRIPT,
    "watch_turn": {REFUSED, EARLY},
}
"""What the operations on a turn or on a session tell; those that are not named tell nothing of it.

`watch_turn` has live text, which is not checked, unless it is left out.
"""
INCLUDED = {"task": set(), "results": set(), "errors": set(), "arguments": ASKED}
"""What the events of a turn tell without live text, by the private fields that are included."""
BELOW = {"kid-1": set(), "busy-2": {BESIDE}, "shy-3": set(), "counter-4": set(), "locked-5": set()}
"""What the messages of the delegates tell: what is said beside calls is no answer."""


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
    def own_turn(self) -> str:
        """The id of the first turn, as its tenant has it."""
        return self.turn.id.removeprefix("@acme/")

    @property
    def run(self) -> WorkflowHandle[Any, Any]:
        return self.client.temporal.get_workflow_handle(self.turn.id)

    async def rest(self, name: str, path: str, **query: Any) -> str:
        """What an operation tells of the session and its first turn."""
        kind, _, rest = path.removeprefix("/v1/").partition("/{id:path}")
        own = self.session.id.removeprefix("@acme/") if kind == "sessions" else self.own_turn
        path = f"/v1/{kind}/{own}{rest}"
        path = path.replace("{message_id}", "m-1")
        if name not in STREAMS:
            return (await self.http.get(path, params=query)).text
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
        session = client.session(f"@acme/tainted-{secrets.token_hex(4)}", agent="desk")
        turn = await (await session.say("Help.", id="m-1")).turn()
        await turn.wait(timedelta(seconds=90))
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
        watched = {
            include: await scene.rest(
                "watch_turn", rows()["watch_turn"], live="false", include=include
            )
            for include in INCLUDED
        }
        below = {
            name: (await scene.http.get(f"/v1/turns/{scene.own_turn}/{name}/messages")).text
            for name in BELOW
        }
        lists = {
            path: (await scene.http.get(path)).text
            for path in ("/v1/turns", "/v1/sessions", "/v1/approvals")
        }

    assert {name: canaries(text) for name, text in told.items()} == {
        name: HTTP.get(name, set()) for name in rows()
    }
    assert {include: canaries(text) for include, text in watched.items()} == INCLUDED
    assert {name: canaries(text) for name, text in below.items()} == BELOW
    assert [path for path, text in lists.items() if canaries(text)] == []


@pytest.mark.accepts("G26", "E171")
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
            "report": (scene.error.report, TRANSCRIPT),
            "error": (scene.error.to_dict(), set()),
            "messages of the session": (await session.messages(), TRANSCRIPT),
            "conversation": (await session.conversation(), TRANSCRIPT),
            "events of the session": ([one async for one in session.events()], TRANSCRIPT),
            "model, next turn": (scene.models["desk"].requests[-1], TRANSCRIPT),
            "model, same turn": (scene.models["desk"].requests[8], TRANSCRIPT),
            "model, after a message": (scene.models["desk"].requests[9], TRANSCRIPT | {EARLY}),
            "model of a delegate": (scene.models["kid"].requests[0], set()),
            "status": (await turn.status(), set()),
            "texts of events": ([one.text async for one in turn.events()], set()),
            "turns": ([one async for one in client.turns()], set()),
            "sessions": ([one async for one in client.sessions()], set()),
            "card": (await card_of(client.temporal, turn.id), set()),
            "memo": (str(await (await scene.run.describe()).memo()), set()),
        }
    log = "".join(caplog.handler.format(one) + repr(vars(one)) for one in caplog.records)
    told["log"] = (log, set())
    assert "Incorrect API key provided: [key]." in log
    told["spans"] = ("".join(one.to_json() for one in spans.get_finished_spans()), set())

    assert {name: canaries(seen) for name, (seen, _) in told.items()} == {
        name: expected for name, (_, expected) in told.items()
    }


@pytest.mark.accepts("G26")
@pytest.mark.slow
async def test_what_was_refused_or_denied_is_not_in_the_results_of_a_batch(
    runtime: Runtime,
) -> None:
    """As values, as rows of CSV and over HTTP."""
    async with runtime(app(), model=script(POLICY)) as client, served(client) as http:
        batch = await client.start_batch("@acme/tainted-batch", "desk", ["Help."])
        status = await batch.wait()
        results = [one async for one in batch.results()]
        rows = io.StringIO()
        sheet = CsvRows(rows)
        for one in results:
            sheet.write(one)
        told = {
            "status": status,
            "results": results,
            "CSV": rows.getvalue(),
            "HTTP": (await http.get("/v1/batches/tainted-batch")).text,
            "results over HTTP": (await http.get("/v1/batches/tainted-batch/results")).text,
        }

    assert "GUARDRAIL" in rows.getvalue()
    assert "GUARDRAIL" in str(told["results over HTTP"])
    assert {name: canaries(seen) for name, seen in told.items()} == {name: set() for name in told}


@pytest.mark.accepts("G26")
@pytest.mark.slow
async def test_what_was_refused_or_denied_is_not_told_to_a_workflow(
    runtime: Runtime, workflows: Any
) -> None:
    """To one of a user, which runs the turn as its child."""
    queue = f"theirs-{secrets.token_hex(4)}"
    theirs = AgentWorker(workflows.CLERK, providers={"scripted": ScriptedModel()})
    async with (
        runtime(app(), model=script(POLICY)) as client,
        Worker(
            client.temporal,
            task_queue=queue,
            workflows=[workflows.Clueless],
            plugins=[PerdurePlugin(theirs)],
        ),
    ):
        told = await client.temporal.execute_workflow(
            "Clueless", client.task_queue, id=queue, task_queue=queue
        )

    assert "GUARDRAIL" in told
    assert canaries(told) == set()
