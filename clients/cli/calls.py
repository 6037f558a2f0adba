"""The command for calls whose result comes later."""

from __future__ import annotations

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import Display, connected, sender
from perdure.clients.cli.group import Command, examples


@click.command(
    "finish",
    cls=Command,
    epilog=examples(
        "perdure finish call_hJ2k4… 'deployed as v42'",
        "perdure finish call_hJ2k4… '{\"version\": 42}'",
        "perdure finish call_hJ2k4… 'the disk is full' --failed",
    ),
)
@click.argument("token", help="The token of the call, as its tool got it.")
@click.argument("result", required=False, help="What the model reads.")
@click.option("--failed", is_flag=True, help="The job has failed, and RESULT says why.")
@options.BY
@options.json_lines("Print the id of the turn as a line of JSON.")
@options.ADDRESS
async def finish(
    token: str, result: str | None, failed: bool, by: str | None, as_json: bool, address: str | None
) -> int:
    """Send the result of a call that waits for a job.

    Its tool has `later=True`. The same result may be sent again: it takes effect once.
    """
    from perdure.text import word

    client = await connected(address)
    turn_id = await client.finish_call(token, result or "", is_error=failed, by=sender(by))
    display = Display(as_json=as_json)
    return display.report({"turn": turn_id}, f"turn {word(turn_id)} has the result of the call")
