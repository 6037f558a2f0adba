"""How much a tenant may have at the same time: open turns, sessions and batches, and schedules.

Temporal's lists are counted, which may lag a second behind. So a tenant that starts many things at
once may exceed a number for a moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest
from temporalio.service import RPCError

from perdure import errors, limits, validation
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.schedules.status import listed_entry
from perdure.temporal import access
from perdure.temporal.access import Resource
from perdure.temporal.histories.runs import describe
from perdure.temporal.names import BATCHES, SESSION, TURN

if TYPE_CHECKING:
    from perdure.clients.client import AgentClient
    from perdure.clients.gateway.auth import Caller

_A_PAGE = 100
"""The number of schedules in a page of Temporal's list."""
_LAG_S = 2.0
"""The time after which Temporal's lists show what was created or deleted."""


@dataclass(frozen=True)
class Quota:
    """The largest numbers of a tenant. They do not hold for callers without a tenant.

    Attributes:
        turns: The number of turns that are not over, delegates and turns of batches included.
        sessions: The number of sessions that are not closed.
        batches: The number of batches that are not over.
        tasks: The number of tasks in a batch.
        schedules: The number of schedules.

    Raises:
        ConfigurationError: A number is not valid.
    """

    turns: validation.CountOrZero = limits.TENANT_TURNS
    sessions: validation.CountOrZero = limits.TENANT_SESSIONS
    batches: validation.CountOrZero = limits.TENANT_BATCHES
    tasks: validation.CountOrZero = limits.TENANT_TASKS
    schedules: validation.CountOrZero = limits.TENANT_SCHEDULES

    def __post_init__(self) -> None:
        validation.check_fields(Quota, "Quota", self)


async def check_turns(
    client: AgentClient, caller: Caller, turn_id: str | None, count: int = 1
) -> None:
    """Refuse further turns if the tenant would have too many. One that exists is not another one.

    Args:
        client: Asks Temporal for the number of open turns.
        caller: The caller.
        turn_id: The complete id of the turn; None for one that does not exist yet.
        count: The number of turns that would be open at the same time; zero is never refused.

    Raises:
        RefusedError: It would.
    """
    await _check_open(client, caller, access.TURN, (TURN,), caller.quota.turns, turn_id, count)


async def check_sessions(client: AgentClient, caller: Caller, session_id: str) -> None:
    """Refuse another session if the tenant has too many, as `check_turns` does."""
    quota = caller.quota.sessions
    await _check_open(client, caller, access.SESSION, (SESSION,), quota, session_id)


async def check_batches(
    client: AgentClient, caller: Caller, batch_id: str | None, tasks: int, count: int = 1
) -> None:
    """Refuse batches with too many tasks, or further ones, as `check_turns` does."""
    check_tasks(caller, tasks)
    quota = caller.quota.batches
    await _check_open(client, caller, access.BATCH, BATCHES, quota, batch_id, count)


def check_tasks(caller: Caller, tasks: int) -> None:
    """Refuse a batch with too many tasks.

    Raises:
        RefusedError: It has.
    """
    if caller.tenant is not None and tasks > caller.quota.tasks:
        raise RefusedError(
            429,
            "TOO_MANY_REQUESTS",
            f"a batch of {caller.tenant!r} has at most {caller.quota.tasks} tasks, not {tasks};"
            " start several batches, one after the other",
        )


class ScheduleIds:
    """The ids of the schedules of a namespace, which a process keeps for a moment if they are many.

    Temporal cannot list the schedules of one tenant, so the whole list is read, page by page, once
    for all requests that wait for it. `few` are not kept. What this process has created or deleted
    since shortly before a list was read is added to the list or left out.
    """

    def __init__(self, few: int = _A_PAGE) -> None:
        self._few = few
        self._listed: list[str] = []
        self._since = 0.0
        """The time from which changes may be missing in the list."""
        self._kept_until = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._changes: dict[str, tuple[float, bool]] = {}
        """When schedules were changed here, and whether they exist since; the last change last."""

    async def of(self, client: AgentClient, caller: Caller) -> list[str]:
        """Return the ids of the schedules of a caller.

        Raises:
            ServerUnreachableError: Temporal does not answer.
        """
        if self._reading is None and time.monotonic() >= self._kept_until:
            self._since = time.monotonic() - _LAG_S
            self._reading = asyncio.create_task(self._read(client))
        if self._reading is not None:
            await asyncio.shield(self._reading)  # others wait for it as well
        ids = dict.fromkeys(self._listed)
        for schedule_id, (at, exists) in self._changes.items():
            if at < self._since:
                continue
            if exists:
                ids[schedule_id] = None
            else:
                ids.pop(schedule_id, None)
        return [schedule_id for schedule_id in ids if schedule_id.startswith(caller.prefix)]

    async def _read(self, client: AgentClient) -> None:
        try:
            self._listed = [schedule_id async for schedule_id in client.schedule_ids()]
            if len(self._listed) > self._few:
                self._kept_until = time.monotonic() + limits.HTTP_SCHEDULES.total_seconds()
        finally:
            self._reading = None

    def note(self, schedule_id: str, *, exists: bool) -> None:
        """Note that a schedule was created or deleted here, which a list may not show yet."""
        now = time.monotonic()
        self._changes.pop(schedule_id, None)
        self._changes[schedule_id] = now, exists
        is_used = self._reading is not None or now < self._kept_until
        oldest = self._since if is_used else now - _LAG_S
        while next(iter(self._changes.values()))[0] < oldest:
            del self._changes[next(iter(self._changes))]


async def check_schedules(
    client: AgentClient, caller: Caller, schedule_id: str, known: ScheduleIds
) -> None:
    """Refuse another schedule if the tenant has too many, as `check_turns` does."""
    if caller.tenant is None:
        return
    quota = caller.quota.schedules
    is_new = await listed_entry(client.temporal, schedule_id) is None
    if is_new and len(await known.of(client, caller)) >= quota:
        raise _too_many(caller, quota, "schedules", "delete one that is not used")


async def _check_open(
    client: AgentClient,
    caller: Caller,
    resource: Resource,
    workflows: Sequence[str],
    quota: int,
    own_id: str | None,
    count: int = 1,
) -> None:
    if caller.tenant is None or not count:
        return
    plural = resource.subject("")
    if count > max(quota, 1):
        raise RefusedError(
            429,
            "TOO_MANY_REQUESTS",
            f"tenant {caller.tenant!r} may have {quota} open {plural}, and this would open {count};"
            " ask for fewer, such as those of a shorter range",
        )
    if count + await _open(client, caller, workflows) <= quota:
        return
    if own_id is not None and await _exists(client, resource, own_id):
        return
    raise _too_many(caller, quota, f"open {plural}", "wait until one is over, or end one")


async def _exists(client: AgentClient, resource: Resource, own_id: str) -> bool:
    """Whether there is a workflow with an id, which may be over.

    Raises:
        PerdureError: Temporal does not answer.
    """
    describing = describe(client.temporal, own_id, retry=True)
    return await resource.asked_if_known(own_id, describing) is not None


async def _open(client: AgentClient, caller: Caller, workflows: Sequence[str]) -> int:
    """Return the number of open workflows of the tenant.

    Raises:
        ServerUnreachableError: Temporal does not answer.
    """
    types = ", ".join(f"'{name}'" for name in workflows)
    query = (
        f"WorkflowType IN ({types}) AND ExecutionStatus = 'Running'"
        f" AND WorkflowId STARTS_WITH '{caller.prefix}'"
    )
    temporal = client.temporal
    request = CountWorkflowExecutionsRequest(namespace=temporal.namespace, query=query)
    try:
        counted = await temporal.workflow_service.count_workflow_executions(request, retry=True)
    except RPCError as error:
        raise errors.ServerUnreachableError(
            f"Temporal cannot be asked how much the tenant has: {error.message}"
        ) from error
    return counted.count


def _too_many(caller: Caller, quota: int, resources: str, advice: str) -> RefusedError:
    return RefusedError(
        429,
        "TOO_MANY_REQUESTS",
        f"tenant {caller.tenant!r} may have {quota} {resources}, and this would be more; {advice}",
        headers={"Retry-After": str(limits.HTTP_RETRY.seconds)},
    )
