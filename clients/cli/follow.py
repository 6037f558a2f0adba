"""A turn that is followed by a command to its end, in the way that its options ask for."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any, Protocol

from perdure.clients.agent_client import AgentClient
from perdure.clients.cli import exits
from perdure.clients.cli.hints import Commands
from perdure.clients.cli.json_lines import Told
from perdure.clients.cli.tree import Reach
from perdure.clients.cli.watch import Watch, note
from perdure.clients.turn import Turn
from perdure.errors import PerdureError
from perdure.text import word
from perdure.values.reports import AgentReport


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


def follower(arguments: argparse.Namespace, *, answers: bool) -> Follower:
    """What the options ask for.

    Where an answer is what one is after, standard output has nothing else.
    """
    if arguments.json:
        return Told(streams=arguments.stream)
    return Watch(
        sys.stderr if answers else sys.stdout,
        Commands(arguments.address),
        streams=arguments.stream,
        full=arguments.full,
    )


async def follow(
    client: AgentClient, turn: Turn[Any], arguments: argparse.Namespace, *, is_new: bool = False
) -> int:
    """Tell of a turn until it is over, and return the exit code that says how it ended.

    Raises:
        PerdureError: It has no answer.
    """
    telling = follower(arguments, answers=is_new)
    if is_new:
        telling.start(turn)
    try:
        await telling.follow(turn, client.get)
    except asyncio.CancelledError:
        note(
            f"turn {word(turn.id)} goes on; to follow it again:\n "
            f" {Commands(arguments.address).of('show', turn.id)}"
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
