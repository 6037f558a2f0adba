"""What `list` prints: a line for each entry, while more are read."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from rich.text import Text

from perdure.clients.cli.drawing import json_lines
from perdure.clients.cli.drawing.blocks import blocks
from perdure.clients.cli.drawing.screen import note
from perdure.clients.cli.drawing.table import Blocks

E = TypeVar("E")


@dataclass(frozen=True)
class EntryTable(Generic[E]):
    """Entries that are read from the server, and their form as a table.

    Attributes:
        entries: The entries.
        row: Returns the row of an entry, by the current time.
        left_out: The columns to drop first on a narrow terminal.
        update: Reads what the entries of a block lack, before they are printed as rows.
    """

    entries: AsyncIterator[E]
    row: Callable[[E, datetime], Mapping[str, Text]]
    left_out: Sequence[str]
    update: Callable[[Sequence[E]], Awaitable[Sequence[E]]] | None = None

    async def show(self, limit: int | None, *, as_json: bool, none: str) -> None:
        """Print up to `limit` entries; `none` is the note if there is no entry.

        Raises:
            PerdureError: They cannot be read.
        """
        count, table = 0, Blocks(self.left_out, sys.stdout)
        async with contextlib.aclosing(blocks(self.entries)) as read:
            async for block in read:
                shown = block if limit is None else block[: limit - count]
                count += len(block)
                if as_json:
                    for entry in shown:
                        json_lines.tell(entry)
                elif shown:
                    table.draw(await self._rows(shown))
                if limit is not None and count > limit:
                    note(f"there are more than these {limit}; --limit shows them")
                    break
        if not (as_json or count):
            note(none)

    async def _rows(self, block: Sequence[E]) -> list[Mapping[str, Text]]:
        updated = block if self.update is None else await self.update(block)
        now = datetime.now(UTC)
        return [self.row(entry, now) for entry in updated]
