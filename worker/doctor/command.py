"""The command `perdure doctor`. Its imports are in its function, so that the help is quick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from perdure.clients.cli import options
from perdure.clients.cli.exits import DONE, FAILED, UNREACHABLE
from perdure.clients.cli.group import Command, examples

if TYPE_CHECKING:
    from datetime import timedelta

    from perdure.worker.setup_checks import Finding

_STYLES = {"ok": "green", "skipped": "dim", "warning": "yellow", "failed": "bold red"}


@click.command(
    cls=Command,
    epilog=examples(
        "perdure doctor",
        "perdure doctor support:app --ask-models",
        "perdure doctor --json | jq -r 'select(.state == \"failed\")'",
    ),
)
@click.argument(
    "program",
    metavar="[MODULE:NAME]",
    required=False,
    help="Check this worker's agents, models, keys and MCP servers too.",
)
@click.option(
    "--ask-models",
    is_flag=True,
    help="Send each model of the agents a request of some 20 tokens.",
)
@click.option(
    "--waits",
    type=options.Duration(),
    default="1d",
    metavar="TIME",
    help="How long a turn may wait for a person, a provider or a budget (default: 1d).",
)
@click.option(
    "--backlog",
    type=options.Duration(),
    default="1m",
    metavar="TIME",
    help="How long a task may wait for a busy worker (default: 1m).",
)
@click.option(
    "--most",
    type=options.Count(min=1, max=100_000),
    default=1_000,
    metavar="N",
    help="How many open workflows to look at, the latest first (default: 1000).",
)
@options.CONNECTION
@options.json_lines("Print a line of JSON for each finding, and one for their number.")
async def doctor(
    program: str | None,
    ask_models: bool,
    waits: timedelta,
    backlog: timedelta,
    most: int,
    as_json: bool,
    address: str | None,
    task_queue: str,
) -> int:
    """Find out what is wrong with a running system.

    It looks at the server, the namespace, the task queues and what runs, and changes nothing. The
    exit code is 0 if nothing is wrong, 1 if something is, and 20 without a server.
    """
    from perdure.errors import ConfigurationError
    from perdure.worker.doctor.examination import SERVER, Examination

    if ask_models and program is None:
        raise ConfigurationError(
            "--ask-models asks the models of a worker; name it, as MODULE:NAME"
        )
    examination = Examination(
        address=address,
        task_queue=task_queue,
        program=program,
        asks_models=ask_models,
        longest_wait=waits,
        longest_backlog=backlog,
        most_workflows=most,
    )
    found = []
    async for finding in examination.findings():
        _tell(finding, as_json=as_json)
        found.append(finding)
    _conclude(found, as_json=as_json)
    if any(finding.subject == SERVER and finding.is_problem for finding in found):
        return UNREACHABLE
    return FAILED if any(finding.is_problem for finding in found) else DONE


def _tell(finding: Finding, *, as_json: bool) -> None:
    from rich.text import Text

    from perdure.clients.cli.drawing import json_lines
    from perdure.clients.cli.drawing.screen import put
    from perdure.text import harmless

    if as_json:
        json_lines.tell(
            {
                "what": finding.subject,
                "state": finding.state,
                "found": finding.words,
                "remedy": finding.remedy,
            }
        )
        return
    put(
        Text.assemble(
            (f"{finding.state:<8}", _STYLES[finding.state]),
            (f" {harmless(finding.subject)}", "bold"),
            f"  {harmless(finding.words)}",
        )
    )
    if finding.remedy:
        put(Text(f"{'':<8} → {harmless(finding.remedy)}"))


def _conclude(found: Iterable[Finding], *, as_json: bool) -> None:
    from perdure.clients.cli.drawing import json_lines
    from perdure.clients.cli.drawing.screen import put
    from perdure.text import counted

    states = Counter(finding.state for finding in found)
    failed, warnings = states["failed"], states["warning"]
    if as_json:
        json_lines.tell({"failed": failed, "warnings": warnings, "checks": states.total()})
    elif failed or warnings:
        put(f"{failed} failed, {counted(warnings, 'warning')}, of {states.total()} checks")
    else:
        put(f"nothing is wrong: {counted(states.total(), 'check')}")
