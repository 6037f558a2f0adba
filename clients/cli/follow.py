"""A turn that is followed by a command to its end, in the way that its options ask for."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.clients.agent_client import AgentClient
from perdure.clients.cli import exits
from perdure.clients.cli.hints import Commands
from perdure.clients.cli.json_lines import Told
from perdure.clients.cli.screen import note
from perdure.clients.cli.tree import Reach
from perdure.clients.cli.watch import Watch
from perdure.clients.turn import Turn
from perdure.errors import PerdureError
from perdure.text import word
from perdure.values.reports import AgentReport


@dataclass(frozen=True)
class View:
    """How a turn is shown.

    Attributes:
        as_json: As lines of JSON.
        full: With task, arguments and results whole.
        stream: With the model's text while it is generated.
        address: The server that the command was given, for the commands that it suggests.
    """

    as_json: bool = False
    full: bool = False
    stream: bool = False
    address: str | None = None


class Follower(Protocol):
    """Tells of a turn."""

    def start(self, turn: Turn[Any]) -> None:
        """Which turn it is, where that is new."""

    async def follow(self, turn: Turn[Any], reach: Reach) -> None:
        """What happens in it, to its end."""

    async def result(self, turn: Turn[Any]) -> AgentReport[Any]:
        """Its report, with the answer in the form that is told."""

    def close(self, report: AgentReport[Any]) -> None:
        """It has an answer."""

    def fail(self, report: AgentReport[Any]) -> None:
        """It has none."""


def follower(view: View, *, answers: bool) -> Follower:
    """Lines of JSON, or a view for a person.

    With `answers`, standard output has nothing but the answer.
    """
    if view.as_json:
        return Told(streams=view.stream)
    return Watch(
        sys.stderr if answers else sys.stdout,
        Commands(view.address),
        streams=view.stream,
        full=view.full,
    )


async def follow(client: AgentClient, turn: Turn[Any], view: View, *, is_new: bool = False) -> int:
    """Tell of a turn until it is over, and return the exit code that says how it ended.

    Raises:
        PerdureError: It has no answer.
    """
    telling = follower(view, answers=is_new)
    if is_new:
        telling.start(turn)
    try:
        await telling.follow(turn, client.get)
    except asyncio.CancelledError:
        note(
            f"turn {word(turn.id)} goes on; to follow it again:\n "
            f" {Commands(view.address).of('show', turn.id)}"
        )
        raise
    return await conclude(turn, telling)


async def conclude(turn: Turn[Any], telling: Follower) -> int:
    """The end of a turn that is over.

    Raises:
        PerdureError: It has no answer.
    """
    try:
        report = await telling.result(turn)
    except PerdureError as error:
        if error.report is not None:
            telling.fail(error.report)
        raise
    telling.close(report)
    return exits.of_report(report)
