"""Empties a version: asks what is pinned to it to move on, and says what stays and why.

What waits is asked with the signal `move_on`, again and again at growing intervals. A workflow with
a call or a child in flight moves on when these have ended. It can be moved before that with an
override, and then continues in the same run on the code of another version.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingWorkflowTaskState
from temporalio.api.workflow.v1 import VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest
from temporalio.client import Client
from temporalio.client import WorkflowExecution as Listed
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.base import Value
from perdure.temporal.names import MOVE_ON
from perdure.text import one_line, word
from perdure.values.moments import period_in_words
from perdure.worker.deploying.versions import (
    RESOURCE,
    Deployment,
    current_of,
    pinned_query,
    shown,
)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 3600.0
"""The time after which a workflow that has not moved is asked again; it doubles each time."""
_LOOK_S = 1.0
_SURE_S = 3.0
"""How long nothing has to be pinned: the server's list is up to some seconds old."""
_AT_ONCE = 20
_SHOWN = 20
"""The number of workflows about which the server is asked what holds them."""
_MOVED_WITHIN_S = 30.0

Replays = Callable[[str, str], Awaitable[str]]
"""Returns why a run of a workflow, by their ids, does not replay on this code; empty if it does."""


class Held(Value):
    """A running workflow that is pinned to a version.

    Attributes:
        id: Its id.
        type: The type of the workflow.
        reason: What it waits for before it can move on.
    """

    id: str
    type: str
    reason: str


class DrainProgress(Value):
    """How far a version is drained.

    Attributes:
        deployment: The name of the deployment.
        build_id: The build id of the version.
        pinned: The number of running workflows that are pinned to it.
        moved: How many have left it since the command began: they moved on, or ended.
        overridden: How many of them were moved by an override.
        held: The first of those that are left, once they had time to move on.
        drained: Whether none is left.
    """

    deployment: str
    build_id: str
    pinned: int
    moved: int = 0
    overridden: int = 0
    held: tuple[Held, ...] = ()
    drained: bool = False


@dataclass
class _NextRequest:
    """When a workflow is asked again, and after which pause then."""

    due: float
    pause_s: float = _FIRST_PAUSE_S


@dataclass
class Drain:
    """The emptying of one version.

    Attributes:
        deployment: The deployment.
        build_id: The version.
        replays: With it, what cannot move on by itself is moved by an override if it replays.
    """

    deployment: Deployment
    build_id: str
    replays: Replays | None = None
    _asked: dict[str, _NextRequest] = field(default_factory=dict)
    _overridden: set[str] = field(default_factory=set)
    _refused: dict[str, str] = field(default_factory=dict)

    async def progress(self) -> AsyncIterator[DrainProgress]:
        """Ask, and yield how far it is, until nothing is left.

        Raises:
            InvalidRequestError: The version gets new work, or does not exist.
        """
        await self._check()
        began = time.monotonic()
        empty_since: float | None = None
        while True:
            pinned = await self._pinned()
            await _each(pinned, self._ask)
            is_late = time.monotonic() - began > _FIRST_PAUSE_S
            held = await self._held(pinned) if is_late else ()
            if held and self.replays is not None:
                await _each(self._movable(pinned), self._move)
            empty_since = None if pinned else empty_since or time.monotonic()
            is_empty = empty_since is not None and time.monotonic() - empty_since >= _SURE_S
            yield DrainProgress(
                deployment=self.deployment.name,
                build_id=self.build_id,
                pinned=len(pinned),
                moved=len(self._asked.keys() - {left.run_id for left in pinned}),
                overridden=len(self._overridden),
                held=held,
                drained=is_empty,
            )
            if is_empty:
                return
            await asyncio.sleep(_LOOK_S)

    async def _check(self) -> None:
        statuses = {status.build_id: status for status in await self.deployment.versions()}
        status = statuses.get(self.build_id)
        if status is None:
            known = ", ".join(map(shown, statuses)) or "none"
            raise errors.InvalidRequestError(
                f"the deployment {self.deployment.name!r} has no version {self.build_id!r}; it has"
                f" {known}"
            )
        if status.state in ("current", "ramping"):
            ends = f", or `perdure deploy ramp {self.build_id} 0`" if status.percent else ""
            raise errors.InvalidRequestError(
                f"{self.build_id!r} is the {status.state} version of {self.deployment.name!r} and"
                f" gets new work; promote another version first{ends}"
            )

    async def _pinned(self) -> Sequence[Listed]:
        query = pinned_query(self.deployment.name, self.build_id)
        with RESOURCE.asking(self.deployment.name):
            return [left async for left in self.deployment.client.list_workflows(query)]

    def _movable(self, pinned: Sequence[Listed]) -> Sequence[Listed]:
        return [left for left in pinned if left.run_id not in self._refused]

    async def _ask(self, left: Listed) -> None:
        """Ask a workflow to move on, unless it was asked a short while ago."""
        asked, now = self._asked.get(left.run_id), time.monotonic()
        if asked is not None and now < asked.due:
            return
        pause_s = _FIRST_PAUSE_S if asked is None else min(2 * asked.pause_s, _LONGEST_PAUSE_S)
        self._asked[left.run_id] = _NextRequest(now + pause_s, pause_s)
        await _ask(self.deployment.client, left)

    async def _held(self, pinned: Sequence[Listed]) -> tuple[Held, ...]:
        shown_first = sorted(pinned, key=lambda left: left.start_time)[:_SHOWN]
        reasons = await asyncio.gather(*map(self._reason, shown_first))
        return tuple(
            Held(id=left.id, type=left.workflow_type, reason=reason)
            for left, reason in zip(shown_first, reasons, strict=True)
            if reason
        )

    async def _reason(self, left: Listed) -> str:
        """Return what keeps a workflow from moving on; empty if it is over meanwhile."""
        if left.run_id in self._refused:
            return self._refused[left.run_id]
        handle = self.deployment.client.get_workflow_handle(left.id, run_id=left.run_id)
        raw = await RESOURCE.asked_if_known(left.id, handle.describe())
        if raw is None:
            return ""
        described, now = raw.raw_description, datetime.now(UTC)
        task = described.pending_workflow_task
        if task.attempt > 1:
            return "its workflow task fails: the log of the workers says why"
        if task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED:
            return f"waits for a worker of {shown(self.build_id)}"
        for child in described.pending_children:
            return f"waits for its child {word(child.workflow_id)}"
        for call in described.pending_activities:
            since = now - call.last_started_time.ToDatetime(UTC)
            age = f" for {period_in_words(timedelta(seconds=int(since.total_seconds())))}"
            name = one_line(call.activity_type.name, 80)
            return f"{name} runs{age if call.last_started_time.seconds else ''}"
        return "has not moved on yet; it may wait for a delay or a limit of a provider"

    async def _move(self, left: Listed) -> None:
        """Move a workflow to the current version in the same run, if it replays on this code."""
        assert self.replays is not None
        refusal = await self.replays(left.id, left.run_id)
        if refusal:
            self._refused[left.run_id] = f"does not replay on this code: {one_line(refusal, 200)}"
            return
        target = current_of((await self.deployment.described()).routing_config)
        try:
            await self._overriding(left, VersioningOverride(auto_upgrade=True))
            await _ask(self.deployment.client, left)
            has_moved = await self._has_moved(left, target)
        finally:
            # without it, the workflow would follow each later version in the middle of a run
            await self._overriding(left, None)
        if has_moved:
            self._overridden.add(left.run_id)
        else:
            self._refused[left.run_id] = (
                f"did not move within {_MOVED_WITHIN_S:g} s: do workers of {shown(target)} poll?"
            )

    async def _overriding(self, left: Listed, override: VersioningOverride | None) -> None:
        client = self.deployment.client
        request = UpdateWorkflowExecutionOptionsRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=left.id, run_id=left.run_id),
            workflow_execution_options=WorkflowExecutionOptions(versioning_override=override),
            update_mask=FieldMask(paths=["versioning_override"]),
        )
        service = client.workflow_service
        await _unless_over(lambda: service.update_workflow_execution_options(request))

    async def _has_moved(self, left: Listed, target: str) -> bool:
        """Wait until a workflow is on a version, or over; return False if that takes too long."""
        deadline = time.monotonic() + _MOVED_WITHIN_S
        handle = self.deployment.client.get_workflow_handle(left.id, run_id=left.run_id)
        while time.monotonic() < deadline:
            described = await RESOURCE.asked_if_known(left.id, handle.describe())
            if described is None or described.close_time is not None:
                return True
            info = described.raw_description.workflow_execution_info.versioning_info
            if info.deployment_version.build_id == target:
                return True
            await asyncio.sleep(_LOOK_S / 4)
        return False


async def _ask(client: Client, left: Listed) -> None:
    handle = client.get_workflow_handle(left.id, run_id=left.run_id)
    await _unless_over(lambda: handle.signal(MOVE_ON))


async def _unless_over(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask the server about a workflow that may be over meanwhile."""
    try:
        await ask()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise RESOURCE.translated("", error) from error


async def _each(items: Sequence[Listed], do: Callable[[Listed], Awaitable[None]]) -> None:
    """Do something with each item, some at a time."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def within(item: Listed) -> None:
        async with slots:
            await do(item)

    await asyncio.gather(*map(within, items))
