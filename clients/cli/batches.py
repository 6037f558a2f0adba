"""`perdure batch`: follows a batch, and writes its results to a file."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic_core import to_json
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from perdure import errors
from perdure.clients.batches.handle import Batch
from perdure.clients.batches.status import BatchResult, BatchState, BatchStatus
from perdure.clients.cli.drawing.amounts import in_words as left_in_words
from perdure.clients.cli.drawing.amounts import time_in_words
from perdure.clients.cli.drawing.csv_rows import CsvRows
from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.screen import Live, lines_of, note, put
from perdure.clients.cli.exits import DONE, FAILED, OUTCOMES
from perdure.clients.cli.result_file import ResultFile
from perdure.text import money, one_line, word

_POLL_S = 1.0
_NOTE_S = 10.0
_BAR_COLUMNS = 24
_LINE_CHARACTERS = 200
_CHUNK_BYTES = 1024 * 1024
_CODES = {
    BatchState.STOPPED: FAILED,
    BatchState.BUDGET_EXHAUSTED: OUTCOMES["budget_exhausted"],
    BatchState.CANCELLED: OUTCOMES["cancelled"],
    BatchState.TERMINATED: OUTCOMES["terminated"],
}


def id_of(file: Path, agent: str) -> str:
    """Return the id of a batch: the name of its file, and a digest of its content and agent.

    Raises:
        InvalidRequestError: The file cannot be read.
    """
    digest = hashlib.sha256(f"{agent}\n".encode())
    try:
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise errors.InvalidRequestError(
            f"{file} cannot be read: {error.strerror or error}"
        ) from None
    name = re.sub(r"[^\w.-]+", "-", file.stem)[:40]
    return f"{name}-{digest.hexdigest()[:8]}"


async def follow(
    batch: Batch[Any], out: Path | None, *, as_json: bool, prints: bool = False
) -> int:
    """Write the results as they come, show the progress, and return the exit code.

    With `prints`, a line for each result is printed for people, if it is written nowhere else.

    Raises:
        PerdureError: The batch cannot be read, or the file has other content.
    """
    status = await batch.status()
    if not as_json:
        note(f"batch {word(batch.id)}")
    file = ResultFile(out, status.round) if out else None
    with file or contextlib.nullcontext():
        async with _shown(batch, as_json=as_json) as live:
            async for result in batch.results(file.cursor if file else None):
                if file is not None:
                    file.write(result)
                if as_json:
                    tell({"kind": "result", **result.model_dump(mode="json")})
                elif prints and out is None:
                    live.erase()
                    put(_line(result))
    status = await batch.wait()
    if as_json:
        tell(printed(status))
    else:
        note(in_words(status))
        note(_hint(batch, out, status))
    return _code(status)


async def write_csv(batch: Batch[Any], out: Path | None) -> int:
    """Write the results as CSV to a file, or print them, and return the exit code.

    Raises:
        PerdureError: The batch cannot be read, or the file cannot be written.
    """
    await batch.status()  # a file is not overwritten for a batch that is not there
    try:
        file = out.open("w", encoding="utf-8", newline="") if out else None
    except OSError as error:
        raise errors.InvalidRequestError(
            f"{out} cannot be written: {error.strerror or error}"
        ) from None
    with file or contextlib.nullcontext():
        rows = CsvRows(file or sys.stdout)
        async for result in batch.results():
            rows.write(result)
    status = await batch.wait()
    note(in_words(status))
    return _code(status)


def _code(status: BatchStatus) -> int:
    return _CODES.get(status.state, FAILED if status.failed else DONE)


def _line(result: BatchResult[Any]) -> str:
    """Format a result in one line: the task, what became of it, and the answer or the error."""
    error, output = result.error, result.output
    text = output if isinstance(output, str) else to_json(output).decode()
    said = f"{error.code}: {error.message}" if error else text
    state = result.state.value.replace("_", " ")
    return f"{word(result.id)}  {state}  {one_line(said, _LINE_CHARACTERS)}"


def printed(status: BatchStatus) -> dict[str, Any]:
    """Return the status for a line of JSON."""
    return {"kind": "batch", **status.model_dump(mode="json")}


def in_words(status: BatchStatus) -> str:
    """Format a status in one line."""
    state = status.state.value.replace("_", " ")
    parts = [
        f"{state}: {status.done} of {status.total} done",
        *_counts(status),
        *([money(status.cost)] if status.cost is not None else []),
    ]
    left = left_in_words(status.left)
    return ", ".join([*parts, *([f"{left} left"] if left else [])])


def _counts(status: BatchStatus) -> list[str]:
    counts = {
        "failed": status.failed,
        "running": status.running,
        "waiting": status.waiting or 0,
        "not started": status.not_started,
    }
    return [f"{count} {name}" for name, count in counts.items() if count]


def _hint(batch: Batch[Any], out: Path | None, status: BatchStatus) -> str:
    name = word(batch.id)
    if status.failed or status.not_started:
        return f"to run the others again: perdure batch retry {name}"
    return f"results: {out}" if out else f"results: perdure batch results {name} --out FILE"


@contextlib.asynccontextmanager
async def _shown(batch: Batch[Any], *, as_json: bool) -> AsyncIterator[Live]:
    """Show the progress during the block: a bar on a terminal, elsewhere a line now and then.

    Yields the lines that are drawn, to erase them before another line is printed.
    """
    if as_json:
        yield Live(sys.stderr)
        return
    progress = _Progress(sys.stderr.isatty())
    polling = asyncio.create_task(progress.poll(batch))
    try:
        async with progress.live.ticking(progress.tick):
            yield progress.live
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


class _Progress:
    """The progress of a batch, as its status tells it."""

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
        if status is None or status.state != BatchState.RUNNING:
            return
        if self._is_terminal:
            row = Table.grid(padding=(0, 1))
            bar = ProgressBar(status.total, _settled(status), width=_BAR_COLUMNS)
            row.add_row(bar, Text(self._words(status)))
            self.live.draw(lines_of(row, sys.stderr))
        elif time.monotonic() - self._noted >= _NOTE_S:
            self._noted = time.monotonic()
            note(self._words(status))

    def _words(self, status: BatchStatus) -> str:
        cost = [money(status.cost)] if status.cost is not None else []
        done = f"{status.done} of {status.total} done"
        return ", ".join([done, *_counts(status), *cost, *self._time_left(status)])

    def _time_left(self, status: BatchStatus) -> list[str]:
        """Return the time that the rest takes if it goes on like this."""
        if self._first is None:
            return []
        since, before = self._first
        settled = _settled(status) - before
        rest = status.running + status.pending
        if settled <= 0 or not rest:
            return []
        seconds = int((time.monotonic() - since) / settled * rest) + 1
        return [f"about {time_in_words(timedelta(seconds=seconds))} left"]


def _settled(status: BatchStatus) -> int:
    return status.done + status.failed
