"""The commands of callers: `perdure run`, `show`, `list`, `approvals`, `add-budget`, `cancel`, `setup`, `ask` and `demo`."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from perdure import errors
from perdure.clients import amounts, decisions
from perdure.text import one_line

STATE = Path(".perdure")
_MOST_DAYS = 36_500


def register(subparsers: Any) -> None:
    """Add the commands to the command line's parser."""
    run = subparsers.add_parser("run", help="start a turn and follow it", description="Start a turn, or attach to it, and follow it to its end.")
    run.add_argument("agent", help="the agent's name")
    run.add_argument("task", help="what is asked")
    run.add_argument("--id", help="the turn's id; the same id is the same turn")
    _streaming(run)
    run.add_argument("--if-exists", choices=["attach", "restart", "error"], default="attach", help="when a turn of this id exists")
    _connecting(run)
    amounts.add_options(run, "budget")
    run.set_defaults(run=run_turn)
    show = subparsers.add_parser("show", help="show a turn, live while it runs", description="Show a turn from its beginning, live while it runs.")
    show.add_argument("turn", help="the turn's id")
    _streaming(show)
    _connecting(show)
    show.set_defaults(run=show_turn)
    _register_list(subparsers)
    decisions.register(subparsers, _connecting, decide_approvals)
    more = subparsers.add_parser("add-budget", help="add to a turn's budget", description="Add to the budget of a turn; one that waits goes on.")
    more.add_argument("turn", help="the turn's id")
    amounts.add_options(more, "what is added")
    _connecting(more)
    more.set_defaults(run=add_budget)
    cancel = subparsers.add_parser("cancel", help="stop a turn", description="Ask a turn to stop; it keeps what it has done.")
    cancel.add_argument("turn", help="the turn's id")
    cancel.add_argument("--reason", default="", help="why; its report says it")
    _connecting(cancel)
    cancel.set_defaults(run=cancel_turn)
    _register_setup(subparsers)
    ask = subparsers.add_parser("ask", help="ask a question about a folder", description="Answer a question from the documents of a folder.")
    ask.add_argument("question")
    _streaming(ask)
    _asking(ask)
    ask.set_defaults(run=ask_question)
    demo = subparsers.add_parser("demo", help="a turn that survives a kill", description="Ask, kill the worker in the middle, start another.")
    demo.add_argument("question", nargs="?", default="What happens to a tool call when its worker dies?")
    _asking(demo)
    demo.set_defaults(run=run_demo)


def _register_list(subparsers: Any) -> None:
    listed = subparsers.add_parser("list", help="list turns", description="List turns: those that run first, then the last that ended.")
    listed.add_argument("--agent", metavar="NAME", help="only turns of this agent")
    listed.add_argument("--state", help="only turns that are running, waiting, paused or ended")
    listed.add_argument("--outcome", help="only turns that ended so: completed, failed, cancelled, …")
    listed.add_argument("--label", metavar="NAME=VALUE", type=_label, action="append", default=[], help="only turns with this label; may be repeated")
    listed.add_argument("--parent", metavar="TURN", help="only turns that this turn delegated to")
    listed.add_argument("--limit", type=int, default=20, metavar="N", help="at most so many (default: 20)")
    listed.add_argument("--json", action="store_true", help="a line of JSON for each turn")
    _connecting(listed)
    listed.set_defaults(run=list_turns)


def _register_setup(subparsers: Any) -> None:
    setup = subparsers.add_parser(
        "setup", help="prepare a namespace", description="Register the search attributes that turns are listed by. It may be run again at any time."
    )
    setup.add_argument("--address", help="where Temporal is, such as localhost:7233 (default: Temporal's environment profiles)")
    setup.add_argument("--namespace", help="Temporal's namespace (default: Temporal's environment profiles, or default)")
    setup.add_argument("--create-namespace", action="store_true", help="create the namespace if there is none")
    setup.add_argument("--retention", type=_days, default=7, metavar="DAYS", help="how long a created namespace keeps ended turns (default: 7)")
    setup.add_argument("--wait", type=float, default=10, metavar="SECONDS", help="how long to wait for the server to answer (default: 10)")
    setup.set_defaults(run=set_up)


async def run_turn(arguments: argparse.Namespace) -> int:
    """`perdure run AGENT TASK`."""
    client = await _client(arguments)
    budget, streams = amounts.budget_of(arguments), arguments.stream
    turn = await client.start(arguments.agent, arguments.task, id=arguments.id, budget=budget, if_exists=arguments.if_exists, live=streams)
    _note(f"turn {turn.id}")
    return await _follow(client, turn, streams=streams)


async def show_turn(arguments: argparse.Namespace) -> int:
    """`perdure show TURN`."""
    client = await _client(arguments)
    return await _follow(client, await client.get(arguments.turn), streams=arguments.stream)


async def list_turns(arguments: argparse.Namespace) -> int:
    """`perdure list`."""
    from perdure.clients import table

    client = await _client(arguments)
    limit = arguments.limit
    asked = {name: getattr(arguments, name) for name in ("agent", "state", "outcome", "parent")}
    found = [entry async for entry in client.list(**asked, labels=dict(arguments.label), limit=limit + 1 if limit > 0 else limit)]
    if arguments.json:
        for entry in found[:limit]:
            print(entry.model_dump_json())
    elif found:
        table.show(found[:limit])
    else:
        _note("there is no such turn" if arguments.label or any(asked.values()) else "there is no turn yet")
    if len(found) > limit:
        _note(f"there are more than these {limit}; --limit shows them")
    return 0


async def set_up(arguments: argparse.Namespace) -> int:
    """`perdure setup`: 0 if turns can be listed, 1 if something is in the way."""
    from perdure.clients import namespace

    try:
        client = await namespace.reach(arguments.address, arguments.namespace, wait=timedelta(seconds=arguments.wait))
        retention = timedelta(days=arguments.retention) if arguments.create_namespace else None
        await namespace.set_up(client, lambda what, found: print(f"{what:<10} {found}", flush=True), new_namespace=retention)
    except errors.PerdureError as error:
        _note(f"perdure: {error.message}")
        return 1
    print("ready      `perdure list` lists turns by agent, state, outcome and label")
    return 0


async def decide_approvals(arguments: argparse.Namespace) -> int:
    """`perdure approvals`."""
    return await decisions.decide(await _client(arguments), arguments)


async def add_budget(arguments: argparse.Namespace) -> int:
    """`perdure add-budget TURN`."""
    more = amounts.budget_of(arguments)
    if more is None:
        raise errors.InvalidRequestError("say what is added: --usd, --time, --tokens, --model-calls or --tool-calls")
    client = await _client(arguments)
    left = await client.add_budget(arguments.turn, more)
    _note(f"turn {arguments.turn} has left: {amounts.in_words(left)}")
    return 0


async def cancel_turn(arguments: argparse.Namespace) -> int:
    """`perdure cancel TURN`."""
    client = await _client(arguments)
    turn = await client.get(arguments.turn)
    asked = await turn.cancel(arguments.reason)
    _note(f"asked turn {turn.id} to stop" if asked else f"turn {turn.id} is over already")
    return 0


async def ask_question(arguments: argparse.Namespace) -> int:
    """`perdure ask QUESTION`."""
    from perdure.clients.ask import ask

    settings = _settings(arguments)
    return await ask(arguments.question, arguments.folder, settings, state=STATE, address=arguments.address, streams=arguments.stream)


async def run_demo(arguments: argparse.Namespace) -> int:
    """`perdure demo`."""
    from perdure.clients.demo import demo

    return await demo(arguments.question, arguments.folder, _settings(arguments), state=STATE, address=arguments.address)


async def _follow(client: Any, turn: Any, *, streams: bool) -> int:
    from perdure.clients.aloud import Aloud
    from perdure.clients.progress import Progress, figures
    from perdure.clients.screen import Live
    from perdure.clients.tree import Tree, lines, rows

    progress, live = Progress(), Live()

    def changed(node: Any, event: Any) -> None:
        if node is tree.root:
            live.erase()
            progress.show(event)
        draw()

    def draw() -> None:
        if tree.root.children and not progress.is_speaking:
            live.draw(lines(rows(tree.root)))

    def say(said: Any) -> None:
        live.erase()
        progress.say(said)

    tree = Tree(Aloud(turn, say) if streams else turn, client.get, changed)
    async with live.ticking(draw):
        await tree.follow()
    if tree.root.children:
        live.last(["", *lines(rows(tree.root))])
    try:
        report = await turn.typed(str).result()  # as the model wrote it
    except errors.PerdureError as error:
        if error.report is not None:
            _note(figures(error.report))
        raise
    print("" if report.output == progress.said else f"\n{report.output}\n")
    _note(figures(report))
    return 0


async def _client(arguments: argparse.Namespace) -> Any:
    from perdure.clients.agent_client import AgentClient

    return await AgentClient.connect(arguments.address, task_queue=arguments.task_queue)


def _connecting(command: argparse.ArgumentParser) -> None:
    command.add_argument("--address", help="where Temporal is, such as localhost:7233 (default: Temporal's environment profiles)")
    command.add_argument("--task-queue", default=os.environ.get("PERDURE_TASK_QUEUE", "perdure"), help="where the workers poll")


def _streaming(command: argparse.ArgumentParser) -> None:
    command.add_argument("--stream", action="store_true", help="print what the model says while it speaks")


def _asking(command: argparse.ArgumentParser) -> None:
    command.add_argument("--folder", type=Path, default=Path("docs"), help="the documents (default: docs)")
    command.add_argument("--model", help="such as openai:gpt-5-mini (default: that with OPENAI_API_KEY, else offline:librarian)")
    command.add_argument("--base-url", help="of a server that speaks OpenAI's APIs, such as http://localhost:11434/v1")
    command.add_argument("--address", help="use this Temporal server instead of an embedded one")


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    """What the librarian's process is told, as environment."""
    if not arguments.question.strip():
        raise errors.ConfigurationError("the question is empty")
    if not arguments.folder.is_dir():
        raise errors.ConfigurationError(f"{one_line(str(arguments.folder), 200)} is not a folder; --folder says where the documents are")
    with_key = "openai:gpt-5-mini" if os.environ.get("OPENAI_API_KEY") else "offline:librarian"
    settings = {"PERDURE_ASK_FOLDER": str(arguments.folder.resolve()), "PERDURE_ASK_MODEL": arguments.model or with_key}
    if arguments.base_url:
        settings["PERDURE_ASK_BASE_URL"] = arguments.base_url
    return settings


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _days(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days, such as 7")
    return int(text)


def _note(text: str) -> None:
    print(text, file=sys.stderr)
