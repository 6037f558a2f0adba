"""The command `perdure setup`."""

from __future__ import annotations

from datetime import timedelta

import click

from perdure.clients.cli import options
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.group import Command, examples


@click.command(
    cls=Command,
    epilog=examples("perdure setup --address temporal.example.com:7233 --namespace agents"),
)
@click.option("--create-namespace", is_flag=True, help="Create the namespace if there is none.")
@click.option(
    "--retention",
    type=options.DAYS,
    default=7,
    metavar="DAYS",
    help="How long a created namespace keeps ended turns (default: 7).",
)
@click.option(
    "--wait",
    type=float,
    default=10,
    metavar="SECONDS",
    help="How long to wait for the server to answer (default: 10).",
)
@options.json_lines("Print a line of JSON for what was found or done.")
@options.ADDRESS
@options.temporal(
    "--namespace",
    metavar="NAME",
    help="Temporal's namespace (default: its environment, or default).",
)
async def setup(
    create_namespace: bool,
    retention: int,
    wait: float,
    as_json: bool,
    address: str | None,
    namespace: str | None,
) -> int:
    """Prepare a Temporal namespace.

    The search attributes for listing turns are registered. It may be run again at any time.
    """
    from perdure.clients.cli.drawing import json_lines
    from perdure.clients.cli.drawing.screen import put
    from perdure.clients.cli.running.setup_namespace import reach, set_up
    from perdure.text import harmless

    def say(subject: str, text: str) -> None:
        if as_json:
            json_lines.tell({"what": subject, "found": text})
        else:
            put(f"{subject:<10} {harmless(text)}")

    client = await reach(address, namespace, wait=timedelta(seconds=wait))
    await set_up(client, say, new_namespace=timedelta(days=retention) if create_namespace else None)
    say("ready", "`perdure list` lists turns by agent, state, outcome and label")
    return DONE
