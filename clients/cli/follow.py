"""Follow a turn to its end, in the form that the options of a command select."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.clients.cli import exits
from perdure.clients.cli.drawing.hints import Commands
from perdure.clients.cli.drawing.json_lines import Told
from perdure.clients.cli.drawing.screen import note
from perdure.clients.cli.drawing.tree import Reach
from perdure.clients.cli.drawing.watch import Watch
from perdure.clients.client import AgentClient
from perdure.clients.turns.handle import Turn
from perdure.errors import PerdureError
from perdure.text import word
from perdure.values.reports import AgentReport


@dataclass(frozen=True)
class View:
    """The form in which a turn is shown.

    Attributes:
        as_json: Whether to print lines of JSON.
        full: Whether to print task, arguments and results in full.
        stream: Whether to print the model's text while it is generated.
        address: The server's address from the command line, for suggested commands.
        outlives: Whether workers of the turn remain after the command, so that it can be resumed.
    """

    as_json: bool = False
    full: bool = False
    stream: bool = False
    address: str | None = None
    outlives: bool = True


class Follower(Protocol):
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


def follower(view: View, *, answers: bool) -> Follower:
    """Return a follower that prints lines of JSON, or one for people.

    With `answers`, standard output contains only the answer.
    """
    if view.as_json:
        return Told(streams=view.stream)
    return Watch(
        sys.stderr if answers else sys.stdout,
        Commands(view.address),
        streams=view.stream,
        full=view.full,
        may_resume=view.outlives,
    )


async def follow(client: AgentClient, turn: Turn[Any], view: View, *, is_new: bool = False) -> int:
    """Print a turn until it is over, and return the exit code of its outcome.

    Raises:
        PerdureError: The turn has no answer.
    """
    telling = follower(view, answers=is_new)
    if is_new:
        telling.start(turn)
    try:
        await telling.follow(turn, client.turn)
    except asyncio.CancelledError:
        note(
            f"turn {word(turn.id)} goes on; to follow it again:\n "
            f" {Commands(view.address).of('show', turn.id)}"
        )
        raise
    return await conclude(turn, telling)


async def conclude(turn: Turn[Any], telling: Follower) -> int:
    """Print the end of a turn that is over, and return its exit code.

    Raises:
        PerdureError: The turn has no answer.
    """
    try:
        report = await telling.result(turn)
    except PerdureError as error:
        if error.report is not None:
            telling.fail(error.report)
        raise
    telling.close(report)
    return exits.of_report(report)
