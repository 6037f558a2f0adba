"""Effects over HTTP: what a turn has done, and who takes it back."""

from __future__ import annotations

import pytest

from perdure import Agent
from perdure.testing import ScriptedModel, says

from ...conftest import Runtime
from ...support.banking import Bank, payer, pays, refunder
from ...support.gateway.served import served, told


@pytest.mark.accepts("T62")
async def test_effect_is_listed_and_taken_back_over_http(runtime: Runtime) -> None:
    """By whom is in the task of the turn that does it; whoever only reads may not ask for it."""
    bank = Bank()
    agent = Agent(name="clerk", model="main", tools=[payer(bank, undo=refunder(bank))])
    model = ScriptedModel(pays(), says("paid"))
    async with runtime(agent, model=model) as client, served(client) as http:
        begun = await http.post("/v1/turns", json={"agent": "clerk", "task": "pay"})
        turn = f"/v1/turns/{begun.json()['id']}"
        result = (await http.get(f"{turn}/result", params={"wait": 30})).json()
        [listed] = (await http.get(f"{turn}/effects")).json()["effects"]
        wrong = await http.post(f"{turn}/undo", json={"call_id": "nope"})
        undone = await http.post(f"{turn}/undo", json={"call_id": listed["call_id"]})
        undo = f"/v1/turns/{undone.json()['id']}"
        end = (await http.get(f"{undo}/result", params={"wait": 30})).json()
        status = (await http.get(undo)).json()
        [after] = (await http.get(f"{turn}/effects")).json()["effects"]
        async with served(client, name="rita") as reading:
            refused = await reading.post(f"{turn}/undo", json={"call_id": listed["call_id"]})

    assert result["undoable"] == [listed]
    assert (listed["status"], listed["undo"], listed["result"]) == ("done", "clerk", "paid i-1")
    assert told(wrong) == (422, "INVALID_REQUEST")
    assert undone.status_code == 202
    assert undone.headers["location"].endswith(f"/undo-1-{listed['call_id']}")
    assert "refunded i-1" in end["output"]
    assert "asked by anna@example.com" in status["task"]
    assert after["status"] == "undone"
    assert refused.status_code == 403
    assert [refunded for refunded, _ in bank.refunds] == ["i-1"]
