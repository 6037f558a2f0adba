"""The commands for batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import Display, connected, sender
from perdure.clients.cli.group import examples
from perdure.clients.cli.resources import ResourceGroup, cancelled

if TYPE_CHECKING:
    from perdure.clients.batches.handle import Batch
    from perdure.clients.batches.listing import BatchEntry
    from perdure.clients.cli.drawing.listing import EntryTable
    from perdure.clients.client import AgentClient

_LINES = "Print a line of JSON for each result, and one for the batch at the end."
_FILE = click.Path(path_type=Path, dir_okay=False)
_OUT: options.Decorator[Any] = click.option(
    "--out",
    type=_FILE,
    metavar="FILE",
    help="Write a line of JSON for each result here; a file with some of them is completed.",
)


def _handle(client: AgentClient, id: str) -> Batch[Any]:
    return client.batch(id)


@click.group(
    cls=ResourceGroup,
    handle=_handle,
    epilog=examples("perdure batch run tasks.jsonl --agent classifier --out results.jsonl"),
)
def batch() -> None:
    """Run many tasks of one agent.

    A batch has a limit of turns at once, and one budget for all of them.
    """


@batch.command(
    epilog=examples(
        "perdure batch run tasks.jsonl --agent classifier --out results.jsonl",
        "perdure batch run tasks.jsonl --agent classifier --at-once 20 --usd 50",
    ),
)
@click.argument(
    "file", type=_FILE, help="A line of JSON for each task: a string, or task, id and labels."
)
@click.option("--agent", required=True, metavar="NAME", help="The agent's name.")
@_OUT
@click.option(
    "--id",
    metavar="ID",
    help="The batch's id (default: from the agent, and the file's name and content).",
)
@click.option(
    "--at-once",
    type=options.Count(min=1),
    default=10,
    metavar="N",
    help="At most this many turns at the same time (default: 10).",
)
@click.option(
    "--on-error",
    type=click.Choice(["go on", "stop"]),
    default="go on",
    metavar="HOW",
    help="After a turn without an answer: 'go on' with the others, or stop (default: go on).",
)
@options.limit("--turn-usd", metavar="AMOUNT", help="Money for each turn, such as 0.05.")
@options.turn("A label of every turn; may be repeated.")
@options.BY
@options.json_lines(_LINES)
@options.CONNECTION
async def run(
    file: Path,
    agent: str,
    out: Path | None,
    id: str | None,
    turn_usd: str | None,
    by: str | None,
    as_json: bool,
    address: str | None,
    task_queue: str,
    **values: Any,
) -> int:
    """Run the tasks of a file, and follow the batch to its end.

    The limits are those of all turns together. Ctrl-C leaves the batch running; the same command
    follows it again.
    """
    from perdure.clients.cli.drawing.amounts import budget_of, with_budget
    from perdure.clients.cli.running import batch_results

    start = {**with_budget(values), "turn_budget": budget_of({"usd": turn_usd}), "by": sender(by)}
    client = await connected(address, task_queue)
    started = await client.start_batch(id or batch_results.id_of(file, agent), agent, file, **start)
    return await batch_results.follow(started, out, as_json=as_json)


@batch.listing("perdure batch list", "perdure batch list --agent classifier --json | jq -r .id")
@click.option("--agent", metavar="NAME", help="Only batches of this agent.")
def list_batches(client: AgentClient, **filters: Any) -> EntryTable[BatchEntry]:
    """List batches.

    Batches that are not over come first, then those that are, the last ended first.
    """
    from perdure.clients.cli.drawing.batches import entry_table

    return entry_table(client.batches(**filters))


@batch.for_id(
    "perdure batch show nightly",
    "perdure batch show nightly --json",
    json="Print the batch as a line of JSON.",
)
async def show(batch: Batch[Any], display: Display) -> int:
    """Show how far a batch is, and what it costs."""
    from perdure.clients.cli.drawing import batches

    return await batches.show(batch, as_json=display.as_json)


@batch.for_id(
    "perdure batch results nightly --out results.jsonl",
    "perdure batch results nightly --csv --out results.csv",
    json=_LINES,
)
@_OUT
@click.option("--csv", "as_csv", is_flag=True, help="Rows of CSV; a file is written anew.")
async def results(batch: Batch[Any], display: Display, out: Path | None, as_csv: bool) -> int:
    """Print the results of a batch, and follow it to its end.

    With `--out` the results are written to a file and not printed. Needs no worker.
    """
    from perdure import errors
    from perdure.clients.cli.running import batch_results

    if as_csv and display.as_json:
        raise errors.InvalidRequestError("give --csv or --json, not both")
    if as_csv:
        return await batch_results.write_csv(batch, out)
    return await batch_results.follow(batch, out, as_json=display.as_json, prints=True)


@batch.for_id("perdure batch retry nightly --usd 5 --out results.jsonl", json=_LINES)
@_OUT
@click.option(
    "--at-once",
    type=options.Count(min=1),
    metavar="N",
    help="At most this many turns at the same time (default: as before).",
)
@options.BUDGET
@options.BY
async def retry(
    batch: Batch[Any],
    display: Display,
    out: Path | None,
    at_once: int | None,
    by: str | None,
    **limits: Any,
) -> int:
    """Run the tasks without an answer again, and follow the batch.

    The limits are added to those of the batch. Tasks with an answer are left alone.
    """
    from perdure.clients.cli.drawing.amounts import budget_of
    from perdure.clients.cli.running import batch_results

    await batch.retry(budget_of(limits), at_once=at_once, by=sender(by))
    return await batch_results.follow(batch, out, as_json=display.as_json)


@batch.action(
    "perdure batch add-budget nightly --usd 5", json="Print what is left, as a line of JSON."
)
@options.BUDGET
@options.BY
async def add_budget(
    batch: Batch[Any], by: str | None, **limits: Any
) -> tuple[dict[str, Any], str]:
    """Add to the budget of a batch that runs.

    `retry` adds to the budget of a batch that is over.
    """
    from perdure.clients.cli.drawing import amounts
    from perdure.text import word

    left = await batch.add_budget(amounts.named_budget(limits), by=sender(by))
    return {"left": left}, f"left for batch {word(batch.id)}: {amounts.in_words(left)}"


@batch.action(
    'perdure batch cancel nightly --reason "wrong prompt"',
    json="Print whether there was something to stop, as a line of JSON.",
)
@options.REASON
@options.BY
async def cancel(batch: Batch[Any], reason: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Cancel the running turns of a batch, and start no more."""
    return cancelled("batch", batch.id, await batch.cancel(reason, by=sender(by)))
