"""What `show` prints: a line for each property, and a table below."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from perdure.clients.cli.drawing import table
from perdure.clients.cli.drawing.screen import put, wrapped

_LABEL = 10


def draw(
    properties: Iterable[tuple[str, Text | str]],
    rows: Sequence[Mapping[str, Text]] = (),
    left_out: Sequence[str] = (),
) -> None:
    """Print properties by their names, and rows as a table.

    The columns `left_out` are dropped first on a narrow terminal.
    """
    for name, value in properties:
        put(wrapped(Text.assemble((f"{name:<{_LABEL}}", "dim"), value), sys.stdout, _LABEL))
    if rows:
        put()
        table.draw(rows, left_out, sys.stdout)
