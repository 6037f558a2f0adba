"""The commands for callers, with their options.

A command imports its modules when it runs, so that the help is quick.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.batch_commands import batch
from perdure.clients.cli.common import connected, tell
from perdure.clients.cli.completion import completion
from perdure.clients.cli.exits import OUTCOMES
from perdure.clients.cli.group import Command, examples
from perdure.clients.cli.schedule_commands import schedule
from perdure.clients.cli.session_commands import session

if TYPE_CHECKING:
    from perdure.values.model_retry import ModelRetryPolicy
    from perdure.values.moments import Moment

STATE = Path(".perdure")
_STATES = ("running", "waiting", "paused", "ended")
_EVENTS = "Print a line of JSON for each event, and one for the report."


def register(group: click.Group) -> None:
    """Add the commands to the command line."""
    for command in (
        run,
        show,
        list_turns,
        approvals,
        add_budget,
        steer,
        fork,
        resume,
        cancel,
        schedule,
        batch,
        chat,
        session,
        setup,
        ask,
        demo,
        completion,
    ):
        group.add_command(command)


@click.command(
    cls=Command,
    short_help="start a turn and follow it",
    epilog=examples(
        'perdure run support "Answer ticket 4711." --id ticket-4711 --usd 0.50',
        'perdure run support "Answer ticket 4711." > answer.txt',
        'perdure run support "Sum up the day." --delay 2h --deadline 1d',
        'perdure run support "Answer ticket 4711." --json | jq .kind',
    ),
)
@click.argument("agent", help="The agent's name.")
@click.argument("task", help="The task for the agent.")
@click.option("--id", "turn_id", metavar="ID", help="The turn's id; the same id is the same turn.")
@click.option(
    "--if-exists",
    type=click.Choice(["attach", "restart", "error"]),
    default="attach",
    metavar="HOW",
    help="What to do where a turn of this id exists: attach, restart or error (default: attach).",
)
@options.STREAM
@options.json_lines(_EVENTS)
@options.BUDGET
@options.iterations("--max-iterations")
@options.MODEL_RETRY
@options.START
@click.option(
    "--on-done", metavar="URL", help="An https URL that gets a signed webhook when it is over."
)
@options.CONNECTION
async def run(
    agent: str,
    task: str,
    turn_id: str | None,
    if_exists: Any,
    stream: bool,
    as_json: bool,
    address: str | None,
    task_queue: str,
    max_iterations: int | None,
    model_retry: ModelRetryPolicy | None,
    delay: Moment | None,
    deadline: Moment | None,
    on_done: str | None,
    fairness: str | None,
    weight: float | None,
    **limits: Any,
) -> int:
    """Start a turn, or attach to it, and follow it to its end.

    The answer goes to standard output, everything else to standard error. Ctrl-C leaves the turn
    running.
    """
    from perdure.clients.cli.drawing.amounts import budget_of
    from perdure.clients.cli.follow import View, follow

    budget = budget_of(limits)
    client = await connected(address, task_queue)
    turn = await client.start(
        agent,
        task,
        id=turn_id,
        budget=budget,
        max_iterations=max_iterations,
        model_retry=model_retry,
        if_exists=if_exists,
        live=stream,
        delay=delay,
        deadline=deadline,
        on_done=on_done,
        fairness=fairness,
        weight=weight,
    )
    return await follow(
        client, turn, View(as_json=as_json, stream=stream, address=address), is_new=True
    )


@click.command(
    cls=Command,
    short_help="show a turn, live while it runs",
    epilog=examples(
        "perdure show ticket-4711",
        "perdure show ticket-4711 --json | jq 'select(.kind == \"report\").report.cost'",
    ),
)
@options.TURN
@click.option(
    "--full", is_flag=True, help="Print task, arguments and results whole, below their lines."
)
@options.STREAM
@options.json_lines(_EVENTS)
@options.ANY_QUEUE
async def show(turn: str, full: bool, stream: bool, as_json: bool, address: str | None) -> int:
    """Show a turn from its beginning, live while it runs. The exit code depends on its outcome."""
    from perdure.clients.cli.follow import View, follow

    client = await connected(address)
    return await follow(
        client,
        client.turn(turn),
        View(as_json=as_json, full=full, stream=stream, address=address),
    )


@click.command(
    "list",
    cls=Command,
    short_help="list turns",
    epilog=examples(
        "perdure list --state waiting", "perdure list --outcome failed --json | jq -r .id"
    ),
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
@click.option("--parent", metavar="TURN", help="Only turns that this turn delegated to.")
@click.option("--schedule", metavar="ID", help="Only turns that this schedule started.")
@click.option("--limit", type=int, default=20, metavar="N", help="At most this many (default: 20).")
@options.json_lines("Print a line of JSON for each turn.")
@options.ONE_OR_ALL_QUEUES
async def list_turns(
    limit: int,
    labels: tuple[tuple[str, str], ...],
    as_json: bool,
    address: str | None,
    **filters: Any,
) -> int:
    """List turns: running ones first, then the others, the last ended first."""
    from perdure.clients.cli.turn_list import show_turns

    client = await connected(address)
    await show_turns(client, {**filters, "labels": dict(labels)}, limit, as_json=as_json)
    return 0


@click.command(
    cls=Command,
    short_help="calls that wait for a person",
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
async def approvals(address: str | None, **asked: Any) -> int:
    """List the calls that wait for a person, show those of a turn, and approve or deny them."""
    from perdure.clients.cli.decisions import Asked, decide

    return await decide(await connected(address), Asked(address=address, **asked))


@click.command(
    cls=Command,
    short_help="add to a turn's budget or iterations",
    epilog=examples(
        "perdure add-budget ticket-4711 --usd 0.50 --time 10m",
        "perdure add-budget ticket-4711 --iterations 10",
    ),
)
@options.TURN
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
    """Add to the budget or the iterations of a turn, so that a paused turn goes on."""
    from perdure import errors
    from perdure.clients.cli.decisions import by_of
    from perdure.clients.cli.drawing import amounts
    from perdure.text import word

    more = amounts.budget_of(limits)
    if more is None and iterations is None:
        raise errors.InvalidRequestError(
            "name what to add: --usd, --time, --tokens, --model-calls, --tool-calls or --iterations"
        )
    client = await connected(address)
    left = await client.turn(turn).add_budget(more, iterations=iterations, by=by_of(by))
    return tell(
        as_json,
        {"turn": turn, "left": left},
        f"left for turn {word(turn)}: {amounts.in_words(left)}",
    )


@click.command(
    cls=Command,
    short_help="send a message to a running turn",
    epilog=examples(
        'perdure steer ticket-4711 "Use the new price list."',
        'perdure steer ticket-4711 "Stop, they cancelled." --now --deny-pending',
    ),
)
@options.TURN
@click.argument("text", help="The message.")
@click.option(
    "--id",
    "message_id",
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
@options.json_lines("Print the id of the message as a line of JSON.")
@options.ANY_QUEUE
async def steer(
    turn: str,
    text: str,
    message_id: str | None,
    by: str | None,
    as_json: bool,
    address: str | None,
    **how: bool,
) -> int:
    """Send a message to a running turn. Its model reads it with the next call.

    If the turn ends before that, its report lists the message as unread.
    """
    from perdure.clients.cli.decisions import by_of
    from perdure.text import word

    client = await connected(address)
    sent = await client.turn(turn).steer(text, id=message_id, by=by_of(by), **how)
    return tell(
        as_json,
        {"turn": turn, "message": sent},
        f"turn {word(turn)} has the message; its model reads it with the next call",
    )


@click.command(
    cls=Command,
    short_help="go on in a new turn from a step of another",
    epilog=examples(
        'perdure fork ticket-4711 --at-step 7 --say "Use the new price list."',
        "perdure fork ticket-4711 --at-step 0 --model openai:gpt-5 --yes",
    ),
)
@options.TURN
@click.option(
    "--at-step",
    metavar="N",
    type=options.Count(min=0),
    help="The last step to keep; 0 keeps the task alone (default: the last complete step).",
)
@click.option("--say", metavar="TEXT", help="A message to the model, after the messages.")
@click.option("--agent", metavar="NAME", help="The agent of the new turn (default: the same).")
@click.option("--model", metavar="MODEL", help="Its model (default: the same).")
@options.labels("A label in place of those of the turn; may be repeated.")
@options.FORK
@options.json_lines(_EVENTS)
@options.BUDGET
@options.iterations("--max-iterations")
@options.MODEL_RETRY
@options.ANY_QUEUE
async def fork(
    turn: str,
    at_step: int | None,
    is_agreed: bool,
    no_follow: bool,
    stream: bool,
    as_json: bool,
    address: str | None,
    **given: Any,
) -> int:
    """Start a new turn from a complete step of another, which is not changed, and follow it.

    Calls after that step may happen again: those that are not read-only are listed first.
    """
    from perdure.clients.cli import forking
    from perdure.clients.cli.follow import View

    view = View(as_json=as_json, stream=stream, address=address)
    start = forking.Start(view, is_agreed, follows=not no_follow)
    return await forking.fork(await connected(address), turn, start, at_step, given)


@click.command(
    cls=Command,
    short_help="let a turn go on that ended, or that waits for a provider",
    epilog=examples(
        "perdure resume ticket-4711 --usd 1", "perdure resume ticket-4711 --max-iterations 40"
    ),
)
@options.TURN
@options.FORK
@options.json_lines(_EVENTS)
@options.BUDGET
@options.iterations("--max-iterations")
@options.MODEL_RETRY
@options.ANY_QUEUE
async def resume(
    turn: str,
    is_agreed: bool,
    no_follow: bool,
    stream: bool,
    as_json: bool,
    address: str | None,
    **given: Any,
) -> int:
    """Let a turn go on that ended without an answer, as a new turn, and follow it.

    Calls after its last complete step may happen again: those that are not read-only are listed
    first. A turn that waits for a provider, or is paused because a provider was unavailable, asks
    its model again at once; no option but --json applies to it.
    """
    from perdure.clients.cli import forking
    from perdure.clients.cli.follow import View

    view = View(as_json=as_json, stream=stream, address=address)
    start = forking.Start(view, is_agreed, follows=not no_follow)
    return await forking.resume(await connected(address), turn, start, given)


@click.command(
    cls=Command,
    short_help="stop a turn",
    epilog=examples('perdure cancel ticket-4711 --reason "answered by phone"'),
)
@options.TURN
@click.option("--reason", default="", metavar="TEXT", help="The reason, recorded in the report.")
@options.json_lines("Print whether there was something to stop, as a line of JSON.")
@options.ANY_QUEUE
async def cancel(turn: str, reason: str, as_json: bool, address: str | None) -> int:
    """Ask a turn to stop. Its report contains the work done so far."""
    from perdure.text import word

    client = await connected(address)
    found = client.turn(turn)
    asked = await found.cancel(reason)
    words = (
        f"asked turn {word(found.id)} to stop"
        if asked
        else f"turn {word(found.id)} is over already"
    )
    return tell(as_json, {"turn": found.id, "asked": asked}, words)


@click.command(
    cls=Command,
    short_help="talk to an agent in a session",
    epilog=examples(
        "perdure chat support",
        "perdure chat support --session ticket-4711 --usd 2",
        "perdure chat support --session ticket-4711 < questions.txt > answers.txt",
    ),
)
@click.argument("agent", help="The agent's name.")
@click.option(
    "--session",
    "session_id",
    metavar="ID",
    help="The session's id; an existing one goes on (default: AGENT-… with random characters).",
)
@click.option(
    "--idle",
    type=options.Duration(),
    metavar="TIME",
    help="Close a new session after this time without a message (default: never).",
)
@options.labels("A label of a new session and its turns; may be repeated.")
@options.BY
@options.json_lines("Print lines of JSON: the session, and for each message its turn and report.")
@options.SESSION_BUDGET
@options.iterations("--max-iterations")
@options.MODEL_RETRY
@options.CONNECTION
async def chat(
    agent: str,
    session_id: str | None,
    idle: timedelta | None,
    labels: tuple[tuple[str, str], ...],
    by: str | None,
    as_json: bool,
    max_iterations: int | None,
    model_retry: ModelRetryPolicy | None,
    address: str | None,
    task_queue: str,
    **limits: Any,
) -> int:
    """Talk to an agent, one line for each message; the session stays open afterwards.

    On a terminal, `/help` lists what else may be typed, and Ctrl-C interrupts the running turn.
    From a pipe, each line waits for the answer to the one before. Budget, idle time, labels,
    iterations and retries apply to a session that this command begins.
    """
    from perdure.clients.cli.chatting.chat import Asked, chat
    from perdure.clients.cli.drawing.amounts import budget_of

    given = {
        "budget": budget_of(limits),
        "idle": idle,
        "labels": dict(labels) or None,
        "max_iterations": max_iterations,
        "model_retry": model_retry,
    }
    asked = Asked(agent, session_id, given, by, as_json, address)
    return await chat(await connected(address, task_queue), asked)


@click.command(
    cls=Command,
    short_help="prepare a namespace",
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
@click.option(
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
    """Register the search attributes for listing turns. It may be run again at any time."""
    from perdure.clients.cli.drawing import json_lines
    from perdure.clients.cli.drawing.screen import put
    from perdure.clients.cli.setup_namespace import reach, set_up
    from perdure.text import harmless

    def say(what: str, found: str) -> None:
        if as_json:
            json_lines.tell({"what": what, "found": found})
        else:
            put(f"{what:<10} {harmless(found)}")

    client = await reach(address, namespace, wait=timedelta(seconds=wait))
    await set_up(client, say, new_namespace=timedelta(days=retention) if create_namespace else None)
    say("ready", "`perdure list` lists turns by agent, state, outcome and label")
    return 0


@click.command(
    cls=Command,
    short_help="ask a question about a folder",
    epilog=examples('perdure ask "How long is the notice period?" --folder ~/handbook'),
)
@click.argument("question", help="The question.")
@options.STREAM
@options.json_lines(_EVENTS)
@options.QUESTION
async def ask(
    question: str,
    stream: bool,
    as_json: bool,
    folder: Path,
    model: str | None,
    base_url: str | None,
    address: str | None,
) -> int:
    """Answer a question from the documents of a folder.

    A server and a worker are started if there are none.
    """
    from perdure.clients.cli.ask import Question, ask
    from perdure.clients.cli.follow import View

    asked = Question(question, folder, model, base_url, address)
    return await ask(asked, View(as_json=as_json, stream=stream, outlives=False), state=STATE)


@click.command(cls=Command, short_help="a turn that survives a kill")
@click.argument(
    "question", default="What happens to a tool call when its worker dies?", help="The question."
)
@options.QUESTION
async def demo(
    question: str, folder: Path, model: str | None, base_url: str | None, address: str | None
) -> int:
    """Ask a question, kill the worker in the middle, and start another one."""
    from perdure.clients.cli.ask import Question
    from perdure.clients.cli.demo import demo

    return await demo(Question(question, folder, model, base_url, address), state=STATE)
