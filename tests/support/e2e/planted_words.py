"""Words that are planted wherever a caller, a model or a tool can put one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from perdure import Agent, AgentReport, OutputGuardrail, ToolContext, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.values.answers import ModelAnswer

from ..approving import begun, pending

CANARY = re.compile(rb"canary[a-z]+")


@tool(requires_approval=True)
async def pay(context: ToolContext[None], to: str) -> str:
    """Pay somebody: canarydescription."""
    context.heartbeat("canaryheartbeat")
    return f"canaryresult of {len(to)}"


@tool(read_only=True, local=True)
def look(at: str) -> str:
    """Look."""
    return "canarylocalresult"


@tool
def crash() -> str:
    """Fail."""
    raise ValueError("canarytoolerror")


def refuses(report: AgentReport) -> str | bool:
    """Refuse an answer, with a reason."""
    return "canaryguardrail" if report.output == "canaryrefusedanswer" else True


AGENT = Agent(
    name="payer",
    version="v1",
    model="scripted:payer",
    instructions="canaryinstructions",
    tools=[pay, look, crash],
    middleware=[OutputGuardrail(refuses)],
)


class ByWord(ByTask):
    """A model whose script is selected by a word in the task, around which there is context."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        asked = repr(request.messages)
        script = next(script for word, script in self.scripts.items() if word in asked)
        return await script.complete(request)


def replies() -> ByWord:
    """What the model says to each task."""
    return ByWord(
        {
            "canarytask": ScriptedModel(
                calls(call("look", at="canarylocalargument"), call("crash")),
                calls(call("pay", to="canaryargument")),
                says("canaryanswer", thinking="canarythought"),
            ),
            "canarycancelled": ScriptedModel(calls(call("pay", to="x"))),
            "canarymodelerror": ScriptedModel(
                fails(errors.LLMInvalidRequestError("canaryprovidererror"))
            ),
            "canaryrefused": ScriptedModel(says("canaryrefusedanswer")),
            "canarymessage": ScriptedModel(calls(call("pay", to="x"))),
            "canarybatchtask": ScriptedModel(says("canarybatchanswer")),
            "canaryscheduled": ScriptedModel(says("canaryscheduledanswer")),
        }
    )


async def lives(client: AgentClient, hook: str, **options: Any) -> list[str]:
    """Every kind of thing that is stored. Returns the ids of what was started.

    `options` are those of each turn.
    """
    turn = await client.start(
        "payer",
        "canarytask",
        id="paid",
        context={"canarycontextname": "canarycontext"},
        labels={"canarylabelname": "canarylabel"},
        on_done=hook,
        **options,
    )
    [one] = await pending(turn)
    await turn.steer("canarysteering", by="canarysteerer")
    await turn.approve(one, reason="canaryreason", by="canaryapprover")
    report = await turn.result()
    assert report.output == "canaryanswer"
    cancelled = await client.start("payer", "canarycancelled", id="cancelled", **options)
    await pending(cancelled)
    await cancelled.cancel("canarycancelreason", by="canarycanceller")
    with pytest.raises(errors.TurnCancelledError, match="canarycancelreason"):
        await cancelled.result()
    asked = [event async for event in cancelled.events()]
    assert "canarycanceller" in repr(asked)
    failed = await client.start("payer", "canarymodelerror", id="failed", **options)
    with pytest.raises(errors.LLMInvalidRequestError, match="canaryprovidererror"):
        await failed.result()
    refused = await client.start("payer", "canaryrefused", id="refused", **options)
    with pytest.raises(errors.GuardrailError, match="canaryguardrail"):
        await refused.result()
    session = client.session("talk", "payer", labels={"canarylabelname": "canarylabel"}, **options)
    first = await session.say("canarymessage")
    await pending(await begun(client, first.turn_id))
    await session.interrupt("canaryinterruption", by="canaryinterrupter")
    with pytest.raises(errors.TurnCancelledError, match="canaryinterruption"):
        await first.result()
    await session.close("canaryclosing", by="canarycloser")
    batch = await client.start_batch(
        "crowd",
        "payer",
        ["canarybatchtask"],
        labels={"canarylabelname": "canarylabel"},
        **options,
    )
    assert [result.output async for result in batch.results()] == ["canarybatchanswer"]
    plan = await client.create_schedule(
        "plan",
        "payer",
        "canaryscheduled",
        labels={"canarylabelname": "canarylabel"},
        cron="0 4 * * *",
        timezone="UTC",
        **options,
    )
    started = client.turn(await plan.run_now(by="canarystarter"))
    assert (await started.result()).output == "canaryscheduledanswer"
    await plan.pause("canarypause", by="canarypauser")
    status = await plan.status()
    assert (status.reason, status.by) == ("canarypause", "canarypauser")
    return [
        "paid",
        "cancelled",
        "failed",
        "refused",
        "talk",
        "crowd",
        "crowd/1",
        first.turn_id,
        started.id,
    ]


async def described(client: AgentClient, ids: list[str]) -> bytes:
    """What the server says of workflows and schedules, without the key."""
    found = b""
    for workflow_id in ids:
        handle = client.temporal.get_workflow_handle(workflow_id)
        found += (await handle.describe()).raw_description.SerializeToString()
        found += "".join((await handle.fetch_history()).to_json()).encode()
    async for one in client.temporal.list_workflows():
        found += one.raw_info.SerializeToString()
    schedule = await client.temporal.get_schedule_handle("plan").describe()
    return found + schedule.raw_description.SerializeToString()
