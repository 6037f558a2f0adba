"""`perdure rewrap`: another key of the environment for the keys of all data subjects."""

from __future__ import annotations

import click

from perdure.clients.cli import options
from perdure.clients.cli.exits import DONE, FAILED
from perdure.clients.cli.group import Command, examples


@click.command("rewrap", cls=Command, epilog=examples("perdure rewrap", "perdure rewrap --json"))
@options.json_lines("Print what was done as a line of JSON.")
async def rewrap(as_json: bool) -> int:
    """Wrap the keys of data subjects with another key.

    It is the first of PERDURE_ENCRYPTION_KEYS. The old key is needed once more, behind it. Workers
    may run meanwhile. The exit code is 1 if there are keys that cannot be unwrapped.
    """
    from perdure.clients.cli.drawing.rewrapping import show
    from perdure.temporal.data_converter import chosen
    from perdure.temporal.encryption import rewrapping
    from perdure.temporal.encryption.data_subjects import keys_in

    receipt = await rewrapping.rewrap(keys_in(chosen().payload_codec))
    show(receipt, as_json=as_json)
    return FAILED if receipt.unreadable else DONE
