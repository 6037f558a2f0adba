"""Workers of two releases on one task queue, and which worker did what according to history."""

import asyncio
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from perdure.clients import Turn
from perdure.temporal.names import CALL_MODEL

from .stories import GONE_S, ROOT, Process, Story, kill

PREVIOUS, THIS = "previous", "this"


class Deploy:
    """Workers of both releases on the queue of a test.

    A process is named after its release, with a number.
    """

    def __init__(self, story: Story, previous: Path, **environment: str) -> None:
        self._story = story
        self._more = environment
        self._trees = {PREVIOUS: previous, THIS: ROOT}
        self._started: Counter[str] = Counter()
        self._running: dict[str, Process] = {}

    async def start(self, release: str) -> None:
        """Start a worker of a release, and wait until it polls."""
        self._started[release] += 1
        name = f"{release}-{self._started[release]}"
        with self._log(name).open("wb") as output:
            self._running[release] = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    "perdure",
                    "worker",
                    "two_releases_app:make",
                    "--address",
                    self._story._address,
                ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                cwd=self._trees[release],
                env={**os.environ, **self._environment(name)},
                start_new_session=True,
            )
        self._story.workers.append(self._running[release])
        await self._polls(name, self._running[release])
        package = self._trees[release] / "perdure"
        assert (
            f"code: {package / '__init__.py'} {package / 'workflows/__init__.py'}\n"
            in self._said(name)
        )

    async def replace(self, release: str) -> None:
        """Kill the worker of a release, and start another."""
        await kill(self._running[release])
        await self.start(release)

    async def stop(self, release: str) -> None:
        """Kill the worker of a release."""
        await kill(self._running[release])

    def _log(self, name: str) -> Path:
        return self._story._folder / f"{name}.log"

    def _said(self, name: str) -> str:
        return self._log(name).read_text(encoding="utf-8")

    def _environment(self, name: str) -> dict[str, str]:
        return {
            "E2E_PROVIDER": self._story.stub.base_url,
            "E2E_JOURNAL": str(self._story._journal),
            "E2E_NAME": name,
            "PERDURE_TASK_QUEUE": self._story.client.task_queue,
            "PYTHONPATH": str(Path(__file__).parent),
            "PERDURE_SUPERVISOR": "0",
            "NO_PROXY": "*",
            **self._more,
        }

    async def _polls(self, name: str, process: Process) -> None:
        """Wait until a worker polls for both kinds of tasks."""
        for kind in (
            TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        ):
            async with asyncio.timeout(GONE_S):
                while name not in await self._pollers(kind):
                    assert process.returncode is None, self._said(name)
                    await asyncio.sleep(0.05)

    async def _pollers(self, kind: TaskQueueType.ValueType) -> set[str]:
        client = self._story.client
        asked = DescribeTaskQueueRequest(
            namespace=client.temporal.namespace,
            task_queue=TaskQueue(name=client.task_queue),
            task_queue_type=kind,
        )
        return {
            poller.identity
            for poller in (
                await client.temporal.workflow_service.describe_task_queue(asked)
            ).pollers
        }


@pytest.fixture
def previous_release(tmp_path: Path) -> Path:
    """The tree of the previous release: the commit in the file `tests/e2e/previous_release`.

    A release updates that file. The tree is checked out from git and run unchanged, on the packages
    of this environment.
    """
    commit = (ROOT / "tests/e2e/previous_release").read_text(encoding="utf-8").strip()
    if shutil.which("git") is None:
        pytest.skip("there is no git to take the previous release from")
    made = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False
    )
    if made.returncode:
        reason = made.stderr.decode(errors="replace").strip()
        pytest.skip(f"the previous release is not in this clone, which may be shallow: {reason}")
    tree = tmp_path / "previous"
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


@dataclass(frozen=True)
class Hands:
    """The processes that took part in a turn or a session.

    Attributes:
        decided: They ran its workflow tasks.
        worked: They ran its activities.
        crossed: Model calls that one release scheduled and the other made.
    """

    decided: frozenset[str]
    worked: frozenset[str]
    crossed: int

    @property
    def are_of_both(self) -> bool:
        """Whether both releases ran workflow tasks and activities."""
        return self.decided_by_both and _releases(self.worked) == {PREVIOUS, THIS}

    @property
    def decided_by_both(self) -> bool:
        """Whether both releases ran workflow tasks."""
        return _releases(self.decided) == {PREVIOUS, THIS}


def _releases(names: Iterable[str]) -> set[str]:
    return {name.partition("-")[0] for name in names}


async def hands(story: Story, turn: Turn) -> Hands:
    """The processes that took part in a turn, according to its history."""
    return hands_in((await story.client.history(turn)).events)


def hands_in(history: Iterable[HistoryEvent]) -> Hands:
    """The processes that took part in the workflow with this history."""
    events = {event.event_id: event for event in history}
    ran = list(_activities(events))
    return Hands(
        decided=frozenset(
            _decider(event)
            for event in events.values()
            if event.HasField("workflow_task_completed_event_attributes")
        ),
        worked=frozenset(worker for _, _, worker in ran),
        crossed=sum(
            kind == CALL_MODEL and decider.partition("-")[0] != worker.partition("-")[0]
            for kind, decider, worker in ran
        ),
    )


def _activities(events: Mapping[int, HistoryEvent]) -> Iterator[tuple[str, str, str]]:
    """The type of each activity that was run, which process scheduled it, and which ran it."""
    for event in events.values():
        if event.HasField("activity_task_started_event_attributes"):
            started = event.activity_task_started_event_attributes
            scheduled = events[started.scheduled_event_id].activity_task_scheduled_event_attributes
            yield (
                scheduled.activity_type.name,
                _decider(events[scheduled.workflow_task_completed_event_id]),
                started.identity,
            )


def _decider(event: HistoryEvent) -> str:
    return event.workflow_task_completed_event_attributes.identity
