"""The command for the versions of an agent."""

from __future__ import annotations

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import connected
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.group import Command, examples


@click.command(
    "versions",
    cls=Command,
    epilog=examples("perdure versions support", "perdure versions support --last 200 --json"),
)
@options.AGENT
@click.option(
    "--last",
    type=options.Count(min=1, max=100_000),
    default=1_000,
    metavar="N",
    help="How many turns to read, the last ended first (default: 1000).",
)
@options.json_lines("Print a line of JSON for each version.")
@options.ANY_QUEUE
async def versions(agent: str, last: int, as_json: bool, address: str | None) -> int:
    """Compare the versions of an agent.

    How many of its turns failed, their steps and their cost. Steps and cost are averages of the
    turns that are over. Whether a version is stopped is what `perdure doctor MODULE:NAME` says.
    """
    from perdure.clients.cli.drawing.versions import show

    client = await connected(address)
    show(await client.versions(agent, last=last), as_json=as_json)
    return DONE
