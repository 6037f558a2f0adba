"""The commands `perdure audit` and `perdure audit verify`."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import connected
from perdure.clients.cli.exits import DONE, FAILED
from perdure.clients.cli.group import Command, examples

_FILE = click.Path(path_type=Path, dir_okay=False)


class AuditGroup(Command, click.Group):
    """A command with options of its own, and with one command below it."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and then the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(
    cls=AuditGroup,
    invoke_without_command=True,
    epilog=examples(
        "perdure audit --since 24h",
        "perdure audit --since 2026-11-01T00:00:00Z --json > audit.jsonl",
        "perdure audit --after audit.jsonl --json >> audit.jsonl",
        "perdure audit verify audit.jsonl",
    ),
)
@click.option(
    "--since",
    type=options.When(),
    metavar="WHEN",
    help="How long ago, such as 24h, or a date with its time zone (default: 24h).",
)
@click.option(
    "--until", type=options.When(), metavar="WHEN", help="Until when, likewise (default: now)."
)
@click.option("--subject", metavar="NAME", help="Only what is of this data subject.")
@click.option("--id-prefix", metavar="TEXT", help="Only ids that begin with this.")
@click.option(
    "--after",
    type=_FILE,
    metavar="FILE",
    help="Go on where the audit in this file ends, with its filters, as lines of JSON.",
)
@options.json_lines("Print lines of JSON that form a chain of hashes.")
@options.ADDRESS
@click.pass_context
def audit(context: click.Context, /, **values: Any) -> Coroutine[Any, Any, int] | None:
    """Show who has done what, and through what.

    It reads the histories of what is not over, or has ended since. With PERDURE_AUDIT_KEY, the
    hashes of --json cannot be made without that key.
    """
    return None if context.invoked_subcommand else _audit(**values)


async def _audit(
    since: timedelta | datetime | None,
    until: timedelta | datetime | None,
    subject: str | None,
    id_prefix: str | None,
    after: Path | None,
    as_json: bool,
    address: str | None,
) -> int:
    from perdure.clients.cli.running import auditing

    given = {
        "since": _moment(since),
        "until": _moment(until),
        "subject": subject,
        "id_prefix": id_prefix,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if after is not None and given.keys() - {"until"}:
        raise click.UsageError("--after has the time and the filters of the audit in its file")
    before = None if after is None else auditing.ended(after)
    client = await connected(address)
    if before is None and not as_json:
        await auditing.show(client, given)
    else:
        await auditing.write(client, given, before)
    return DONE


@audit.command(
    epilog=examples(
        "perdure audit verify audit.jsonl", "perdure audit verify october.jsonl november.jsonl"
    )
)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=_FILE,
    metavar="FILE…",
    help="The files of the chain, in order.",
)
@options.json_lines("Print a line of JSON for each fault.")
async def verify(files: tuple[Path, ...], as_json: bool) -> int:
    """Find lines of an audit that were changed, are missing, or are out of order.

    The exit code is 1 if there are any. It needs no server, and PERDURE_AUDIT_KEY if the audit was
    made with it.
    """
    from perdure.clients.cli.running import auditing

    return DONE if auditing.verified(files, as_json=as_json) else FAILED


def _moment(when: timedelta | datetime | None) -> datetime | None:
    return datetime.now(UTC) - when if isinstance(when, timedelta) else when
