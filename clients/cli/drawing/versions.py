"""Versions of an agent as `perdure versions` prints them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.text import Text

from perdure.clients.cli.drawing import json_lines
from perdure.clients.cli.drawing.screen import note
from perdure.clients.cli.drawing.table import draw
from perdure.clients.turns.by_version import VersionSummary
from perdure.text import money

_LEFT_OUT = ("STOPPED", "OPEN")


def show(summaries: Sequence[VersionSummary], *, as_json: bool) -> None:
    """Print a line for each version."""
    if as_json:
        for summary in summaries:
            json_lines.tell(summary)
    elif summaries:
        draw(list(map(_row, summaries)), _LEFT_OUT, sys.stdout)
    else:
        note("the agent has no turns")


def _row(summary: VersionSummary) -> Mapping[str, Text]:
    ended = summary.turns - summary.open - summary.stopped
    share = f" ({summary.failed / ended:.0%})" if ended else ""
    return {
        "VERSION": Text(summary.version or "–"),
        "TURNS": Text(str(summary.turns)),
        "OPEN": Text(str(summary.open)),
        "FAILED": Text(f"{summary.failed}{share}"),
        "STOPPED": Text(str(summary.stopped)),
        "STEPS": Text("–" if summary.steps is None else f"{summary.steps:.1f}"),
        "SPENT": Text("–" if summary.spent is None else money(summary.spent)),
    }
