"""Many updates of one turn or session at once: more than the server takes."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from perdure import Agent, Budget, errors
from perdure.testing import FunctionModel, ModelRequest, Reply, says

from ...conftest import Runtime
from ...support.gateway.served import served
from ...support.spending import queue

DESK = Agent(name="desk", model="main", instructions="Be kind.")
UPDATES, AT_ONCE = 120, 60


def echo(_: ModelRequest) -> Reply:
    return says("Yes.")


@pytest.mark.slow
@pytest.mark.accepts("H119")
async def test_flood_of_updates_to_a_session_is_answered(runtime: Runtime) -> None:
    """No more are sent at once than the server takes: one too many would abort those under way."""
    found: Counter[int] = Counter()
    async with runtime(DESK, model=FunctionModel(echo)) as client, served(client) as http:
        message = {"text": "Hello.", "begin": {"agent": "desk"}}
        sent = await http.post("/v1/sessions/flooded/messages", json=message)
        await http.get(f"/v1/turns/{sent.json()['turn_id']}/result?wait=30")

        async def flood(numbers: range) -> None:
            for number in numbers:
                answer = await http.post(
                    "/v1/sessions/flooded/unqueue", json={"id": f"m-{number}"}, timeout=60
                )
                found[answer.status_code] += 1

        await asyncio.gather(*(flood(range(n, UPDATES, AT_ONCE)) for n in range(AT_ONCE)))
        await http.post("/v1/sessions/flooded/close")

    assert found == {200: UPDATES}


@pytest.mark.slow  # it waits for the time limit of an update
@pytest.mark.accepts("H119")
async def test_update_that_is_not_sent_in_time_is_told_so(perdure_server: str) -> None:
    """Without a worker, the first ones wait for it, and the others for the first ones."""
    async with queue(perdure_server) as work:
        turn = await work.client.start("spender", "go")
        asked = (turn.add_budget(Budget(model_calls=1)) for _ in range(8))
        found = await asyncio.gather(*asked, return_exceptions=True)
        await work.client.temporal.get_workflow_handle(turn.id).terminate()

    assert Counter(map(type, found)) == {
        errors.ServerUnreachableError: 5,
        errors.TooManyRequestsError: 3,
    }
