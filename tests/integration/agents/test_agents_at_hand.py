"""The agent of a turn is resolved in the first workflow task, if its worker has it at hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from perdure import Agent, MCPServer, Registry, Skill, Toolbox, TurnInfo, errors, tool
from perdure.clients import AgentClient, Turn
from perdure.temporal.histories.turn_history import key_of
from perdure.testing import ScriptedModel, call, calls
from perdure.turn.facts import CancelRequested, WaitBegan
from perdure.turn.keys import AgentKey
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ...conftest import Runtime
from ...support.spending import ended, queue, until

PLAIN = Agent(
    name="plain",
    model="scripted:x",
    skills=[Skill(name="sums", description="Sums", instructions="Add.")],
    delegates=["helper"],
)


@tool(requires_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


PAYING = Toolbox("paying", [pay])
HELPER = Agent(name="helper", description="Helps", model="scripted:x")


class Finder:
    """Finds no tool."""

    def resolve(self, name: str) -> None:
        return None


def named(tmp_path: Path, name: str) -> Agent:
    """An agent of which the worker has to find out something when a turn begins."""
    if name == "resolver":
        return Agent(name="it", model="scripted:x", resolver=Finder())
    if name == "folder":
        (tmp_path / "sums").mkdir()
        (tmp_path / "sums" / "SKILL.md").write_text("---\nname: sums\ndescription: Sums\n---\nAdd.")
        return Agent(name="it", model="scripted:x", skills=[tmp_path / "sums"])
    gone = MCPServer.stdio("gone", [str(tmp_path / "gone")])
    return Agent(name="it", model="scripted:x", toolboxes=[gone])


def it(info: TurnInfo) -> Agent:
    """An agent of a factory."""
    return Agent(name="it", model="scripted:x")


async def events_of(client: AgentClient, turn: Turn) -> Sequence[HistoryEvent]:
    """The history of a turn."""
    return (await client.temporal.get_workflow_handle(turn.id).fetch_history()).events


def scheduled(events: Sequence[HistoryEvent]) -> list[str]:
    """The types of the activities that have a task of their own."""
    kind = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in events
        if event.event_type == kind
    ]


def markers(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """The markers of local activities and patches."""
    kind = EventType.EVENT_TYPE_MARKER_RECORDED
    return [event for event in events if event.event_type == kind]


@pytest.mark.accepts("E118")
async def test_agent_at_hand_is_resolved_in_the_first_workflow_task(runtime: Runtime) -> None:
    """A marker before the first model call has its definition, and readers fold it."""
    async with runtime(AgentWorker([PLAIN, HELPER]), model=ScriptedModel("done")) as client:
        turn = await client.start("plain", "go")
        report = await turn.result()
        events = await events_of(client, turn)
        status = await turn.status()

    tasks = [one for one in events if one.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED]
    places = {key_of(one): place for place, one in enumerate(events) if key_of(one) is not None}
    assert (report.output, status.agent) == ("done", "plain")
    assert (scheduled(events), len(tasks)) == (["perdure.call_model"], 2)
    assert next(iter(places)) == AgentKey()


@pytest.mark.table(1)
@pytest.mark.accepts("E119")
@pytest.mark.parametrize("name", ["resolver", "folder", "server", "factory"])
async def test_agent_that_is_not_at_hand_is_resolved_by_an_activity(
    runtime: Runtime, tmp_path: Path, name: str
) -> None:
    """Its history is as in earlier releases: it has no marker."""
    entry = it if name == "factory" else named(tmp_path, name)
    worker = AgentWorker(Registry([entry]))
    async with runtime(worker, model=ScriptedModel("done")) as client:
        turn = await client.start("it", "go")
        await ended(turn)
        events = await events_of(client, turn)

    assert scheduled(events)[0] == "perdure.resolve_agent"
    assert not [one for one in markers(events) if key_of(one) is not None]


@pytest.mark.slow
@pytest.mark.accepts("E119")
async def test_worker_with_the_setting_off_goes_on_with_turns_of_both_kinds(
    perdure_server: str,
) -> None:
    """`PERDURE_LOCAL_LOOKUPS=0` is about turns that begin: a replay does what history has."""
    agent = Agent(name="payer", model="scripted:x", tools=[pay])
    model = ScriptedModel(*[calls(call("pay"))] * 2, *["done"] * 2)
    async with queue(perdure_server) as work:
        app = AgentWorker(agent, task_queue=work.client.task_queue, providers={"scripted": model})
        off = WorkerSettings(grace=timedelta(seconds=0.1), local_lookups=False)
        async with work.worker(app):
            local = await work.client.start("payer", "go")
            await until(local, WaitBegan)
        async with app.running(work.client.temporal, settings=off):
            remote = await work.client.start("payer", "go")
            await until(remote, WaitBegan)
            for turn in (local, remote):
                [pending] = await turn.pending_approvals()
                await turn.approve(pending)
            reports = [await turn.result() for turn in (local, remote)]
        types = [scheduled(await events_of(work.client, turn))[0] for turn in (local, remote)]

    assert [report.output for report in reports] == ["done", "done"]
    assert types == ["perdure.call_model", "perdure.resolve_agent"]


@pytest.mark.accepts("E119")
@pytest.mark.parametrize(("given", "expected"), [(None, True), ("1", True), ("0", False)])
def test_setting_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, given: str | None, expected: bool
) -> None:
    """It is on by default."""
    if given is not None:
        monkeypatch.setenv("PERDURE_LOCAL_LOOKUPS", given)

    assert WorkerSettings.from_environment().local_lookups is expected


@pytest.mark.accepts("E120")
async def test_lookup_that_fails_is_repeated_by_an_activity_with_the_error_of_the_turn(
    runtime: Runtime,
) -> None:
    """Two tools have the same name; the agent was registered after the worker had begun."""
    registry = Registry()
    providers = {"scripted": ScriptedModel("never")}
    async with runtime(AgentWorker(registry, providers=providers)) as client:
        registry.add(Agent(name="twice", model="scripted:x", tools=[pay], toolboxes=[PAYING]))
        turn = await client.start("twice", "go")
        end = await ended(turn)
        events = await events_of(client, turn)

    assert isinstance(end, errors.DuplicateToolError)
    assert scheduled(events) == ["perdure.resolve_agent"]
    assert [key_of(one) for one in events if key_of(one) is not None] == [AgentKey(), AgentKey()]


@pytest.mark.accepts("E120")
async def test_turn_that_is_cancelled_before_its_first_task_has_no_agent(
    perdure_server: str,
) -> None:
    """The lookup is cancelled with it, and readers agree with the workflow."""
    async with queue(perdure_server) as work:
        turn = await work.client.start("plain", "go")
        await turn.cancel("enough")
        await until(turn, CancelRequested)
        async with work.worker(AgentWorker([PLAIN, HELPER]), ScriptedModel("done")):
            end = await ended(turn)

    assert isinstance(end, errors.TurnCancelledError)
