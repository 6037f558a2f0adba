"""`perdure batch run`, `results` and `retry`: follow a batch, and write its results to a file."""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
from pathlib import Path
from typing import Any

from perdure import errors
from perdure.clients.batches.handle import Batch
from perdure.clients.batches.status import BatchStatus
from perdure.clients.cli.drawing import batches
from perdure.clients.cli.drawing.csv_rows import CsvRows
from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.screen import note, put
from perdure.clients.cli.exits import DONE, FAILED, OUTCOMES
from perdure.clients.cli.running.result_file import ResultFile
from perdure.text import word
from perdure.values.states import State

_CHUNK_BYTES = 1024 * 1024
_CODES = {
    State.STOPPED: FAILED,
    State.BUDGET_EXHAUSTED: OUTCOMES["budget_exhausted"],
    State.CANCELLED: OUTCOMES["cancelled"],
    State.TERMINATED: OUTCOMES["terminated"],
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
        async with batches.progress_of(batch, as_json=as_json) as live:
            async for result in batch.results(file.cursor if file else None):
                if file is not None:
                    file.write(result)
                if as_json:
                    tell({"kind": "result", **result.model_dump(mode="json")})
                elif prints and out is None:
                    live.erase()
                    put(batches.line(result))
    status = await batch.wait()
    if as_json:
        batches.tell(status)
    else:
        note(batches.in_words(status))
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
    note(batches.in_words(status))
    return _code(status)


def _code(status: BatchStatus) -> int:
    return _CODES.get(status.state, FAILED if status.failed else DONE)


def _hint(batch: Batch[Any], out: Path | None, status: BatchStatus) -> str:
    name = word(batch.id)
    if status.failed or status.not_started:
        return f"to run the others again: perdure batch retry {name}"
    return f"results: {out}" if out else f"results: perdure batch results {name} --out FILE"
