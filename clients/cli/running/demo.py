"""`perdure demo`: a turn whose worker is killed in the middle.

The result is checked against the journal, a file outside of Temporal to which every model call and
tool call appends a line before it begins. A call that Temporal had recorded must be in it exactly
once; a call that was cut off by the kill is visible as another attempt.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM

from rich.text import Text

from perdure.clients.cli.common import sender
from perdure.clients.cli.drawing.progress import Progress, figures
from perdure.clients.cli.drawing.screen import put
from perdure.clients.cli.running.asking import (
    AGENT,
    FolderQuestion,
    LibrarianSession,
    cancelled_if_interrupted,
    first_of,
    gives_up,
    introduce,
    introduce_server,
    say_where,
    session,
)
from perdure.clients.cli.running.processes import ChildProcess
from perdure.clients.turns.handle import Turn
from perdure.turn.facts import ModelAnswered, Scheduled, ToolReturned
from perdure.turn.keys import Key
from perdure.values.reports import AgentReport

_KILL_IN_STEP = "step-2"
_POLL_S = 0.02


async def demo(question: FolderQuestion, *, state: Path) -> int:
    """Ask, kill the worker in the middle, start another, and check that nothing was done twice.

    Return 0 only if all checks pass.
    """
    settings = question.settings()
    introduce(question.folder, settings["PERDURE_ASK_MODEL"], sys.stdout)
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as scratch:
        journal = Path(scratch) / "journal"
        journal.touch()
        async with session(
            {**settings, "PERDURE_ASK_JOURNAL": str(journal)}, state=state, address=question.address
        ) as here:
            introduce_server(here.server, sys.stdout)
            turn = await here.client.start(AGENT, question.text, by=sender(None))
            recorded = await _follow_through_a_kill(here, turn, journal)
            report = await turn.result()
            put(f"\n{report.output}\n")
            put(Text(figures(report), "dim"))
            say_where(report.turn_id, here.server, sys.stdout)
        return _verdict(report, recorded, Counter(_lines(journal)))


async def _follow_through_a_kill(here: LibrarianSession, turn: Turn, journal: Path) -> list[Key]:
    """Show the turn to its end while its worker is killed.

    Return the keys of the calls that Temporal recorded as done.
    """
    workers, recorded = [await here.worker()], list[Key]()
    try:
        async with cancelled_if_interrupted(turn):
            begun = asyncio.Event()
            await first_of(
                _show(turn, recorded, begun), _kill_in_the_middle(here, workers, journal, begun)
            )
    finally:
        for worker in workers:
            await worker.stop(SIGTERM)
    return recorded


async def _show(turn: Turn, recorded: list[Key], begun: asyncio.Event) -> None:
    """Print the events to the end, and set `begun` once the step of the kill is scheduled."""
    progress = Progress()
    async for event in turn.events():
        progress.show(event)
        recorded += [event.fact.key] if isinstance(event.fact, ModelAnswered | ToolReturned) else []
        if isinstance(event.fact, Scheduled) and str(event.fact.key) == _KILL_IN_STEP:
            begun.set()


async def _kill_in_the_middle(
    here: LibrarianSession, workers: list[ChildProcess], journal: Path, begun: asyncio.Event
) -> None:
    """Kill the worker once the journal has the step, and start another.

    The events before the step may arrive later than the journal's line, and are printed first.
    """
    first = workers[0]
    while _KILL_IN_STEP not in _lines(journal):
        if first.process.returncode is not None:
            await gives_up(first)
        await asyncio.sleep(_POLL_S)
    first.process.send_signal(SIGKILL)
    await first.process.wait()
    await begun.wait()
    put(
        Text(
            f"          ✗ the worker (process {first.pid}) was killed in the middle of"
            f" {_KILL_IN_STEP}: kill -9",
            "red",
        )
    )
    another = await here.worker()
    workers.append(another)
    put(Text(f"          ✓ another worker (process {another.pid}) was started", "green"))
    await gives_up(another)


def _lines(journal: Path) -> list[str]:
    return journal.read_text(encoding="utf-8").split()


def _verdict(report: AgentReport, recorded: list[Key], journal: Counter[str]) -> int:
    checks = _checks(report, recorded, journal)
    put()
    for check, holds in checks.items():
        put(Text.assemble(("✓", "green") if holds else ("✗", "red"), f" {check}"))
    return 0 if all(checks.values()) else 1


def _checks(report: AgentReport, recorded: list[Key], journal: Counter[str]) -> dict[str, bool]:
    """Return what the demo claims, and whether it holds."""
    cut_off = journal[_KILL_IN_STEP] == 1 and _KILL_IN_STEP not in map(str, recorded)
    return {
        "the turn completed after its worker was killed": report.outcome == "completed" and cut_off,
        f"each of the {len(recorded)} recorded calls ran exactly once": all(
            journal[str(key)] == 1 for key in recorded
        ),
        f"only {_KILL_IN_STEP}, which the kill cut off, was tried again": (
            sum(journal.values()) == len(recorded) + 1
        ),
        "the answer names a file that was read as its source": any(
            path in report.output for path in _files_read(report)
        ),
    }


def _files_read(report: AgentReport) -> Iterator[str]:
    """Yield the paths of the files that the agent has read."""
    for step in report.steps:
        for call, result in zip(step.message.calls, step.results, strict=True):
            if call.name == "read_file" and not result.is_error:
                yield str(json.loads(call.arguments)["path"])
