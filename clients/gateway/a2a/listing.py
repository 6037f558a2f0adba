"""Lists of tasks, in pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import (
    ListTasksCursor,
    apply_history_length,
    decode_list_tasks_cursor,
    encode_list_tasks_cursor,
    validate_history_length,
    validate_page_size,
)

from perdure import limits
from perdure.clients.gateway.a2a import tasks
from perdure.clients.gateway.a2a.found import TaskScope
from perdure.clients.gateway.a2a.tasks import TaskIds
from perdure.clients.turns.entries import TurnEntry


async def list_tasks(scope: TaskScope, request: ListTasksRequest) -> ListTasksResponse:
    """Return a page of tasks, those that changed last first. It may lag a second behind.

    Raises:
        InvalidParamsError: The request is not valid.
    """
    validate_history_length(request)
    size = request.page_size if request.HasField("page_size") else DEFAULT_LIST_TASKS_PAGE_SIZE
    validate_page_size(size)
    after = _cursor(request.page_token)
    matching = [task async for task in _tasks_of(scope, request) if _admits(request, task)]
    matching.sort(key=_key, reverse=True)
    remaining = [task for task in matching if after is None or _key(task) < after.sort_key()]
    page = remaining[:size]
    shown = await asyncio.gather(*(_shown(scope, task, request) for task in page))
    is_last = len(remaining) <= size
    return ListTasksResponse(
        tasks=shown,
        next_page_token="" if is_last else encode_list_tasks_cursor(_place(page[-1])),
        page_size=size,
        total_size=len(matching),
    )


async def _tasks_of(scope: TaskScope, request: ListTasksRequest) -> AsyncIterator[Task]:
    """Yield the tasks of an agent or of a context, without their parts: the latest tasks."""
    prefix = f"{scope.prefix}{request.context_id}/" if request.context_id else scope.prefix
    count = 0
    async for entry in scope.client.turns(id_prefix=prefix):
        ids = scope.ids(entry.id)
        if ids is None:
            continue  # a delegate's
        yield await _listed(scope, ids, entry)
        count += 1
        if count == limits.HTTP_LIST:
            return


async def _listed(scope: TaskScope, ids: TaskIds, entry: TurnEntry) -> Task:
    state = tasks.state_of_entry(entry)
    if state is None:
        state = tasks.state_of(await scope.client.turn(entry.id).status())
    return tasks.listed(ids, state, entry.ended_at or entry.started_at)


async def _shown(scope: TaskScope, task: Task, request: ListTasksRequest) -> Task:
    """Return a task with the parts that were asked for. By default it has none."""
    has_history = request.HasField("history_length") and request.history_length > 0
    if not (has_history or request.include_artifacts):
        return task
    full_task = await (await scope.find(task.id)).task(has_history=has_history)
    if not request.include_artifacts:
        full_task.ClearField("artifacts")
    return apply_history_length(full_task, request)


def _admits(request: ListTasksRequest, task: Task) -> bool:
    is_recent = not request.HasField("status_timestamp_after") or (
        _time(task) >= request.status_timestamp_after.ToNanoseconds()
    )
    return is_recent and request.status in (TaskState.TASK_STATE_UNSPECIFIED, task.status.state)


def _time(task: Task) -> int:
    return task.status.timestamp.ToNanoseconds()


def _place(task: Task) -> ListTasksCursor:
    return ListTasksCursor(_time(task), task.id)


def _key(task: Task) -> tuple[bool, int, str]:
    return _place(task).sort_key()


def _cursor(token: str) -> ListTasksCursor | None:
    if not token:
        return None
    cursor = decode_list_tasks_cursor(token)
    if cursor is None:
        raise InvalidParamsError("the page token is not one of a list of tasks")
    return cursor
