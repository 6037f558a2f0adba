"""The worker and the gateway are killed while a turn waits for its client to run a tool."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..support.client_tools import LOCATE, until_calls
from ..support.e2e.command_line import CommandLine, Started
from ..support.e2e.stories import Tell, asks, results, says, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor

__all__ = ["has_supervisor"]

APP = "tests.support.e2e.app:make_taking"
TOKEN = "0123456789abcdef" * 2
FUNCTION = {"type": "function", **LOCATE.model_dump()}


@pytest.mark.slow
@pytest.mark.accepts("F33")
async def test_call_waits_over_the_kill_of_its_worker(tell: Tell) -> None:
    """The next worker goes on with the result, by the same token."""
    story = await tell(asks(use("locate", "here")), says("done"))
    story.app = APP
    worker = await story.worker()
    turn = await story.start(client_tools=[LOCATE])
    [before] = await until_calls(turn)
    await story.replace(worker)
    [after] = await until_calls(turn)
    await story.client.finish_call(before.token, "Bern")

    report = await story.report(turn)

    assert before == after
    assert results(report) == ["Bern"]


@pytest.mark.slow
@pytest.mark.accepts("F33", "H187")
async def test_response_goes_on_after_kills_of_gateway_and_worker(
    tell: Tell, tmp_path: Path, perdure_server: str
) -> None:
    """Another gateway takes the outputs, although the first one has given the calls."""
    story = await tell(asks(use("locate", "here")), says("done"))
    story.app = APP
    worker = await story.worker()
    here, command = CommandLine(tmp_path), ("serve", "--address", perdure_server, "--port", "0")
    here.environment |= {"PERDURE_TOKEN": TOKEN, "PERDURE_TASK_QUEUE": story.client.task_queue}
    asked: dict[str, object] = {"model": "clerk", "input": "go", "tools": [FUNCTION]}
    with here.started(*command) as first:
        response = await posted(first, asked)
        first.process.kill()
    await story.replace(worker)
    [item] = [each for each in response["output"] if each["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": item["call_id"], "output": "Bern"}
    given: dict[str, object] = {
        "model": "clerk",
        "input": [output],
        "previous_response_id": response["id"],
    }
    with here.started(*command) as second:
        answer = await posted(second, given)
        repeated = await posted(second, given)

    assert response["status"] == "completed"
    assert (answer["status"], answer["previous_response_id"]) == ("completed", response["id"])
    assert answer["output"][-1]["content"][0]["text"].startswith("done")
    assert repeated["output"] == answer["output"]


async def posted(gateway: Started, body: dict[str, object]) -> dict[str, Any]:
    """The response to a request of OpenAI's API."""
    url = (await asyncio.to_thread(gateway.wait_for, r"(http://\S+); Ctrl-C"))[1]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=90) as http:
        answer = await http.post("/openai/v1/responses", json=body)
    answer.raise_for_status()
    made: dict[str, Any] = answer.json()
    return made
