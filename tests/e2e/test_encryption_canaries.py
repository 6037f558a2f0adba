"""Words that are planted wherever a caller, a model or a tool can put one: with encryption on, none
can be read in the database of the server, in what it lists and describes, in logs and in spans.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent, AgentReport, OutputGuardrail, ToolContext, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.temporal.connect import connect_local
from perdure.temporal.encryption.hiding import LABELS_VARIABLE, VARIABLE
from perdure.temporal.encryption.keys import new_entry
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, local_runtime, says
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker
from perdure.worker.dev.server import DevServer

from ..support.approving import pending
from ..support.receiver import SECRET, Receiver, receiving
from ..support.telemetry import Traces

_CANARY = re.compile(rb"canary[a-z]+")


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
        [script] = [script for word, script in self.scripts.items() if word in asked]
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


async def lives(client: AgentClient, hook: str) -> list[str]:
    """Every kind of thing that is stored. Returns the ids of what was started."""
    turn = await client.start(
        "payer",
        "canarytask",
        id="paid",
        context={"canarycontextname": "canarycontext"},
        labels={"canarylabelname": "canarylabel"},
        on_done=hook,
    )
    [one] = await pending(turn)
    await turn.steer("canarysteering", by="canarysteerer")
    await turn.approve(one, reason="canaryreason", by="canaryapprover")
    report = await turn.result()
    assert report.output == "canaryanswer"
    cancelled = await client.start("payer", "canarycancelled", id="cancelled")
    await pending(cancelled)
    await cancelled.cancel("canarycancelreason", by="canarycanceller")
    with pytest.raises(errors.TurnCancelledError, match="canarycancelreason"):
        await cancelled.result()
    asked = [event async for event in cancelled.events()]
    assert "canarycanceller" in repr(asked)
    failed = await client.start("payer", "canarymodelerror", id="failed")
    with pytest.raises(errors.LLMInvalidRequestError, match="canaryprovidererror"):
        await failed.result()
    refused = await client.start("payer", "canaryrefused", id="refused")
    with pytest.raises(errors.GuardrailError, match="canaryguardrail"):
        await refused.result()
    session = client.session("talk", "payer", labels={"canarylabelname": "canarylabel"})
    first = await session.say("canarymessage")
    await pending(client.turn(first.turn_id))
    await session.interrupt("canaryinterruption", by="canaryinterrupter")
    with pytest.raises(errors.TurnCancelledError, match="canaryinterruption"):
        await first.result()
    await session.close("canaryclosing", by="canarycloser")
    batch = await client.start_batch(
        "crowd", "payer", ["canarybatchtask"], labels={"canarylabelname": "canarylabel"}
    )
    assert [result.output async for result in batch.results()] == ["canarybatchanswer"]
    plan = await client.create_schedule(
        "plan",
        "payer",
        "canaryscheduled",
        labels={"canarylabelname": "canarylabel"},
        cron="0 4 * * *",
        timezone="UTC",
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


async def everything(folder: Path, receiver: Receiver) -> tuple[dict[str, bytes], Traces]:
    """Run all of it on a server with a file, and return what can be read where."""
    traces = Traces()
    worker = AgentWorker(AGENT, telemetry=traces.telemetry())
    server = DevServer(folder=folder, port=0, ui=False)
    await server.start()
    try:
        address = server.address.address
        async with local_runtime(worker, model=replies(), address=address) as client:
            ids = await lives(client, receiver.url("/done"))
            await receiver.until("/done")
            with pytest.MonkeyPatch.context() as without:
                without.delenv(VARIABLE, raising=False)
                stranger = AgentClient.from_temporal(await connect_local(address))
            told = await described(stranger, ids)
    finally:
        await server.stop()
    return {"the server's answers": told, "the database": database(folder)}, traces


def database(folder: Path) -> bytes:
    """The files of the server."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver of webhooks."""
    with receiving() as found:
        monkeypatch.setenv("PERDURE_WEBHOOK_HOSTS", f"private:127.0.0.1:{found.port}")
        monkeypatch.setenv("PERDURE_WEBHOOK_SECRETS", SECRET)
        yield found


@pytest.mark.accepts("G4", "G13")
@pytest.mark.parametrize("encrypted", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_no_word_can_be_read_with_encryption(
    encrypted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    hook: Receiver,
) -> None:
    """Without it, nearly all of them can, so the search finds what there is."""
    caplog.set_level(logging.INFO)
    if encrypted:
        monkeypatch.setenv(VARIABLE, new_entry("k1"))
        monkeypatch.setenv(LABELS_VARIABLE, "no")
    else:
        monkeypatch.delenv(VARIABLE, raising=False)
    places, traces = await everything(tmp_path, hook)
    places["logs"] = "\n".join(
        repr(vars(record)) + record.getMessage() for record in caplog.records
    ).encode()
    places["spans"] = "".join(span.to_json() for span in traces.spans).encode()
    found = {place: sorted(set(_CANARY.findall(data))) for place, data in places.items()}

    if encrypted:
        # the log says who decided, as the page of encryption says
        assert found == {**{place: [] for place in places}, "logs": [b"canaryapprover"]}
        assert len(places["the database"]) > 100_000
    else:
        assert len(found["the database"]) > 25
