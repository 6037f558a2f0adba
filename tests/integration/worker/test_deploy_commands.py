"""`perdure deploy …` on a real server, with the workers of two builds in this process."""

import asyncio
import json
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.worker import Worker

from perdure import Agent
from perdure.__main__ import run
from perdure.testing import FunctionModel, ScriptedModel, call, calls, says
from perdure.worker.deploying.checking import replayed

from ...support.approving import agent, pending
from ...support.versioned import Versions

TALKER = Agent(name="talker", model="scripted:talker")
MODEL = {"scripted": FunctionModel(lambda _: says("hello"))}


@workflow.defn(name="AgentTurn", sandboxed=False)
class OtherTurn:
    """A turn of a code that decides otherwise: it begins with a timer."""

    @workflow.run
    async def run(self, start: RawValue) -> None:
        """Wait."""
        await workflow.sleep(3600)


class Operator:
    """Types `perdure deploy …`."""

    def __init__(
        self, versions: Versions, address: str, printed: pytest.CaptureFixture[str]
    ) -> None:
        self._versions = versions
        self._address = address
        self._printed = printed

    async def __call__(self, *arguments: str) -> tuple[int, str]:
        """Run a command; return its exit code and all that it prints."""
        where = ("--deployment", self._versions.deployment.name, "--address", self._address)
        self._printed.readouterr()
        code = await asyncio.to_thread(run, ["deploy", *arguments, *where])
        printed = self._printed.readouterr()
        return code, printed.out + printed.err

    async def json(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command that succeeds with `--json`; return its lines."""
        code, output = await self(*arguments, "--json")
        assert code == 0, output
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@pytest.fixture
async def versions(perdure_server: str) -> Versions:
    """A deployment of its own."""
    return Versions(await Client.connect(perdure_server))


@pytest.fixture
def deploy(versions: Versions, perdure_server: str, capsys: pytest.CaptureFixture[str]) -> Operator:
    """The operator of that deployment."""
    return Operator(versions, perdure_server, capsys)


@pytest.mark.slow
@pytest.mark.accepts("V17", "V18", "V19")
async def test_versions_are_promoted_ramped_and_rolled_back(
    versions: Versions, deploy: Operator
) -> None:
    """As people read it, and as JSON."""
    name = versions.deployment.name
    async with versions.worker("v1", TALKER, providers=MODEL):
        first = await deploy("promote", "v1")
        again = await deploy("promote", "v1")
        alone = await deploy("rollback")
        async with versions.worker("v2", TALKER, providers=MODEL):
            ramped = await deploy.json("ramp", "v2", "25")
            ramping = {each["build_id"]: each for each in await deploy.json("status")}
            turn = await deploy("drain", "v2")
            unramped = await deploy("ramp", "v2", "0")
            promoted = await deploy.json("promote", "v2")
            shown = await deploy("status")
            back = await deploy.json("rollback")
            unversioned = await deploy.json("rollback", "--unversioned")
            last = {each["build_id"]: each["state"] for each in await deploy.json("status")}

    assert first[0] == 0
    assert first[1].endswith("new work goes to v1, and no more to workers without a version\n")
    assert "new work went to v1 already" in again[1]
    assert alone[0] == 2
    assert "--unversioned" in alone[1]
    assert ramped == [{"deployment": name, "build_id": "v2", "percent": 25.0}]
    assert (ramping["v2"]["state"], ramping["v2"]["percent"]) == ("ramping", 25.0)
    assert (ramping["v1"]["state"], ramping["v1"]["workers"]) == ("current", 1)
    assert turn[0] == 2
    assert "perdure deploy ramp v2 0" in turn[1]
    assert unramped == (0, "the ramp is over\n")
    assert promoted == [{"deployment": name, "build_id": "v2", "before": "v1"}]
    assert f"deployment {name}" in shown[1]
    assert back == [{"deployment": name, "build_id": "v1", "before": "v2"}]
    assert unversioned == [{"deployment": name, "build_id": "", "before": "v1"}]
    assert last[""] == "current"


@pytest.mark.accepts("V20")
async def test_what_cannot_be_done_is_refused_with_what_to_do(
    versions: Versions, deploy: Operator
) -> None:
    """Nothing is promoted before its workers poll, and nothing is drained that gets new work."""
    unknown = await deploy("status")
    async with versions.worker("v1", TALKER, providers=MODEL):
        await versions.promote("v1")
        refused = {
            "promote": await deploy("promote", "v2", "--wait", "0s"),
            "bad name": await deploy("promote", "v 2"),
            "current": await deploy("drain", "v1"),
            "no version": await deploy("drain", "v0"),
            "both": await deploy("rollback", "v1", "--unversioned"),
            "pinned": await deploy("check", "--pinned-to", "a'b"),
        }

    assert unknown[0] == 2
    assert "none of its workers has polled" in unknown[1]
    assert {code for code, _ in refused.values()} == {2}
    assert "with the build id 'v2' polls" in refused["promote"][1]
    assert "PERDURE_BUILD_ID=v2" in refused["promote"][1]
    assert "a build id is named by" in refused["bad name"][1]
    assert "promote another version first" in refused["current"][1]
    assert "has no version 'v0'; it has v1" in refused["no version"][1]
    assert "not both" in refused["both"][1]


async def once_listed(deploy: Operator, id: str, *options: str) -> Any:
    """What a check says, once Temporal lists a workflow."""
    async with asyncio.timeout(60):
        while id not in (said := await deploy("check", *options))[1]:
            pass
    return said


@pytest.mark.accepts("V21")
async def test_check_names_what_this_code_cannot_continue(
    versions: Versions, deploy: Operator
) -> None:
    """A turn that other code has begun differently, beside one that replays."""
    temporal, queue = versions.client.temporal, versions.deployment.name
    asks = {"scripted": ScriptedModel(calls(call("send", to="ann")))}
    async with versions.worker("v1", agent(), providers=asks):
        await versions.promote("v1")
        turn = await versions.client.start("clerk", "write")
        await pending(turn)
        pinned = await once_listed(deploy, turn.id, "--pinned-to", "v1", "--json")
    await versions.client.temporal.get_workflow_handle(turn.id).terminate()
    async with Worker(temporal, task_queue=f"{queue}.other", workflows=[OtherTurn]):
        other = await temporal.start_workflow(
            "AgentTurn", "no turn", id=f"{queue}/other", task_queue=f"{queue}.other"
        )
        async for event in other.fetch_history_events(wait_new_event=True):
            if event.HasField("timer_started_event_attributes"):
                break
        broken = await once_listed(deploy, other.id, "--last", "5")
        runs = [run async for run in replayed(temporal, 5, None) if run.id == other.id]
    await other.terminate()

    assert (pinned[0], [json.loads(line)["id"] for line in pinned[1].splitlines()]) == (
        0,
        [turn.id],
    )
    assert broken[0] == 1
    assert f"broken  {other.id}" in broken[1]
    assert "would break" in broken[1]
    assert [(bool(run.failure), run.running) for run in runs] == [(True, True)]
