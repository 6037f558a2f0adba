"""Batches as `perdure batch` prints them: the status, its progress, and results."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_json
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from perdure import errors
from perdure.clients.batches.handle import Batch
from perdure.clients.batches.listing import BatchEntry
from perdure.clients.batches.status import BatchResult, BatchStatus
from perdure.clients.cli.drawing import details, json_lines
from perdure.clients.cli.drawing.amounts import budget_in_words
from perdure.clients.cli.drawing.amounts import in_words as remaining_in_words
from perdure.clients.cli.drawing.listing import EntryTable
from perdure.clients.cli.drawing.screen import Live, lines_of, note
from perdure.clients.cli.drawing.table import ago
from perdure.clients.cli.exits import DONE
from perdure.text import harmless, money, one_line, word
from perdure.values.moments import period_in_words
from perdure.values.states import State

_POLL_S = 1.0
_NOTE_S = 10.0
_BAR_COLUMNS = 24
_LINE_CHARACTERS = 200
_COLOURS = {State.RUNNING: "cyan", State.COMPLETED: "green"}
"""The colours of states; the others are yellow."""


def entry_table(entries: AsyncIterator[BatchEntry]) -> EntryTable[BatchEntry]:
    """Return a table of batches."""
    return EntryTable(entries, _row, left_out=("STARTED", "AGENT"))


def _row(entry: BatchEntry, now: datetime) -> Mapping[str, Text]:
    is_known = bool(entry.total)
    return {
        "ID": Text(word(entry.id)),
        "AGENT": Text(word(entry.agent) if entry.agent else "–"),
        "STATE": Text(_state(entry), _COLOURS.get(entry.state, "yellow") if entry.state else ""),
        "DONE": Text(f"{entry.done} of {entry.total}" if is_known else "–"),
        "FAILED": Text(str(entry.failed) if is_known else "–"),
        "STARTED": Text(ago(now - entry.started_at)),
    }


async def show(batch: Batch[Any], *, as_json: bool) -> int:
    """Print a batch, and return the exit code.

    Raises:
        PerdureError: It cannot be read.
    """
    status = await batch.status()
    if as_json:
        tell(status)
    else:
        details.draw(_properties(status))
    return DONE


def tell(status: BatchStatus) -> None:
    """Print the status as a line of JSON."""
    json_lines.tell({"kind": "batch", **status.model_dump(mode="json")})


def _properties(status: BatchStatus) -> Iterator[tuple[str, Text | str]]:
    state = (_state(status), _COLOURS.get(status.state, "yellow"))
    yield "batch", Text.assemble((word(status.id), "bold"), "  ", state)
    if status.reason:
        yield "reason", harmless(status.reason)
    if status.by is not None:
        yield "by", harmless(status.by)
    if status.retried_by is not None:
        yield "retried by", harmless(status.retried_by)
    yield "agent", word(status.agent)
    yield "tasks", ", ".join([f"{status.done} of {status.total} done", *_counts(status)])
    yield "at once", str(status.at_once)
    if status.cost is not None:
        yield "spent", money(status.cost)
    if status.budget is not None:
        yield "budget", budget_in_words(status.budget)
    remaining = remaining_in_words(status.left)
    if remaining:
        yield "left", remaining


def in_words(status: BatchStatus) -> str:
    """Format a status in one line."""
    parts = [f"{_state(status)}: {status.done} of {status.total} done", *_counts(status)]
    if status.cost is not None:
        parts.append(money(status.cost))
    remaining = remaining_in_words(status.left)
    return ", ".join([*parts, *([f"{remaining} left"] if remaining else [])])


def _state(status: BatchStatus | BatchEntry) -> str:
    return "–" if status.state is None else status.state.value.replace("_", " ")


def _counts(status: BatchStatus) -> list[str]:
    counts = {
        "failed": status.failed,
        "running": status.running,
        "waiting": status.waiting or 0,
        "not started": status.not_started,
    }
    return [f"{count} {name}" for name, count in counts.items() if count]


def line(result: BatchResult[Any]) -> str:
    """Format a result in one line: the task, its state, and the answer or the error."""
    error, output = result.error, result.output
    answer = output if isinstance(output, str) else to_json(output).decode()
    text = f"{error.code}: {error.message}" if error else answer
    state = result.state.value.replace("_", " ")
    return f"{word(result.id)}  {state}  {one_line(text, _LINE_CHARACTERS)}"


@contextlib.asynccontextmanager
async def progress_of(batch: Batch[Any], *, as_json: bool) -> AsyncIterator[Live]:
    """Show the progress during the block: a bar on a terminal, elsewhere a line now and then.

    Yields the lines that are drawn, to erase them before another line is printed.
    """
    if as_json:
        yield Live(sys.stderr)
        return
    progress = _ProgressDisplay(sys.stderr.isatty())
    polling = asyncio.create_task(progress.poll(batch))
    try:
        async with progress.live.ticking(progress.tick):
            yield progress.live
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


class _ProgressDisplay:
    """The progress of a batch, by its status."""

    def __init__(self, is_terminal: bool) -> None:
        self.live = Live(sys.stderr)
        self._is_terminal = is_terminal
        self._status: BatchStatus | None = None
        self._first: tuple[float, int] | None = None
        self._noted = time.monotonic()

    async def poll(self, batch: Batch[Any]) -> None:
        """Ask for the status every second, until it is over."""
        while True:
            with contextlib.suppress(errors.PerdureError):  # the results have the error
                self._status = await batch.status()
                self._first = self._first or (time.monotonic(), _settled(self._status))
            await asyncio.sleep(_POLL_S)

    def tick(self) -> None:
        """Draw the bar, or print a line every ten seconds."""
        status = self._status
        if status is None or status.state != State.RUNNING:
            return
        if self._is_terminal:
            row = Table.grid(padding=(0, 1))
            bar = ProgressBar(status.total, _settled(status), width=_BAR_COLUMNS)
            row.add_row(bar, Text(self._text(status)))
            self.live.draw(lines_of(row, sys.stderr))
        elif time.monotonic() - self._noted >= _NOTE_S:
            self._noted = time.monotonic()
            note(self._text(status))

    def _text(self, status: BatchStatus) -> str:
        cost = [money(status.cost)] if status.cost is not None else []
        done = f"{status.done} of {status.total} done"
        return ", ".join([done, *_counts(status), *cost, *self._time_left(status)])

    def _time_left(self, status: BatchStatus) -> list[str]:
        """Return the remaining time, if the tasks take as long as before."""
        if self._first is None:
            return []
        since, before = self._first
        settled = _settled(status) - before
        unsettled = status.running + status.pending
        if settled <= 0 or not unsettled:
            return []
        seconds = int((time.monotonic() - since) / settled * unsettled) + 1
        return [f"about {period_in_words(timedelta(seconds=seconds))} left"]


def _settled(status: BatchStatus) -> int:
    return status.done + status.failed
