"""A session over each API, right after the answer: what was told is in the next read and the next
turn, and the next message waits for nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from a2a.types import TaskState
from openai import AsyncOpenAI

from perdure import Agent
from perdure.testing import ScriptedModel, says

from ...conftest import Runtime
from ...support.gateway.a2a import PUBLISHED, agent_of, message, send
from ...support.gateway.agui import asking, run, user
from ...support.gateway.served import served
from ...support.mcp.tasks import assistant, use

ROUNDS = 4
DESK = Agent(name="desk", model="main")


def model_of(*more: str) -> ScriptedModel:
    return ScriptedModel(*(says(text) for text in (*answers(ROUNDS), *more)))


def answers(rounds: int) -> list[str]:
    return [f"answer {number}" for number in range(1, rounds + 1)]


def talk(rounds: int) -> list[str]:
    """The texts of a session after so many rounds."""
    return [text for n in range(1, rounds + 1) for text in (f"ask {n}", f"answer {n}")]


def seen(model: ScriptedModel) -> list[str]:
    """The texts that the last request to a model had."""
    return [one.text for one in model.requests[-1].messages if one.role != "tool"]


async def check(http: httpx.AsyncClient, session: str, rounds: int) -> None:
    """Every other round is in what the session says of itself. The others are followed at once by
    a message.
    """
    if rounds % 2:
        assert await read(http, session) == (talk(rounds), "completed", "idle")


async def read(http: httpx.AsyncClient, session: str) -> tuple[list[str], str | None, str]:
    """The texts of a session, the outcome of its last turn, and its state."""
    path = f"/v1/sessions/{session}"
    messages, turns, status = await asyncio.gather(
        http.get(f"{path}/messages"), http.get(f"{path}/turns"), http.get(path)
    )
    return (
        [one["parts"][0]["text"] for one in messages.json()["messages"]],
        turns.json()["turns"][-1].get("outcome"),
        status.json()["state"],
    )


@pytest.mark.slow
@pytest.mark.accepts("E155", "E156")
@pytest.mark.parametrize("api", ["rest", "mcp"])
async def test_result_over_rest_and_mcp_is_in_the_next_read(runtime: Runtime, api: str) -> None:
    """Sessions are of REST alone, and a client of MCP can wait for a turn of one."""
    model, session = model_of(), f"x-{api}"
    async with (
        runtime(DESK, model=model) as client,
        served(client) as http,
        assistant(http) as mcp,
    ):
        for number in range(1, ROUNDS + 1):
            given = {"text": f"ask {number}", "begin": {"agent": "desk"}}
            sent = (await http.post(f"/v1/sessions/{session}/messages", json=given)).json()
            if api == "mcp":
                ended = await use(mcp, "turn_result", turn=sent["turn_id"])
            else:
                path = f"/v1/turns/{sent['turn_id']}/result"
                ended = (await http.get(path, params={"wait": "60"})).json()
            await check(http, session, number)

            assert sent["disposition"] == "started"
            assert ended["output"] == f"answer {number}"
            assert seen(model) == talk(number)[:-1]
        await http.post(f"/v1/sessions/{session}/close")


@pytest.mark.accepts("E155", "E156")
async def test_run_over_agui_begins_with_the_answer_before_it(runtime: Runtime) -> None:
    """A thread that runs refuses a message, so one that is not refused is not queued."""
    model = model_of()
    async with runtime(DESK, model=model) as client, served(client) as http:
        for number in range(1, ROUNDS + 1):
            asked = asking("x-agui", f"r-{number}", user(f"ask {number}", f"m-{number}"))
            told = await run(http, "desk", asked)
            await check(http, "x-agui", number)

            assert told.text == f"answer {number}"
            assert [one.content for one in told.snapshot] == talk(number)[:-1]
            assert seen(model) == talk(number)[:-1]
        await http.post("/v1/sessions/x-agui/close")


@pytest.mark.slow
@pytest.mark.accepts("E155", "E156")
async def test_response_goes_on_right_after_the_one_before_it(runtime: Runtime) -> None:
    """In a conversation and from the id before. A stream of a conversation that is busy would be
    refused.
    """
    model = model_of("forked")
    async with (
        runtime(DESK, model=model) as client,
        served(client) as http,
        AsyncOpenAI(base_url=f"{http.base_url}/openai/v1", api_key="anna") as ai,
    ):
        for number in range(1, ROUNDS + 1):
            given: dict[str, Any] = {"model": "desk", "input": f"ask {number}"}
            if number % 2:
                response = await ai.responses.create(**given, conversation="x-openai")
            else:
                stream = await ai.responses.create(**given, conversation="x-openai", stream=True)
                response = [one async for one in stream][-1].response
            await check(http, "x-openai", number)

            assert (response.status, response.output_text) == ("completed", f"answer {number}")
            assert response.id == f"@acme/x-openai/{number}"
            assert seen(model) == talk(number)[:-1]
        fork = await ai.responses.create(
            model="desk", input="and?", previous_response_id=response.id
        )
        await http.post("/v1/sessions/x-openai/close")

    assert fork.output_text == "forked"
    assert seen(model) == [*talk(ROUNDS), "and?"]


@pytest.mark.slow
@pytest.mark.accepts("E155", "E156")
async def test_task_over_a2a_begins_right_after_the_one_before_it(runtime: Runtime) -> None:
    """A task that waits for another one is `SUBMITTED`."""
    model = model_of()
    async with (
        runtime(DESK, model=model) as client,
        served(client, a2a_agents=PUBLISHED) as http,
    ):
        agent = await agent_of(http)
        for number in range(1, ROUNDS + 1):
            asked = message(f"ask {number}", f"x-a2a-{number}", context_id="x-a2a")
            if number % 3 == 0:
                begun = await send(agent, asked, at_once=True)
                assert begun.status.state != TaskState.TASK_STATE_SUBMITTED
            done = await send(agent, asked)
            await check(http, "a2a/desk/x-a2a", number)

            assert done.status.state == TaskState.TASK_STATE_COMPLETED
            assert done.id == f"x-a2a/{number}"
            assert seen(model) == talk(number)[:-1]
        await http.post("/v1/sessions/a2a/desk/x-a2a/close")
