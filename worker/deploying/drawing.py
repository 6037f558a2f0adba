"""What `perdure deploy` prints for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from rich.text import Text

from perdure.clients.cli.drawing import table
from perdure.clients.cli.drawing.screen import Live, note, put
from perdure.text import counted, harmless, word
from perdure.worker.deploying.checking import Replayed
from perdure.worker.deploying.draining import DrainProgress
from perdure.worker.deploying.versions import State, VersionStatus, shown

_COLOURS: Mapping[State, str] = {
    "current": "green",
    "ramping": "cyan",
    "draining": "yellow",
    "drained": "dim",
    "inactive": "",
}
_HELD_LINES = 8


def versions(statuses: Sequence[VersionStatus]) -> None:
    """Print the versions of a deployment as a table, and what to do next."""
    put(Text.assemble(("deployment ", "dim"), word(statuses[0].deployment)))
    table.draw([_row(status) for status in statuses], ("SINCE", "WORKERS"), sys.stdout)
    for hint in _hints(statuses):
        note(hint)


def _row(status: VersionStatus) -> Mapping[str, Text]:
    ramp = f" {status.percent:g} %" if status.state == "ramping" else ""
    since = status.deactivated_at if status.state in ("draining", "drained") else status.current_at
    age = "–" if since is None else table.ago(datetime.now(UTC) - since)
    is_versioned = bool(status.build_id)
    return {
        "BUILD": Text(status.name),
        "STATE": Text(f"{status.state}{ramp}", _COLOURS[status.state]),
        "PINNED": Text(str(status.pinned) if is_versioned else "–"),
        "WORKERS": Text(str(status.workers) if is_versioned else "–"),
        "SINCE": Text(age),
    }


def _hints(statuses: Sequence[VersionStatus]) -> Iterator[str]:
    for status in statuses:
        name = status.deployment
        if status.state == "current" and status.build_id and not status.workers:
            yield (
                f"no worker of {status.name} polls, so new work waits: start its workers, or roll"
                f" back with `perdure deploy rollback --deployment {name}`"
            )
        if status.state in ("draining", "drained", "inactive") and status.pinned:
            yield (
                f"{counted(status.pinned, 'workflow')} pinned to {status.name}: keep its workers,"
                f" or `perdure deploy drain {status.name} --deployment {name}`"
            )


def promoted(build_id: str, before: str) -> str:
    """Return what a promotion or a rollback says."""
    if build_id == before:
        return f"new work went to {_workers(build_id)} already"
    text = f"new work goes to {_workers(build_id)}, and no more to {_workers(before)}"
    if before:
        text += f"; `perdure deploy drain {before}` moves what waits"
    if not build_id:
        text += ", and its workers have to be stopped then: while they poll, they get new work too"
    return text


def _workers(build_id: str) -> str:
    return shown(build_id) if build_id else f"workers {shown(build_id)}"


class DrainDisplay:
    """The progress of a drain: lines that change on a terminal, elsewhere one for each change."""

    def __init__(self) -> None:
        self._live = Live(sys.stderr)
        self._last = ""

    def show(self, progress: DrainProgress) -> None:
        """Show how far it is."""
        text = self._text(progress)
        if sys.stderr.isatty():
            self._live.draw([Text(text), *held(progress)])
        elif text != self._last:
            note(text)
        self._last = text

    def end(self) -> None:
        """Remove the lines that change."""
        self._live.erase()

    def _text(self, progress: DrainProgress) -> str:
        left = f"{counted(progress.pinned, 'workflow')} left" if progress.pinned else "nothing left"
        return f"draining {shown(progress.build_id)}: {progress.moved} moved on, {left}"


def held(progress: DrainProgress) -> list[Text]:
    """Return a line for each of the first workflows that are left, with what it waits for."""
    lines = [
        Text.assemble(("  ", ""), harmless(each.id), ("  " + harmless(each.reason), "dim"))
        for each in progress.held[:_HELD_LINES]
    ]
    more = progress.pinned - len(lines)
    return [*lines, *([Text(f"  and {more} more", "dim")] if lines and more > 0 else [])]


def broken(run: Replayed) -> None:
    """Print a run that does not replay."""
    state = Text("running", "red") if run.running else Text("over", "dim")
    put(Text.assemble(("broken  ", "red"), harmless(run.id), "  ", state, f"  {run.type}"))
    put(Text(f"        {harmless(run.failure)}", "dim"))
