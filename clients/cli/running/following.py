"""Follow a turn to its end, in the form that the options of a command select."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Protocol

from perdure.clients.cli import exits
from perdure.clients.cli.common import Display
from perdure.clients.cli.drawing.hints import CommandHints
from perdure.clients.cli.drawing.json_lines import JsonFollower
from perdure.clients.cli.drawing.screen import note
from perdure.clients.cli.drawing.tree import Reach
from perdure.clients.cli.drawing.watch import TerminalFollower
from perdure.clients.client import AgentClient
from perdure.clients.turns.handle import Turn
from perdure.errors import PerdureError
from perdure.text import word
from perdure.values.reports import AgentReport


class TurnPrinter(Protocol):
    """Prints a turn."""

    def start(self, turn: Turn[Any]) -> None:
        """Print which turn it is, if it is new."""

    async def follow(self, turn: Turn[Any], reach: Reach) -> None:
        """Print the turn's events until it is over."""

    async def result(self, turn: Turn[Any]) -> AgentReport[Any]:
        """Return its report, with the answer in the form that is printed."""

    def close(self, report: AgentReport[Any]) -> None:
        """Print the end of a turn that has an answer."""

    def fail(self, report: AgentReport[Any]) -> None:
        """Print the end of a turn that has no answer."""


def follower(display: Display, *, answers: bool) -> TurnPrinter:
    """Return a follower that prints lines of JSON, or a follower for people.

    With `answers`, standard output contains only the answer.
    """
    if display.as_json:
        return JsonFollower(streams=display.stream)
    return TerminalFollower(
        sys.stderr if answers else sys.stdout,
        CommandHints(display.address),
        streams=display.stream,
        full=display.full,
        may_resume=display.outlives,
    )


async def follow(
    client: AgentClient, turn: Turn[Any], display: Display, *, is_new: bool = False
) -> int:
    """Print a turn until it is over, and return the exit code of its outcome.

    Raises:
        PerdureError: The turn has no answer.
    """
    printer = follower(display, answers=is_new)
    if is_new:
        printer.start(turn)
    try:
        await printer.follow(turn, client.turn)
    except asyncio.CancelledError:
        note(
            f"turn {word(turn.id)} goes on; to follow it again:\n "
            f" {CommandHints(display.address).of('show', turn.id)}"
        )
        raise
    return await conclude(turn, printer)


async def conclude(turn: Turn[Any], printer: TurnPrinter) -> int:
    """Print the end of a turn that is over, and return its exit code.

    Raises:
        PerdureError: The turn has no answer.
    """
    try:
        report = await printer.result(turn)
    except PerdureError as error:
        if error.report is not None:
            printer.fail(error.report)
        raise
    printer.close(report)
    return exits.of_report(report)
