"""Reads the tasks of a batch: from values of a program, or from a file with a line for each.

All of them are read and checked before the first is stored, and none is kept in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_core import from_json

from perdure import errors, limits, validation
from perdure.batch.wire import turn_id
from perdure.clients.batches.spool import Spool
from perdure.temporal import access, start_request
from perdure.temporal.payloads import pack
from perdure.text import clean, one_line
from perdure.turn.wire import TurnRequest
from perdure.values.batch_items import BatchItem, OnError
from perdure.values.budgets import Budget
from perdure.values.tasks import Task

Given = str | Task | Mapping[str, Any]
"""One task of a batch: its text, a `Task`, or a mapping with `task`, `id` and `labels`."""
Tasks = Iterable[Given] | AsyncIterable[Given] | Path
"""The tasks of a batch, or a file of JSON with a line for each."""


@dataclass(frozen=True, slots=True)
class BatchOf:
    """The batch that a schedule runs at each of its times, instead of a turn.

    Attributes:
        tasks: The tasks, as for `AgentClient.start_batch`. They are read when the schedule is
            created or changed, and stored with it.
        at_once: The largest number of turns that run at the same time, at most 500.
        turn_budget: The limits of each turn; the `budget` of the schedule is the budget of each
            batch.
        on_error: What to do after a turn without an answer: `go on` with the others, or `stop` to
            start no more.
    """

    tasks: Tasks
    at_once: int = 10
    turn_budget: Budget | None = None
    on_error: OnError = "go on"


_AT_ONCE = 100
"""The number of tasks that are read before other work of the process gets its turn."""
_ROUND = re.compile(r"~\d+$")
_SUFFIX = "~99"
"""The longest end of a turn's id, which says the round."""


class _Line(BaseModel):
    """A task with its id and labels, as a program or a file gives it."""

    model_config = ConfigDict(extra="forbid")

    task: Task
    id: str | None = None
    labels: dict[str, str] = {}

    @field_validator("task", mode="before")
    @classmethod
    def _plain_text_is_a_task(cls, value: object) -> object:
        return {"content": value} if isinstance(value, str) else value

    @field_validator("id", mode="before")
    @classmethod
    def _a_number_is_an_id(cls, value: object) -> object:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return str(value) if is_number else value


async def read(batch: str, common: TurnRequest, tasks: Tasks, spool: Spool) -> str:
    """Read all tasks into a spool.

    Returns:
        The digest of the tasks, with the agent and what all of them have in common.

    Raises:
        InvalidRequestError: There are no tasks, or one is not valid; the error names its line or
            its place.
        TooLargeError: A task is too large.
    """
    digest = hashlib.sha256(common.digest().encode())
    async for source, item in each(tasks, spool):
        request = checked(batch, common, item, source)
        digest.update(f"\n{request.digest()} {item.id}".encode())
    return digest.hexdigest()


async def each(tasks: Tasks, spool: Spool) -> AsyncIterator[tuple[str, BatchItem]]:
    """Read all tasks into a spool, and yield each with the words for its line or its place.

    Raises:
        InvalidRequestError: There are no tasks, or one is not valid; the error names its line or
            its place.
    """
    where = f"line {{}} of {tasks.name}" if isinstance(tasks, Path) else "task {}"
    async for number, task in _numbered(tasks):
        source = where.format(number)
        item = _item(task, source, str(spool.count + 1))
        try:
            spool.add(item, number)
        except KeyError:
            first = where.format(spool.line_of(item.id))
            raise errors.InvalidRequestError(
                f"{source}: the id {one_line(item.id, 80)!r} is that of {first}; give each task an"
                " id of its own",
                context={"place": number, "id": item.id},
            ) from None
        except ValueError as error:  # text with half of a surrogate pair
            raise errors.InvalidRequestError(
                f"{source}: it cannot be written as JSON ({error}); nothing was started",
                context={"place": number, "id": item.id},
            ) from None
        yield source, item
    if not spool.count:
        raise errors.InvalidRequestError("the batch has no tasks")


async def _numbered(tasks: Tasks) -> AsyncIterator[tuple[int, Any]]:
    """Yield the tasks with their places or lines, from 1. Empty lines are skipped."""
    if isinstance(tasks, AsyncIterable):
        number = 0
        async for task in tasks:
            number += 1
            yield number, task
        return
    numbered = _lines(tasks) if isinstance(tasks, Path) else enumerate(_listed(tasks), 1)
    for number, task in numbered:
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        yield number, task


def _listed(tasks: Any) -> Iterable[Any]:
    if not isinstance(tasks, Iterable) or isinstance(tasks, str | bytes | Mapping):
        raise errors.InvalidRequestError(
            "the tasks of a batch must be a list or another iterable, or the Path of a file with a"
            f" line of JSON for each, not {type(tasks).__name__}"
        )
    return tasks


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the values of a file of JSON lines."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise errors.InvalidRequestError(
            f"{path} cannot be read: {error.strerror or error}"
        ) from None
    with file:
        number = 0
        while line := file.readline(limits.BATCH_LINE_BYTES + 1):
            number += 1
            if len(line) > limits.BATCH_LINE_BYTES:
                raise _broken(
                    f"line {number} of {path.name}",
                    number,
                    f"it has more than {limits.BATCH_LINE_BYTES} bytes",
                )
            if line.strip():
                yield number, _json(line, number, path)


def _json(line: bytes, number: int, path: Path) -> Any:
    try:
        return from_json(line)
    except ValueError as error:
        message = one_line(str(error), 200)
        raise _broken(f"line {number} of {path.name}", number, f"no JSON: {message}") from None


def _broken(source: str, number: int, why: str) -> errors.InvalidRequestError:
    return errors.InvalidRequestError(
        f"{source}: {why}; nothing was started", context={"place": number}
    )


def _item(task: Any, source: str, default_id: str) -> BatchItem:
    """Return a task in its stored form.

    Raises:
        InvalidRequestError: It is not valid.
    """
    value = {"task": task} if isinstance(task, str | Task) else task
    if not isinstance(value, Mapping):
        raise errors.InvalidRequestError(
            f"{source}: a task must be a string, a Task, or a mapping with 'task', and 'id' and"
            f" 'labels' if needed, not {type(task).__name__}; nothing was started"
        )
    try:
        line = _Line.model_validate(dict(value))
    except (ValidationError, errors.ConfigurationError) as error:
        message = (
            validation.in_words(error, _Line.model_fields)
            if isinstance(error, ValidationError)
            else error.message
        )
        raise errors.InvalidRequestError(f"{source}: {message}; nothing was started") from None
    return BatchItem(
        id=default_id if line.id is None else line.id, task=line.task, labels=line.labels
    )


def _check_id(batch: str, item_id: str) -> None:
    """Check that the ids of an item's turns, in every round, are valid and its own.

    Raises:
        InvalidRequestError: They are not.
    """
    if not item_id or clean(item_id) != item_id:
        raise errors.InvalidRequestError("the id must be a string that is not empty")
    if _ROUND.search(item_id):
        raise errors.InvalidRequestError(
            f"the id {one_line(item_id, 80)!r} ends like that of a task that is run again; change"
            " its end"
        )
    first = access.TURN.new_id(turn_id(batch, item_id, 1))
    access.TURN.new_id(first + _SUFFIX)


def checked(batch: str, common: TurnRequest, item: BatchItem, source: str) -> TurnRequest:
    """Return the input of a task's turn.

    Raises:
        InvalidRequestError: The id cannot be part of a turn's id, or the task is empty.
        TooLargeError: The task is too large.
    """
    labels = {**common.labels, **item.labels}
    request = common.model_copy(update={"task": item.task, "labels": labels})
    try:
        _check_id(batch, item.id)
        pack(request, "the task")
        start_request.refuse_silence(request)
        request.check()
    except (errors.InvalidRequestError, errors.TooLargeError) as error:
        message = f"{source}: {error.message}; nothing was started"
        raise type(error)(message, context=error.context) from None
    return request
