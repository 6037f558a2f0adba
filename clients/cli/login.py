"""`perdure login`: the login of a person at an MCP server, on this machine."""

from __future__ import annotations

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import Display, connected, sender
from perdure.clients.cli.group import Command, examples


@click.command(
    "login",
    cls=Command,
    epilog=examples(
        "perdure login ticket-4711",
        "perdure login ticket-4711 --call call_1_1 --no-browser",
    ),
)
@click.argument("turn", help="The id of the turn that waits.")
@click.option("--call", metavar="CALL", help="The call that waits, if several do.")
@click.option("--no-browser", is_flag=True, help="Only print the address; open no browser.")
@options.BY
@options.json_lines("Print the login as a line of JSON.")
@options.ADDRESS
async def login(
    turn: str,
    call: str | None,
    no_browser: bool,
    by: str | None,
    as_json: bool,
    address: str | None,
) -> int:
    """Log in at an MCP server that a turn waits for.

    The browser of this machine is sent there, and comes back to this command. Whoever logs in gives
    the agent access on behalf of the data subject of the turn.
    """
    from perdure.clients.cli.running.logging_in import log_in
    from perdure.text import word

    client = await connected(address)
    link = await log_in(client, turn, call, opens=not no_browser, by=sender(by))
    told = f"{word(link.subject)} is logged in at {word(link.server)}, and the turn goes on"
    return Display(as_json=as_json).report(link.model_dump(mode="json"), told)
