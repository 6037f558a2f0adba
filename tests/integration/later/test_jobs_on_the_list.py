"""Calls that wait for jobs, on the list of the calls that wait for people."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perdure import Agent, Delegate, errors, tool
from perdure.clients import AgentClient, TurnEntry
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.toolboxes import asking
from perdure.values.approvals import PendingApproval

from ...conftest import Runtime
from ...support.gateway.served import as_, served
from ...support.jobs import Service, deployer, until_waiting
from ...support.spending import SOON_S

DEPLOY = call("deploy", target="shop")
FORM = {"type": "object", "properties": {"euros": {"type": "integer"}}}


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros}"


async def listed_calls(client: AgentClient, number: int) -> list[tuple[TurnEntry, PendingApproval]]:
    """The calls on the list, once it has so many: Temporal's list lags behind."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = [each async for each in client.pending_approvals("deployer")]
            if len(found) >= number:
                return found
            await asyncio.sleep(0.1)


@pytest.mark.accepts("J23", "J24")
async def test_four_kinds_of_pauses_are_on_one_list(runtime: Runtime) -> None:
    """Nobody decides about a call that is done elsewhere, and its token is not shown."""
    service = Service()
    asked = [
        call("ask", question="Which?", options=["red", "green"]),
        call("ask", question="How much?", schema=FORM),
    ]
    model = ByTask(
        {
            "Pay.": ScriptedModel(calls(call("refund", euros=3)), says("paid")),
            "Ask.": ScriptedModel(calls(*asked), says("asked")),
            "Deploy.": ScriptedModel(calls(DEPLOY), says("deployed")),
        }
    )
    agent = deployer(service, [service.tool(), refund], toolboxes=[asking()])
    async with runtime(agent, model=model) as client, served(client) as http:
        turns = [
            await client.start("deployer", task, id=f"@acme/j23-{number}")
            for number, task in enumerate(("Deploy.", "Pay.", "Ask."))
        ]
        token = await service.token()
        for turn, kind in zip(turns, ("job", "approval", "approval"), strict=True):
            await until_waiting(turn, kind)
        [job] = await turns[0].pending_approvals()
        found = [pending for _, pending in await listed_calls(client, 4)]
        listed = (await http.get("/v1/approvals")).json()["approvals"]
        two = (await http.get("/v1/approvals", params={"limit": 2})).json()["approvals"]
        elsewhere = (await http.get("/v1/approvals", headers=as_("otto"))).json()["approvals"]
        with pytest.raises(errors.ApprovalConflictError, match="is done elsewhere"):
            await turns[0].approve(job)
        for wrong in (
            turns[0].approve("call_1_1"),
            turns[0].deny("call_1_1", "no"),
            turns[0].answer("call_1_1", "red"),
            turns[0].settle("call_1_1", "done"),
        ):
            with pytest.raises(errors.ApprovalConflictError, match="is done elsewhere"):
                await wrong
        denied = await http.post(
            "/v1/turns/j23-0/deny", json={"call_id": "call_1_1", "token": job.token}
        )
        status = await turns[0].status()
        await client.finish_call(token, "v42")
        report = await turns[0].result()
        after = await turns[0].pending_approvals()
        for turn in turns[1:]:
            await turn.cancel()

    kinds = sorted(pending.kind for pending in found)
    assert kinds == ["approval", "elsewhere", "form", "question"]
    assert (job.tool, job.note, job.token) == ("deploy", "deploy: job-shop", "")
    assert json.loads(job.arguments) == {"target": "shop"}
    assert (job.since, job.expires_at) == (status.waits[0].since, status.waits[0].until)
    assert [entry["call"].get("is_job", False) for entry in listed] == [False, False, False, True]
    assert not any(entry["call"].get("is_job") for entry in two)
    assert elsewhere == []
    assert (denied.status_code, denied.json()["code"]) == (409, "APPROVAL_CONFLICT")
    assert token not in repr(found) + str(listed)
    assert report.output == "deployed"
    assert after == ()


@pytest.mark.accepts("J23")
async def test_job_of_a_delegate_is_listed_with_its_own_turn(runtime: Runtime) -> None:
    """Until its result has come, also before the call knows of it."""
    service = Service()
    model = ByTask(
        {
            "Have it deployed.": ScriptedModel(
                calls(call("delegate_to_agent", agent="deployer", task="Deploy.")), says("done")
            ),
            "Deploy.": ScriptedModel(calls(DEPLOY), says("deployed")),
        }
    )
    boss: Agent[Any] = Agent(name="boss", model="scripted:boss", delegates=[Delegate("deployer")])
    async with runtime([boss, deployer(service)], model=model) as client:
        turn = await client.start("boss", "Have it deployed.")
        token = await service.token()
        await until_waiting(turn)
        [(entry, pending)] = await listed_calls(client, 1)
        of_boss = await turn.pending_approvals()
        await client.finish_call(token, "v42")
        await turn.result()

    assert entry.id.startswith(turn.id)
    assert (pending.kind, pending.tool) == ("elsewhere", "deploy")
    assert of_boss == ()
