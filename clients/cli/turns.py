"""The commands for turns.

A command imports its modules when it runs, so that the help is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import Display, connected, sender
from perdure.clients.cli.exits import OUTCOMES
from perdure.clients.cli.group import examples
from perdure.clients.cli.resources import ResourceGroup, cancelled

if TYPE_CHECKING:
    from perdure.clients.cli.drawing.listing import EntryTable
    from perdure.clients.client import AgentClient
    from perdure.clients.turns.entries import TurnEntry
    from perdure.clients.turns.handle import Turn
    from perdure.values.approvals import Settlement

_SETTLEMENTS = ("done", "absent", "again")
_STATES = ("running", "waiting", "paused", "ended")
_ID: options.Decorator[Any] = click.argument("turn", help="The turn's id.")


def _handle(client: AgentClient, id: str) -> Turn[Any]:
    return client.turn(id)


@click.group("turn", cls=ResourceGroup, handle=_handle)
def turns() -> None:
    """Start, follow and control turns.

    These commands have no group on the command line, because they are the most frequent.
    """


@turns.command(
    epilog=examples(
        'perdure run support "Answer ticket 4711." --id ticket-4711 --usd 0.50',
        'perdure run support "Answer ticket 4711." > answer.txt',
        'perdure run support "Sum up the day." --delay 2h --deadline 1d',
        'perdure run support "Answer ticket 4711." --json | jq .kind',
    ),
)
@options.AGENT
@click.argument("task", help="The task for the agent.")
@click.option("--id", metavar="ID", help="The turn's id; the same id is the same turn.")
@click.option(
    "--if-exists",
    type=click.Choice(["attach", "restart", "error"]),
    default="attach",
    metavar="HOW",
    help="What to do where a turn of this id exists: attach, restart or error (default: attach).",
)
@options.STREAM
@options.EVENTS
@options.turn("A label of the turn; may be repeated.")
@options.START
@options.BY
@options.CONNECTION
async def run(
    agent: str,
    task: str,
    stream: bool,
    by: str | None,
    as_json: bool,
    address: str | None,
    task_queue: str,
    **values: Any,
) -> int:
    """Start a turn, or attach to it, and follow it to its end.

    The answer goes to standard output, everything else to standard error. Ctrl-C leaves the turn
    running.
    """
    from perdure.clients.cli.drawing.amounts import with_budget
    from perdure.clients.cli.running.following import follow

    start = with_budget(values)
    client = await connected(address, task_queue)
    turn = await client.start(agent, task, live=stream, by=sender(by), **start)
    display = Display(as_json=as_json, stream=stream, address=address)
    return await follow(client, turn, display, is_new=True)


@turns.command(
    epilog=examples(
        "perdure show ticket-4711",
        "perdure show ticket-4711 --json | jq 'select(.kind == \"report\").report.cost'",
    ),
)
@_ID
@click.option(
    "--full", is_flag=True, help="Print task, arguments and results whole, below their lines."
)
@options.STREAM
@options.EVENTS
@options.ANY_QUEUE
async def show(turn: str, full: bool, stream: bool, as_json: bool, address: str | None) -> int:
    """Show a turn from its beginning, live while it runs.

    The exit code depends on its outcome.
    """
    from perdure.clients.cli.running.following import follow

    client = await connected(address)
    display = Display(as_json=as_json, full=full, stream=stream, address=address)
    return await follow(client, client.turn(turn), display)


@turns.listing(
    "perdure list --state waiting",
    "perdure list --outcome failed --json | jq -r .id",
    queues=options.ONE_OR_ALL_QUEUES,
)
@click.option("--agent", metavar="NAME", help="Only turns of this agent.")
@click.option(
    "--state",
    type=click.Choice(_STATES),
    metavar="STATE",
    help="Only turns that are running, waiting, paused or ended.",
)
@click.option(
    "--outcome",
    type=click.Choice(list(OUTCOMES)),
    metavar="OUTCOME",
    help="Only turns with this outcome: completed, failed, cancelled, …",
)
@options.labels("Only turns with this label; may be repeated.")
@click.option("--version", metavar="VERSION", help="Only turns of this version of an agent.")
@click.option("--subject", metavar="NAME", help="Only turns of this data subject.")
@click.option("--parent", metavar="TURN", help="Only turns that this turn delegated to.")
@click.option("--schedule", metavar="ID", help="Only turns that this schedule started.")
def list_turns(client: AgentClient, **filters: Any) -> EntryTable[TurnEntry]:
    """List turns.

    Running turns come first, then those that are over, the last ended first.
    """
    from perdure.clients.cli.drawing.turns import entry_table

    return entry_table(client, client.turns(**filters))


@turns.command(
    epilog=examples(
        "perdure approvals",
        "perdure approvals ticket-4711",
        "perdure approvals ticket-4711 --approve call_1_1",
        'perdure approvals ticket-4711 --deny call_1_2 --reason "the customer called"',
        "perdure approvals --agent support --label team=north",
    ),
)
@click.argument("turn", required=False, help="The turn's id: its calls, with all arguments.")
@click.option(
    "--approve", metavar="CALL", multiple=True, help="Let this call run; may be repeated."
)
@click.option("--deny", metavar="CALL", multiple=True, help="Refuse this call; may be repeated.")
@click.option(
    "--arguments",
    metavar="JSON",
    help="With --approve: run it with these arguments in place of its own.",
)
@click.option(
    "--reason", default="", metavar="TEXT", help="The reason; with --deny the model sees it."
)
@options.BY
@click.option("--agent", metavar="NAME", help="List only calls of this agent's turns.")
@options.labels("List only calls of turns with this label; may be repeated.")
@options.json_lines("Print a line of JSON for each call, with all of its arguments.")
@options.ONE_OR_ALL_QUEUES
async def approvals(address: str | None, **values: Any) -> int:
    """List, approve or deny the calls that wait for a person.

    `perdure answer` answers those that ask a question.
    """
    from perdure.clients.cli.running.approvals import ApprovalOptions, decide

    return await decide(await connected(address), ApprovalOptions(address=address, **values))


@turns.action(
    "perdure answer ticket-4711 call_1_1 green",
    "perdure answer ticket-4711 call_1_1 '{\"euros\": 300}' --by anna@example.com",
    json="Print the decision as a line of JSON.",
)
@click.argument("call", help="The call's id, or CALL:TOKEN, as `perdure approvals` prints it.")
@click.argument("answer", help="One of the options, or a text; for a form, a JSON object.")
@options.BY
async def answer(
    turn: Turn[Any], call: str, answer: str, by: str | None
) -> tuple[dict[str, Any], str]:
    """Answer a question that a model asks a person.

    `perdure approvals` lists the questions, and with `--deny` declines to answer.
    """
    from perdure.clients.cli.running.answers import give

    return await give(turn, call, answer, sender(by))


@turns.action(
    'perdure settle ticket-4711 call_1_1 done --result "payment 4711"',
    "perdure settle ticket-4711 call_1_1 again --by anna@example.com",
    json="Print the decision as a line of JSON.",
)
@click.argument("call", help="The call's id, or CALL:TOKEN, as `perdure approvals` prints it.")
@click.argument(
    "settlement",
    type=click.Choice(_SETTLEMENTS),
    help="done if it has taken effect, absent if it has not, again to let a turn that waits make"
    " it again.",
)
@click.option(
    "--result", default="", metavar="TEXT", help="The result, such as a number; the model reads it."
)
@options.BY
async def settle(
    turn: Turn[Any], call: str, settlement: Settlement, result: str, by: str | None
) -> tuple[dict[str, Any], str]:
    """Say what became of a call whose outcome is unknown.

    If the turn waits for that, `perdure approvals` lists the call with what is known of it. If it
    is over, `perdure show` lists the call; later calls with the same effect follow what you say.
    """
    from perdure.text import word

    author = sender(by)
    await turn.settle(call, settlement, result, by=author)
    value = {"call_id": call.partition(":")[0], "settled": settlement, "by": author}
    return value, f"call {word(call)} of turn {word(turn.id)} is settled: {settlement}"


@turns.command(
    epilog=examples(
        "perdure undo ticket-4711",
        "perdure undo ticket-4711 call_1_1 --by anna@example.com",
    ),
)
@_ID
@click.argument("call", required=False, help="The call's id; without it, effects are listed.")
@options.BY
@options.json_lines("Print a line of JSON: for each effect, or the turn that takes one back.")
@options.ANY_QUEUE
async def undo(
    turn: str, call: str | None, by: str | None, as_json: bool, address: str | None
) -> int:
    """Take back the effect of a call of a turn that is over.

    A turn of its own does that, with what the tool of the call has in undo=. It may wait for
    approval. Without a call, the effects of the turn are listed.
    """
    from perdure.clients.cli.drawing import effects
    from perdure.clients.cli.drawing.hints import CommandHints
    from perdure.text import word

    handle = (await connected(address)).turn(turn)
    if call is None:
        effects.show(turn, await handle.effects(), as_json=as_json)
        return 0
    started = await handle.undo(call, by=sender(by))
    follow = CommandHints(address).of("show", started.id)
    return Display(as_json).report(
        {"turn": started.id},
        f"turn {word(started.id)} takes call {word(call)} of turn {word(turn)} back; to follow it:"
        f" {follow}",
    )


@turns.command(
    epilog=examples(
        "perdure webhooks ticket-4711",
        "perdure webhooks ticket-4711 --send on_wait-1a2b3c4d5e6f",
    ),
)
@_ID
@click.option("--send", metavar="ID", help="Send the webhook with this id again.")
@options.json_lines("Print a line of JSON: for each webhook, or the one that is sent again.")
@options.ANY_QUEUE
async def webhooks(turn: str, send: str | None, as_json: bool, address: str | None) -> int:
    """List the webhooks of a turn, or send one again.

    Those of its delegates are listed, too. Only a webhook whose delivery has failed is sent again.
    """
    from perdure.clients.cli.drawing import webhooks as drawing
    from perdure.text import word

    handle = (await connected(address)).turn(turn)
    if send is None:
        drawing.show(turn, await handle.webhooks(), as_json=as_json)
        return 0
    await handle.send_webhook(send)
    return Display(as_json).report(
        {"turn": turn, "webhook": send}, f"webhook {word(send)} of turn {word(turn)} is sent again"
    )


@turns.command(
    epilog=examples(
        "perdure add-budget ticket-4711 --usd 0.50 --time 10m",
        "perdure add-budget ticket-4711 --iterations 10",
    ),
)
@_ID
@options.BUDGET
@options.iterations("--iterations")
@options.BY
@options.json_lines("Print what is left as a line of JSON.")
@options.ANY_QUEUE
async def add_budget(
    turn: str,
    iterations: int | None,
    by: str | None,
    as_json: bool,
    address: str | None,
    **limits: Any,
) -> int:
    """Add to the budget or the iterations of a turn.

    A turn that waits for them continues.
    """
    from perdure import errors
    from perdure.clients.cli.drawing import amounts
    from perdure.text import word

    more = amounts.budget_of(limits)  # before a server is needed: `action` connects first
    if more is None and iterations is None:
        raise errors.InvalidRequestError(
            "name what to add: --usd, --time, --tokens, --model-calls, --tool-calls or --iterations"
        )
    client = await connected(address)
    remaining = await client.turn(turn).add_budget(more, iterations=iterations, by=sender(by))
    return Display(as_json).report(
        {"turn": turn, "left": remaining},
        f"left for turn {word(turn)}: {amounts.in_words(remaining)}",
    )


@turns.action(
    'perdure steer ticket-4711 "Use the new price list."',
    'perdure steer ticket-4711 "Stop, they cancelled." --now --deny-pending',
    json="Print the id of the message as a line of JSON.",
)
@click.argument("text", help="The message.")
@click.option(
    "--id",
    metavar="ID",
    help="The message's id; the same id is the same message (default: a random one).",
)
@click.option("--now", is_flag=True, help="Stop the model call that is running.")
@click.option(
    "--deny-pending",
    is_flag=True,
    help="Deny the calls that wait for approval, with the message as the reason.",
)
@options.BY
async def steer(
    turn: Turn[Any], text: str, by: str | None, **values: Any
) -> tuple[dict[str, Any], str]:
    """Send a message to a running turn.

    Its model reads the message with the next call. If the turn ends before that, its report lists
    the message as unread.
    """
    from perdure.text import word

    message_id = await turn.steer(text, by=sender(by), **values)
    said = f"turn {word(turn.id)} has the message; its model reads it with the next call"
    return {"message": message_id}, said


@turns.command(
    epilog=examples(
        'perdure fork ticket-4711 --at-step 7 --say "Use the new price list."',
        "perdure fork ticket-4711 --at-step 0 --model openai:gpt-5 --yes",
    ),
)
@_ID
@click.option(
    "--at-step",
    metavar="N",
    type=options.Count(min=0),
    help="The last step to keep; 0 keeps the task alone (default: the last complete step).",
)
@click.option("--say", metavar="TEXT", help="A message to the model, after the messages.")
@click.option("--agent", metavar="NAME", help="The agent of the new turn (default: the same).")
@click.option("--model", metavar="MODEL", help="Its model (default: the same).")
@options.VERSION
@options.labels("A label in place of those of the turn; may be repeated.")
@options.WEBHOOKS
@options.FORK
@options.EVENTS
@options.BUDGET
@options.LIMITS
@options.BY
@options.ANY_QUEUE
async def fork(
    turn: str,
    at_step: int | None,
    is_agreed: bool,
    no_follow: bool,
    stream: bool,
    by: str | None,
    as_json: bool,
    address: str | None,
    **values: Any,
) -> int:
    """Start a new turn from a complete step of another turn.

    The other turn is not changed, and the new turn is followed. Calls after that step may happen
    again: those that are not read-only are listed first.
    """
    from perdure.clients.cli.running import forking

    display = Display(as_json=as_json, stream=stream, address=address)
    start = forking.ForkStart(display, is_agreed, follows=not no_follow)
    given = {**values, "by": sender(by)}
    return await forking.fork(await connected(address), turn, start, at_step, given)


@turns.command(
    epilog=examples(
        "perdure resume ticket-4711 --usd 1", "perdure resume ticket-4711 --max-iterations 40"
    ),
)
@_ID
@options.FORK
@options.EVENTS
@options.BUDGET
@options.LIMITS
@options.BY
@options.ANY_QUEUE
async def resume(
    turn: str,
    is_agreed: bool,
    no_follow: bool,
    stream: bool,
    by: str | None,
    as_json: bool,
    address: str | None,
    **values: Any,
) -> int:
    """Continue a turn that ended, or that waits for a provider.

    A turn that ended without an answer continues as a new turn, which is followed. Calls after its
    last complete step may happen again: those that are not read-only are listed first. A turn that
    waits for a provider, or is paused because a provider was unavailable, asks its model again at
    once; no option but --by and --json applies to it.
    """
    from perdure.clients.cli.running import forking

    display = Display(as_json=as_json, stream=stream, address=address)
    start = forking.ForkStart(display, is_agreed, follows=not no_follow)
    given = {**values, "by": sender(by)}
    return await forking.resume(await connected(address), turn, start, given)


@turns.action(
    'perdure cancel ticket-4711 --reason "answered by phone"',
    json="Print whether there was something to stop, as a line of JSON.",
)
@options.REASON
@options.BY
async def cancel(turn: Turn[Any], reason: str, by: str | None) -> tuple[dict[str, Any], str]:
    """Cancel a turn.

    Its report contains the work done so far.
    """
    return cancelled("turn", turn.id, await turn.cancel(reason, by=sender(by)))
