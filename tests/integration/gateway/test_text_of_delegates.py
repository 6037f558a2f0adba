"""The text of delegates while it is generated, over each protocol and with each client."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

pytest.importorskip("ag_ui", reason="the extra perdure[agui] is not installed")
pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from a2a.types import SendMessageRequest
from google.protobuf.json_format import MessageToDict
from starlette.requests import Request

from perdure import Agent, OutputGuardrail
from perdure.clients import AgentClient, TurnText
from perdure.clients.cli.common import Display
from perdure.clients.cli.running.following import follow
from perdure.clients.gateway import A2AAgent, Caller
from perdure.clients.gateway.a2a.cards import DELEGATES
from perdure.testing import ScriptedModel, says, slowly
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.delegating import delegate
from ...support.gateway import a2a, agui
from ...support.gateway.assistants import assistant, use
from ...support.gateway.responses import openai_of
from ...support.gateway.served import messages, served
from ...support.speaking import Speaker

ANNA = Caller("anna@example.com", None)
BOSS = Agent(name="boss", model="boss:m", delegates=["clerk"])
CLERK = Agent(name="clerk", model="clerk:m")
GUARDED = Agent(
    name="clerk",
    model="clerk:m",
    delegates=["helper"],
    middleware=[OutputGuardrail(lambda _: False)],
)
HELPER = Agent(name="helper", model="helper:m")
PARTS = ("alpha ", "bravo ", "charlie")
CANARY = "canary"

Heard = Callable[[str], None]
"""Called with each text that a door has shown."""
Door = Callable[[AgentClient, httpx.AsyncClient, str, Heard], Any]
"""Starts a turn of the boss, and follows it to its end."""


async def by_python(client: AgentClient, _: httpx.AsyncClient, name: str, heard: Heard) -> None:
    turn = await client.start("boss", "go", id=name, live=True)
    async for item in turn.text(delegates=True):
        heard(str(item.piece if isinstance(item, TurnText) else item))


async def by_rest(client: AgentClient, http: httpx.AsyncClient, name: str, heard: Heard) -> None:
    await client.start("boss", "go", id=name, live=True)
    async for _, data in messages(http, f"/v1/turns/{name}/events", delegates="running"):
        heard(str(data.get("text") if data["kind"] == "text" else data))


async def by_agui(client: AgentClient, http: httpx.AsyncClient, name: str, heard: Heard) -> None:
    given, told = agui.asking(name, "r-1", agui.user("go", "m-1")), agui.Told()
    async for _, event in agui.events(http, "boss?delegates=true", given):
        told.append(event)
        heard(str(getattr(event, "delta", event)))
    agui.hold_to_the_rules(told)


async def by_a2a(client: AgentClient, http: httpx.AsyncClient, name: str, heard: Heard) -> None:
    headers = {**http.headers, "A2A-Extensions": DELEGATES}
    async with httpx.AsyncClient(base_url=http.base_url, headers=headers, timeout=60) as theirs:
        agent = await a2a.agent_of(theirs, streams=True, agent="boss")
        async for update in agent.send_message(SendMessageRequest(message=a2a.message("go", name))):
            metadata = MessageToDict(update.status_update.metadata).get(DELEGATES, {})
            heard(str(metadata.get("text", update)))


async def by_responses(
    client: AgentClient, http: httpx.AsyncClient, name: str, heard: Heard
) -> None:
    async with openai_of(http) as ai:
        given: Any = {"model": "boss", "input": "go", "extra_body": {"delegates": True}}
        async for event in await ai.responses.create(stream=True, **given):
            is_text = event.type == "perdure:delegate_text"
            heard(str(event.to_dict().get("text") if is_text else event))


async def by_mcp(client: AgentClient, _: httpx.AsyncClient, name: str, heard: Heard) -> None:
    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard(message or "")

    async with assistant(client) as theirs:
        turn = (await use(theirs, "start_turn", agent="boss", task="go", id=name, live=True))[
            "turn"
        ]
        result = await theirs.call_tool("turn_result", {"turn": turn}, progress_callback=hear)
        heard(str(result))


class Lines(io.StringIO):
    """A file that says what is written to it."""

    def __init__(self, heard: Heard) -> None:
        super().__init__()
        self._heard = heard

    def write(self, text: str) -> int:
        self._heard(text)
        return super().write(text)


async def _by_command(client: AgentClient, name: str, heard: Heard, *, as_json: bool) -> None:
    turn = await client.start("boss", "go", id=name, live=True)
    display = Display(stream=True, as_json=as_json)
    with contextlib.redirect_stdout(Lines(heard)), contextlib.redirect_stderr(Lines(heard)):
        await follow(client, turn, display)


async def by_terminal(client: AgentClient, _: httpx.AsyncClient, name: str, heard: Heard) -> None:
    await _by_command(client, name, heard, as_json=False)


async def by_json(client: AgentClient, _: httpx.AsyncClient, name: str, heard: Heard) -> None:
    await _by_command(client, name, heard, as_json=True)


DOORS: dict[str, Door] = {
    "Python": by_python,
    "REST": by_rest,
    "AG-UI": by_agui,
    "A2A": by_a2a,
    "Responses": by_responses,
    "MCP": by_mcp,
    "terminal": by_terminal,
    "JSON": by_json,
}


@contextlib.asynccontextmanager
async def house(
    runtime: Runtime, *below: Agent, **models: Any
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient]]:
    """A boss with agents below, and their gateway."""
    app = AgentWorker([BOSS, *below], providers=models)

    def auth(_: Request) -> Caller:
        return ANNA

    async with (
        runtime(app) as client,
        served(client, auth, a2a_agents=[A2AAgent("boss", "Delegates.")]) as http,
        asyncio.timeout(60),
    ):
        yield client, http


@pytest.mark.table(1)
@pytest.mark.accepts("E193")
@pytest.mark.parametrize("door", DOORS)
async def test_text_of_a_delegate_comes_while_it_is_generated(runtime: Runtime, door: str) -> None:
    """Each part is given when the one before it was shown."""
    speaker = Speaker(*PARTS)
    script = ScriptedModel(delegate("clerk", "Say it."), says("The end."))
    shown = ""

    def heard(text: str) -> None:
        nonlocal shown
        shown += f"{text}\n"
        for part, gate in zip(PARTS, speaker.gates, strict=False):
            if part.strip() in shown:
                gate.set()

    async with house(runtime, CLERK, boss=script, clerk=speaker) as (client, http):
        try:
            await DOORS[door](client, http, f"text-{door.lower()}", heard)
        finally:
            speaker.go_on()

    assert "bravo" in shown
    assert "The end." in shown


@pytest.mark.table(2)
@pytest.mark.accepts("E194")
@pytest.mark.parametrize("door", DOORS)
async def test_words_of_a_guarded_delegate_leave_by_no_door(runtime: Runtime, door: str) -> None:
    """Its answer is refused, and it is made of what a helper says."""
    shown = list[str]()
    pause = timedelta(seconds=0.4 if door == "MCP" else 0.05)  # progress is sent twice a second
    refused = slowly(f"the {CANARY} of the clerk", pause=pause)
    models = {
        "boss": ScriptedModel(delegate("clerk", "Say it."), says("The end.")),
        "clerk": ScriptedModel(delegate("helper", "Help."), refused),
        "helper": ScriptedModel(slowly(f"the {CANARY} of the helper", pause=pause)),
    }
    async with house(runtime, GUARDED, HELPER, **models) as (client, http):
        await DOORS[door](client, http, f"guarded-{door.lower()}", shown.append)

    assert [text for text in shown if CANARY in text] == []
    assert any("The end." in text for text in shown)


@pytest.mark.slow
@pytest.mark.accepts("E194")
async def test_progress_of_a_guarded_turn_has_none_of_its_text(runtime: Runtime) -> None:
    """Over MCP, where the answer that has passed is the result."""
    boss = Agent(name="boss", model="boss:m", middleware=[OutputGuardrail(lambda _: True)])
    model = ScriptedModel(slowly("The end is near.", pause=timedelta(seconds=0.4)))
    shown = list[str]()
    app = AgentWorker([boss], providers={"boss": model})
    async with runtime(app) as client, httpx.AsyncClient(timeout=60) as http:
        await by_mcp(client, http, "guarded-progress", shown.append)

    *progress, result = shown
    assert any("asks boss:m" in text for text in progress)
    assert [text for text in progress if "The" in text] == []
    assert "The end is near." in result
