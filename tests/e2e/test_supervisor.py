"""Workers whose supervisor reports what they had in flight when they died."""

import asyncio
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType, PendingWorkflowTaskState
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle

from perdure import Task, errors, limits
from perdure.clients import Turn
from perdure.temporal.liveness import INTERVAL, timeout_for
from perdure.turn.facts import WaitBegan

from ..conftest import eventually
from ..support.e2e.probing import ALIVE, READY, Probe, probe
from ..support.e2e.proxy import Proxy
from ..support.e2e.stories import (
    UNKNOWN,
    Story,
    Tell,
    asks,
    kill,
    kill_all,
    results,
    says,
    supervised,
    use,
)
from ..support.e2e.supervised import TWO, drained, has_supervisor, ready
from ..support.mcp.processes import alive, pids
from ..support.spending import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the children are found in /proc"),
]

__all__ = ["has_supervisor", "probe"]

SOON_S = timeout_for(INTERVAL, timedelta(seconds=2.5)).total_seconds() / 2
"""Sooner than the heartbeat timeout of a call that has just begun; measured is half a second."""
STARTED = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED


def process(identity: str) -> int:
    """The process number in the identity of a worker."""
    return int(identity.partition("@")[0])


async def described(temporal: Client, turn: Turn) -> WorkflowExecutionDescription:
    """The turn as Temporal has it."""
    handle: WorkflowHandle[object, object] = temporal.get_workflow_handle(turn.id)
    return await handle.describe()


async def kill_worker_of(story: Story, turn: Turn) -> float:
    """`kill -9` of the process that runs the activities of a turn; returns when."""
    pending = (await described(story.temporal, turn)).raw_description.pending_activities
    identities = {activity.last_worker_identity for activity in pending}
    assert len(identities) == 1
    os.kill(process(identities.pop()), signal.SIGKILL)
    return time.time()


async def task_started(temporal: Client, turn: Turn) -> None:
    """Wait until a worker has a workflow task of a turn."""
    async with asyncio.timeout(60):
        state = None
        while state != STARTED:
            await asyncio.sleep(0.05)
            description = (await described(temporal, turn)).raw_description
            state = description.pending_workflow_task.state


@pytest.mark.accepts("P37")
async def test_model_call_of_a_dead_child_is_made_again_at_once(tell: Tell) -> None:
    """The other process repeats it before a heartbeat is missed, and counts it as lost."""
    story = await tell(asks(use("charge", "one"), delay_s=1.5), says("done"))
    await story.worker(**TWO)
    await ready(story)
    turn = await story.start()
    await story.asked(1)
    killed = await kill_worker_of(story, turn)
    await story.asked(2)

    report = await story.report(turn)

    assert story.log()[1].at - killed < SOON_S
    assert report.output == "done #3"
    assert story.requests() == {1: 2, 2: 1}
    assert await story.attempts(turn) == {"step-1": 2, "step-1.call-1": 1, "step-2": 1}
    assert "activities=1 workflow_tasks=0" in story.said()


@pytest.mark.accepts("P38")
async def test_calls_of_a_dead_child_end_as_those_of_any_lost_worker(tell: Tell) -> None:
    """Three at once: one may be repeated and runs again under its key; the outcome of the others
    is unknown.
    """
    story = await tell(
        asks(
            use("charge", "one", takes_s=60),
            use("fetch", "two", first_s=60),
            use("charge", "three", takes_s=60),
        ),
        says("done"),
    )
    await story.worker("tests.support.e2e.supervisor_app:make_parallel", **TWO)
    await ready(story)
    turn = await story.start()
    await story.calls_begun(4)
    killed = await kill_worker_of(story, turn)

    report = await story.report(turn)

    assert story.log()[-1].at - killed < SOON_S
    assert results(report) == [f"charge: {UNKNOWN}", "two by attempt 2", f"charge: {UNKNOWN}"]
    assert sorted(story.ran()) == [("one", 1), ("three", 1), ("two", 1), ("two", 2)]
    assert len(story.keys("two")) == 1
    assert "activities=3 workflow_tasks=0" in story.said()


@pytest.mark.accepts("Y125")
async def test_cancel_and_decision_while_no_process_lives_count_once(tell: Tell) -> None:
    """The only process is killed, in a call of one turn and in a wait of another one. The first is
    cancelled and the second is approved before there is another process: what ran does not run
    again, and what was approved runs once.
    """
    story = await tell(asks(use("charge", "it")), says("done"))
    worker = await story.worker()
    cancelled = await story.start(labels={"takes_s": "60"})
    await story.begun("it")
    task: Any = Task(content="go", requires_human_approval=True)
    approved = await story.start(task)
    await until(approved, WaitBegan)
    [waiting] = await approved.pending_approvals()
    os.kill(worker.pid, signal.SIGSTOP)  # so that it starts no other process yet
    await kill(worker)
    deciding = asyncio.create_task(approved.approve(waiting))
    await cancelled.cancel("enough")
    await asyncio.sleep(1)
    os.kill(worker.pid, signal.SIGCONT)
    await deciding
    with pytest.raises(errors.TurnCancelledError) as caught:
        await asyncio.wait_for(cancelled.result(), 60)
    report = await story.report(approved)

    assert results(report) == ["it by attempt 1"]
    assert story.ran() == [("it", 1), ("it", 1)]
    assert len(story.keys("it")) == 2
    assert caught.value.report is not None
    assert "charge" in str(caught.value.report.messages)


@pytest.mark.accepts("Y125")
async def test_answer_is_not_told_if_the_process_that_checks_it_is_killed(tell: Tell) -> None:
    """Another process checks it, and refuses it: neither before nor afterwards has anybody seen it
    but history.
    """
    story = await tell(says("The PASSWORD is hunter2."))
    worker = await story.worker("tests.support.e2e.supervisor_app:make_guarded")
    turn = await story.start()
    await story.begun("check")
    told: list[object] = [await turn.status()]
    await kill(worker)
    with pytest.raises(errors.GuardrailError) as caught:
        await asyncio.wait_for(turn.result(), 60)
    told += [caught.value.report, await turn.status(), story.said()]
    told += [event.text async for event in turn.events()]

    assert story.ran() == [("check", 1), ("check", 2)]
    assert story.requests() == {1: 1}
    assert [one for one in map(str, told) if "hunter2" in one] == []


@pytest.mark.accepts("P39")
async def test_workflow_task_of_a_dead_child_is_given_back(tell: Tell) -> None:
    """The process is stopped, so that it has the task when it is killed. The timeout would be
    20 s.
    """
    story = await tell(says("done"))
    await story.worker(**TWO)
    await ready(story)
    turn = await story.start(delay=timedelta(seconds=6))
    await until(turn, WaitBegan)
    history = await story.client.history(turn)
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    identity = next(
        event.workflow_task_completed_event_attributes.identity
        for event in history.events
        if event.event_type == completed
    )
    os.kill(process(identity), signal.SIGSTOP)
    await task_started(story.temporal, turn)
    os.kill(process(identity), signal.SIGKILL)
    killed = time.time()

    report = await story.report(turn)

    assert story.log()[0].at - killed < SOON_S
    assert report.output == "done #1"
    assert "activities=0 workflow_tasks=1" in story.said()


@pytest.mark.accepts("P40")
async def test_child_that_dies_at_its_start_is_started_again_ever_more_slowly(tell: Tell) -> None:
    """Each death is logged with the pause; SIGTERM ends the supervisor in a pause."""
    story = await tell(says("never"))
    worker = await story.worker("tests.support.e2e.supervisor_app:make_dying")
    await eventually(lambda: "again in 1 s" in story.said(), "the third death")

    worker.send_signal(signal.SIGTERM)
    code = await asyncio.wait_for(worker.wait(), 60)

    told = [line.partition("; ")[2] for line in story.said().splitlines() if "SIGKILL" in line]
    assert told[:3] == [
        "it is started again",
        "it is started again in 0.5 s",
        "it is started again in 1 s",
    ]
    assert code == 0


@pytest.mark.accepts("P41")
async def test_child_that_gives_up_ends_its_supervisor_with_its_exit_code(tell: Tell) -> None:
    """A mistake in the set-up is not started again: the process manager has to know."""
    story = await tell(says("never"))

    worker = await story.worker("tests.support.e2e.app:nothing", **TWO)

    assert await asyncio.wait_for(worker.wait(), 60) == 2
    assert "has nothing called 'nothing'" in story.said()
    assert "started again" not in story.said()


@pytest.mark.accepts("P42")
async def test_signal_to_all_processes_drains_and_a_second_one_stops(tell: Tell) -> None:
    """As systemd sends it. The call in flight goes on after the first, and not after the second."""
    story = await tell(asks(use("charge", "one", takes_s=60)), says("done"))
    worker = await story.worker()
    await ready(story, 1)
    turn = await story.start()
    await story.begun("one")
    for pid in (worker.pid, *supervised(worker.pid)):
        os.kill(pid, signal.SIGTERM)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.wait(), 1.5)
    in_flight = len((await described(story.temporal, turn)).raw_description.pending_activities)
    worker.send_signal(signal.SIGTERM)

    assert await asyncio.wait_for(worker.wait(), 60) == 1
    assert in_flight == 1
    await turn.cancel("enough")


@pytest.mark.accepts("P42")
async def test_drained_child_ends_its_call_and_the_supervisor_exits_with_0(tell: Tell) -> None:
    """The result of the call is recorded, and nothing is reported as lost."""
    story = await tell(asks(use("charge", "one", takes_s=2)), says("done"))
    worker = await story.worker()
    await ready(story, 1)
    turn = await story.start()
    await story.begun("one")
    worker.send_signal(signal.SIGTERM)
    code = await asyncio.wait_for(worker.wait(), 60)
    await story.worker()

    report = await story.report(turn)

    assert code == 0
    assert results(report) == ["one by attempt 1"]
    assert "lost" not in story.said()


@pytest.mark.accepts("P39")
async def test_workflow_task_that_reaches_a_draining_child_too_late_is_given_back(
    tell: Tell, perdure_server: str
) -> None:
    """Temporal has sent it, and the child has interrupted its poll. The timeout would be 20 s."""
    proxy, temporal = Proxy(perdure_server), await Client.connect(perdure_server)
    await proxy.start()
    story = await tell(asks(use("charge", "one", takes_s=1)), says("done"), address=proxy.address)
    worker = await story.worker()
    await ready(story, 1)
    turn = await story.start()
    await story.begun("one")
    proxy.hold()
    await task_started(temporal, turn)
    worker.send_signal(signal.SIGTERM)
    await eventually(lambda: "draining for up to" in story.said(), "it drains")
    proxy.release()
    code = await asyncio.wait_for(worker.wait(), 60)
    ended = time.time()
    await story.worker()

    report = await story.report(turn)
    await proxy.close()

    assert code == 0
    assert results(report) == ["one by attempt 1"]
    assert "activities=0 workflow_tasks=1" in story.said()
    assert story.log()[1].at - ended < limits.TASK_TIMEOUT.total_seconds() / 2


@pytest.mark.accepts("P43")
async def test_child_of_a_dead_supervisor_drains(tell: Tell) -> None:
    """It finishes its call and ends, so that no worker is left that nobody manages."""
    story = await tell(asks(use("charge", "one", takes_s=2)), says("done"))
    worker = await story.worker()
    await ready(story, 1)
    turn = await story.start()
    await story.begun("one")
    (child,) = supervised(worker.pid)
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    await eventually(lambda: not alive([child]), "it ends")
    await story.worker()

    report = await story.report(turn)

    assert results(report) == ["one by attempt 1"]
    assert story.ran() == [("one", 1)]


@pytest.mark.accepts("P44")
async def test_lost_machine_is_noticed_by_its_heartbeats(tell: Tell) -> None:
    """Supervisor and child are killed: another worker goes on as without them."""
    story = await tell(asks(use("charge", "one"), delay_s=1.5), says("done"))
    first = await story.worker()
    await ready(story, 1)
    turn = await story.start()
    await story.asked(1)
    await story.worker()
    await kill_all(first)

    report = await story.report(turn)

    assert story.requests() == {1: 2, 2: 1}
    assert report.output == "done #3"
    assert "lost" not in story.said()


@pytest.mark.accepts("P45")
async def test_program_of_a_tool_ends_with_its_worker(tell: Tell, tmp_path: Path) -> None:
    """The tool runs again at once, so what its lost attempt has started must not go on."""
    file = tmp_path / "program"
    story = await tell(
        asks({"name": "leave_a_process", "arguments": {"what": str(file)}}), says("done")
    )
    await story.worker("tests.support.e2e.supervisor_app:make_leaving", **TWO)
    await ready(story)
    turn = await story.start()
    await eventually(lambda: file.exists() and file.read_text() != "", "it begins")
    program = int(file.read_text())
    await kill_worker_of(story, turn)

    await story.report(turn)

    await eventually(lambda: not alive([program]), "the program ends")


@pytest.mark.accepts("P45")
async def test_mcp_server_of_a_dead_child_ends(tell: Tell, tmp_path: Path) -> None:
    """With its child and grandchild; the call may not be repeated."""
    pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")
    story = await tell(asks({"name": "notes__spawn", "arguments": {}}), says("done"))
    await story.worker("tests.support.e2e.mcp_app:make", E2E_NOTES=str(tmp_path), **TWO)
    await ready(story)
    turn = await story.start()
    await eventually(lambda: len(pids(tmp_path)) == 3, "the server is at work")
    await kill_worker_of(story, turn)

    report = await turn.result()

    assert results(report) == [f"notes__spawn: {UNKNOWN}"]
    await eventually(lambda: not alive(pids(tmp_path)), "all of them end")


@pytest.mark.accepts("P46")
async def test_killed_process_is_replaced_while_the_others_go_on(tell: Tell, probe: Probe) -> None:
    """Two processes, one of which is killed: there are two again, with other numbers."""
    story = await tell(says("done"))
    worker = await story.worker(PERDURE_HEALTH_PORT=str(probe.port), **TWO)
    await ready(story)
    await probe.wait("/readyz", READY)
    first, second = supervised(worker.pid)
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: "killed by SIGKILL" in story.said(), "it is reaped")
    answers = [await probe.get("/healthz") for _ in range(20)]
    await ready(story, 3)

    report = await story.report(await story.start())

    assert report.output == "done #1"
    assert answers == [ALIVE] * 20
    assert len(supervised(worker.pid)) == 2
    assert second in supervised(worker.pid)
    await drained(worker)


@pytest.mark.accepts("Y82")
async def test_frozen_child_is_killed_and_its_call_made_again(tell: Tell) -> None:
    """It is stopped; the other process repeats its call, long before the call's own time limit.

    The call's heartbeats are too far apart to show it.
    """
    story = await tell(asks(use("charge", "one"), delay_s=1.5), says("done"))
    worker = await story.worker(**TWO, PERDURE_HEARTBEAT_S="120")
    await ready(story)
    turn = await story.start()
    await story.asked(1)
    pending = (await described(story.temporal, turn)).raw_description.pending_activities
    frozen = process(pending[0].last_worker_identity)
    os.kill(frozen, signal.SIGSTOP)

    report = await story.report(turn)

    assert report.output == "done #3"
    assert await story.attempts(turn) == {"step-1": 2, "step-1.call-1": 1, "step-2": 1}
    assert f"worker process {frozen} has not run for 15 s; it is killed" in story.said()
    assert worker.returncode is None


@pytest.mark.accepts("Y83")
async def test_suspended_machine_loses_no_process(tell: Tell) -> None:
    """The supervisor and its process are stopped for longer than a frozen process may be."""
    story = await tell(says("done"))
    worker = await story.worker()
    await ready(story, processes=1)
    [child] = supervised(worker.pid)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in (worker.pid, child):
            os.kill(pid, number)
        await asyncio.sleep(18 if number == signal.SIGSTOP else 3)
    turn = await story.start()

    assert (await story.report(turn)).output == "done #1"
    assert supervised(worker.pid) == [child]
    assert "it is killed" not in story.said()


@pytest.mark.accepts("Y84")
async def test_address_in_the_list_of_a_child_is_not_connected_to(tell: Tell) -> None:
    """Who rewrites the list does not get the supervisor's API key, and the report is made."""
    story = await tell(asks(use("charge", "one"), delay_s=1.5), says("done"))
    supervisor = await story.worker(**TWO)
    await ready(story)
    turn = await story.start()
    await story.asked(1)
    callers: list[object] = []
    trap = await asyncio.start_server(lambda *caller: callers.append(caller), "127.0.0.1", 0)
    rewrite_lists(supervisor.pid, f"127.0.0.1:{trap.sockets[0].getsockname()[1]}")
    await kill_worker_of(story, turn)
    await story.report(turn)
    trap.close()

    assert callers == []
    assert "activities=1 workflow_tasks=0" in story.said()


def rewrite_lists(supervisor: int, address: str) -> None:
    """Put an address into the lists of the processes, as any process of the user can."""
    for link in Path(f"/proc/{supervisor}/fd").iterdir():
        if "perdure-held-runs" in str(link.readlink()):
            with link.open("r+b") as file:
                text, _, _ = file.read(2_000)[1:].partition(b"\0")
                changed = {**json.loads(text), "address": address}
                file.seek(1)
                file.write(json.dumps(changed).encode() + b"\0")
