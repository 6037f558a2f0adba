"""The commands for batches, with their options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.group import Command, examples

if TYPE_CHECKING:
    from perdure.clients.client import AgentClient
    from perdure.values.model_retry import ModelRetryPolicy

_LINES = "Print a line of JSON for each result, and one for the batch at the end."
_FILE = click.Path(path_type=Path, dir_okay=False)
_BATCH: options.Decorator[Any] = click.argument("batch", help="The batch's id.")
_OUT: options.Decorator[Any] = click.option(
    "--out",
    type=_FILE,
    metavar="FILE",
    help="Write a line of JSON for each result here; a file with some of them is completed.",
)


@click.group(
    short_help="run many tasks of one agent",
    no_args_is_help=False,
    epilog=examples("perdure batch run tasks.jsonl --agent classifier --out results.jsonl"),
)
def batch() -> None:
    """Run many tasks of one agent, with a limit of turns at once and one budget for all."""


@batch.command(
    cls=Command,
    short_help="run the tasks of a file",
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
    "batch_id",
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
@click.option("--turn-usd", metavar="AMOUNT", help="Money for each turn, such as 0.05.")
@options.labels("A label of every turn; may be repeated.")
@options.json_lines(_LINES)
@options.BUDGET
@options.iterations("--max-iterations")
@options.MODEL_RETRY
@options.CONNECTION
async def run(
    file: Path,
    agent: str,
    out: Path | None,
    batch_id: str | None,
    at_once: int,
    on_error: Any,
    turn_usd: str | None,
    labels: tuple[tuple[str, str], ...],
    as_json: bool,
    max_iterations: int | None,
    model_retry: ModelRetryPolicy | None,
    address: str | None,
    task_queue: str,
    **limits: Any,
) -> int:
    """Run a turn for each task of a file, and follow the batch to its end.

    The limits are those of all turns together. Ctrl-C leaves the batch running; the same command
    follows it again.
    """
    from perdure.clients.cli import batches
    from perdure.clients.cli.drawing.amounts import budget_of

    budget, turn_budget = budget_of(limits), budget_of({"usd": turn_usd})
    client = await _client(address, task_queue)
    started = await client.start_batch(
        batch_id or batches.id_of(file, agent),
        agent,
        file,
        at_once=at_once,
        on_error=on_error,
        turn_budget=turn_budget,
        budget=budget,
        labels=dict(labels),
        max_iterations=max_iterations,
        model_retry=model_retry,
    )
    return await batches.follow(started, out, as_json=as_json)


@batch.command(
    cls=Command,
    short_help="how far a batch is",
    epilog=examples("perdure batch status nightly", "perdure batch status nightly --json"),
)
@_BATCH
@options.json_lines("Print the status as a line of JSON.")
@options.ANY_QUEUE
async def status(batch: str, as_json: bool, address: str | None) -> int:
    """Print how many tasks are done, failed, running and waiting, and what they cost."""
    from perdure.clients.cli import batches
    from perdure.clients.cli.drawing.json_lines import tell
    from perdure.clients.cli.drawing.screen import put

    found = await (await _client(address)).batch(batch).status()
    if as_json:
        tell(batches.printed(found))
    else:
        put(batches.in_words(found))
    return 0


@batch.command(
    cls=Command,
    short_help="the results of a batch",
    epilog=examples(
        "perdure batch results nightly --out results.jsonl",
        "perdure batch results nightly --csv --out results.csv",
    ),
)
@_BATCH
@_OUT
@click.option("--csv", "as_csv", is_flag=True, help="Rows of CSV; a file is written anew.")
@options.json_lines(_LINES)
@options.ANY_QUEUE
async def results(
    batch: str, out: Path | None, as_csv: bool, as_json: bool, address: str | None
) -> int:
    """Follow a batch to its end, also one that is over, and print its results. Needs no worker.

    With `--out` they are written to a file and not printed.
    """
    from perdure import errors
    from perdure.clients.cli import batches

    if as_csv and as_json:
        raise errors.InvalidRequestError("give --csv or --json, not both")
    found = (await _client(address)).batch(batch)
    if as_csv:
        return await batches.write_csv(found, out)
    return await batches.follow(found, out, as_json=as_json, prints=True)


@batch.command(
    cls=Command,
    short_help="run the tasks without an answer again",
    epilog=examples("perdure batch retry nightly --usd 5 --out results.jsonl"),
)
@_BATCH
@_OUT
@click.option(
    "--at-once",
    type=options.Count(min=1),
    metavar="N",
    help="At most this many turns at the same time (default: as before).",
)
@options.json_lines(_LINES)
@options.BUDGET
@options.ANY_QUEUE
async def retry(
    batch: str,
    out: Path | None,
    at_once: int | None,
    as_json: bool,
    address: str | None,
    **limits: Any,
) -> int:
    """Run the failed tasks and those not started again, and follow the batch to its end.

    The limits are added to those of the batch. Tasks with an answer are left alone.
    """
    from perdure.clients.cli import batches
    from perdure.clients.cli.drawing.amounts import budget_of

    found = (await _client(address)).batch(batch)
    await found.retry(budget_of(limits), at_once=at_once)
    return await batches.follow(found, out, as_json=as_json)


@batch.command(
    cls=Command,
    short_help="stop a batch",
    epilog=examples('perdure batch cancel nightly --reason "wrong prompt"'),
)
@_BATCH
@click.option("--reason", default="", metavar="TEXT", help="The reason, recorded with the turns.")
@options.json_lines("Print whether there was something to stop, as a line of JSON.")
@options.ANY_QUEUE
async def cancel(batch: str, reason: str, as_json: bool, address: str | None) -> int:
    """Cancel the turns of a batch that run, and start no more."""
    from perdure.clients.cli.drawing.json_lines import tell
    from perdure.clients.cli.drawing.screen import note
    from perdure.text import word

    found = (await _client(address)).batch(batch)
    asked = await found.cancel(reason)
    if as_json:
        tell({"batch": found.id, "asked": asked})
    elif asked:
        note(f"asked batch {word(found.id)} to stop")
    else:
        note(f"batch {word(found.id)} is over already")
    return 0


async def _client(address: str | None, task_queue: str | None = None) -> AgentClient:
    from perdure.clients.client import AgentClient
    from perdure.temporal.names import TASK_QUEUE

    return await AgentClient.connect(address, task_queue=task_queue or TASK_QUEUE)
