"""Run the code blocks of `docs/middleware.md`."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from perdure import Agent, Registry, tool
from perdure.errors import GuardrailError
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ..support.docs.until import until
from .conftest import Tell


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


@contextlib.contextmanager
def server_that_notes() -> Iterator[tuple[str, list[object]]]:
    """A web server on loopback: its address and the JSON that it received."""
    notes: list[object] = []

    class Desk(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            notes.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """No log."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/perdure", notes
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.accepts("A14")
async def test_guardrails_refuse_and_observers_see_as_the_page_says(
    tell: Tell, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task that is not about the handbook, an answer that contains TODO, and a valid one."""
    registry = Registry()
    async with tell("middleware") as story:
        registry.add(await story.defining("researcher"))
        client = await story.works(
            AgentWorker(registry),
            ScriptedModel("TODO", "30 days", calls(call("send", to="Ann")), says("sent")),
        )
        with pytest.raises(GuardrailError, match="this agent answers about the handbook only"):
            await client.run("researcher", "Tell me a joke.")
        with pytest.raises(GuardrailError):
            await client.run("researcher", "What does the handbook say?")
        registry.add(
            replace(story["researcher"], observers=[(await story.defining("Audit"))()]),
            replace=True,
        )
        report = await client.run("researcher", "And the handbook?", id="seen")
        with server_that_notes() as (address, notes):
            webhook = (await story.defining("Webhook"))(address)
            registry.add(Agent(name="clerk", model="main", tools=[send], observers=[webhook]))
            turn = await client.start(
                "clerk", "Write to Ann.", id="letter", labels={"team": "north"}
            )

            async def waits() -> bool:
                return bool(await turn.pending_approvals())

            await until(waits, "the call waits")
            [pending] = await turn.pending_approvals()
            await turn.approve(pending)
            await turn.result()

    assert report.output == "30 days"
    assert capsys.readouterr().out == "seen 1 []\n"
    assert notes == [
        {
            "turn": "letter",
            "agent": "clerk",
            "labels": {"team": "north"},
            "kind": "approval",
            "reason": "send",
        }
    ]
