"""How much a tenant may have at the same time: open turns, sessions and batches, and schedules.

Temporal's lists are counted, which may lag a second behind. So a tenant that starts many things at
once may exceed a number for a moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest
from temporalio.service import RPCError

from perdure import errors, limits, validation
from perdure.clients.gateway.problems import RefusedError
from perdure.temporal import search_attributes
from perdure.temporal.names import BATCH, SESSION, TURN

if TYPE_CHECKING:
    from perdure.clients.client import AgentClient
    from perdure.clients.gateway.auth import Caller


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


async def check_turns(client: AgentClient, caller: Caller, turn_id: str | None) -> None:
    """Refuse another turn if the tenant has too many. A turn that exists is not another one.

    Raises:
        RefusedError: It has.
    """
    await _check_open(client, caller, TURN, caller.quota.turns, "turns", turn_id)


async def check_sessions(client: AgentClient, caller: Caller, session_id: str) -> None:
    """Refuse another session if the tenant has too many, as `check_turns` does."""
    await _check_open(client, caller, SESSION, caller.quota.sessions, "sessions", session_id)


async def check_batches(client: AgentClient, caller: Caller, batch_id: str, tasks: int) -> None:
    """Refuse a batch with too many tasks, or another one, as `check_turns` does."""
    check_tasks(caller, tasks)
    await _check_open(client, caller, BATCH, caller.quota.batches, "batches", batch_id)


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


async def check_schedules(client: AgentClient, caller: Caller, schedule_id: str) -> None:
    """Refuse another schedule if the tenant has too many, as `check_turns` does."""
    if caller.tenant is None:
        return
    ids = [one async for one in client.schedule_ids(caller.prefix)]
    others = len(ids) - (schedule_id in ids)
    if others >= caller.quota.schedules:
        raise _too_many(caller, caller.quota.schedules, "schedules", "delete one that is not used")


async def _check_open(
    client: AgentClient, caller: Caller, workflow: str, most: int, what: str, own_id: str | None
) -> None:
    if caller.tenant is not None and await _count(client, caller, workflow, own_id) >= most:
        raise _too_many(caller, most, f"open {what}", "wait until one is over, or end one")


async def _count(client: AgentClient, caller: Caller, workflow: str, own_id: str | None) -> int:
    """Return the number of open workflows of the tenant, without the one of this id.

    Raises:
        ServerUnreachableError: Temporal does not answer.
    """
    query = (
        f"WorkflowType = '{workflow}' AND ExecutionStatus = 'Running'"
        f" AND WorkflowId STARTS_WITH '{caller.prefix}'"
    )
    if own_id is not None and search_attributes.keyword(own_id) == own_id:
        query += f" AND WorkflowId != '{own_id}'"
    temporal = client.temporal
    request = CountWorkflowExecutionsRequest(namespace=temporal.namespace, query=query)
    try:
        found = await temporal.workflow_service.count_workflow_executions(request, retry=True)
    except RPCError as error:
        raise errors.ServerUnreachableError(
            f"Temporal cannot be asked how much the tenant has: {error.message}"
        ) from error
    return found.count


def _too_many(caller: Caller, most: int, what: str, how: str) -> RefusedError:
    return RefusedError(
        429,
        "TOO_MANY_REQUESTS",
        f"tenant {caller.tenant!r} has {most} {what}, which is its limit; {how}",
        headers={"Retry-After": str(limits.HTTP_RETRY.seconds)},
    )
