"""`perdure erase`: the erasure of a data subject."""

from __future__ import annotations

from datetime import timedelta

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import connected, sender
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.group import Command, examples


@click.command(
    "erase",
    cls=Command,
    epilog=examples(
        "perdure erase customer-4711",
        "perdure erase customer-4711 --yes --json > receipt.json",
    ),
)
@click.argument("subject", help="The data subject, as turns were started with it.")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask whether to erase it.")
@click.option(
    "--grace",
    type=options.Duration(),
    metavar="TIME",
    help="How long what is open may take to end by itself, before it is terminated (default: 30s).",
)
@options.BY
@options.json_lines("Print the receipt as a line of JSON.")
@options.ANY_QUEUE
async def erase(
    subject: str,
    is_agreed: bool,
    grace: timedelta | None,
    by: str | None,
    as_json: bool,
    address: str | None,
) -> int:
    """Destroy the key of a data subject.

    What is open of it is ended first. Then nobody can read its turns, sessions, batches and
    schedules, also not in backups of Temporal. The receipt says for each place what was done, and
    what retention does.
    """
    from perdure.clients.cli.drawing.erasure import show
    from perdure.clients.cli.running.erasing import agree

    client = await connected(address)
    if not is_agreed:
        await agree(subject)
    arguments = {} if grace is None else {"grace": grace}
    show(await client.erase(subject, by=sender(by), **arguments), as_json=as_json)
    return DONE
