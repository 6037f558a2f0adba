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
from perdure.clients.gateway.a2a.found import Place
from perdure.clients.gateway.a2a.tasks import Ids
from perdure.clients.turns.entries import TurnEntry


async def list_tasks(place: Place, wanted: ListTasksRequest) -> ListTasksResponse:
    """Return a page of tasks, those that changed last first. It may lag a second behind.

    Raises:
        InvalidParamsError: The request is not valid.
    """
    validate_history_length(wanted)
    size = wanted.page_size if wanted.HasField("page_size") else DEFAULT_LIST_TASKS_PAGE_SIZE
    validate_page_size(size)
    after = _cursor(wanted.page_token)
    found = [one async for one in _found(place, wanted) if _admits(wanted, one)]
    found.sort(key=_key, reverse=True)
    rest = [one for one in found if after is None or _key(one) < after.sort_key()]
    page = rest[:size]
    shown = await asyncio.gather(*(_shown(place, one, wanted) for one in page))
    is_last = len(rest) <= size
    return ListTasksResponse(
        tasks=shown,
        next_page_token="" if is_last else encode_list_tasks_cursor(_place(page[-1])),
        page_size=size,
        total_size=len(found),
    )


async def _found(place: Place, wanted: ListTasksRequest) -> AsyncIterator[Task]:
    """Yield the tasks of an agent or of a context, without their parts: the latest ones."""
    prefix = f"{place.prefix}{wanted.context_id}/" if wanted.context_id else place.prefix
    count = 0
    async for entry in place.client.list(id_prefix=prefix):
        ids = place.ids(entry.id)
        if ids is None:
            continue  # a delegate's
        yield await _listed(place, ids, entry)
        count += 1
        if count == limits.HTTP_LIST:
            return


async def _listed(place: Place, ids: Ids, entry: TurnEntry) -> Task:
    state = tasks.state_of_entry(entry)
    if state is None:
        state = tasks.state_of(await place.client.turn(entry.id).status())
    return tasks.listed(ids, state, entry.ended_at or entry.started_at)


async def _shown(place: Place, task: Task, wanted: ListTasksRequest) -> Task:
    """Return a task with the parts that were asked for. By default it has none."""
    has_history = wanted.HasField("history_length") and wanted.history_length > 0
    if not (has_history or wanted.include_artifacts):
        return task
    whole = await (await place.find(task.id)).task(has_history=has_history)
    if not wanted.include_artifacts:
        whole.ClearField("artifacts")
    return apply_history_length(whole, wanted)


def _admits(wanted: ListTasksRequest, task: Task) -> bool:
    is_recent = not wanted.HasField("status_timestamp_after") or (
        _time(task) >= wanted.status_timestamp_after.ToNanoseconds()
    )
    return is_recent and wanted.status in (TaskState.TASK_STATE_UNSPECIFIED, task.status.state)


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
