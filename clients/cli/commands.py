"""The commands of callers.

`perdure run`, `show`, `list`, `approvals`, `add-budget`, `resume`, `cancel`, `setup`, `mcp`, `ask`
and `demo`.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from perdure import errors
from perdure.clients.cli import amounts, decisions, options
from perdure.clients.cli.arguments import examples, whole_number
from perdure.clients.cli.screen import put
from perdure.text import harmless, one_line, word
from perdure.values.reports import Outcome

STATE = Path(".perdure")
_STATES = ("running", "waiting", "paused", "ended")


def register(subparsers: Any) -> None:
    """Add the commands to the command line's parser."""
    _register_run(subparsers)
    show = subparsers.add_parser(
        "show",
        help="show a turn, live while it runs",
        description=(
            "Show a turn from its beginning, live while it runs. The exit code says how it ended."
        ),
        epilog=examples(
            "perdure show ticket-4711",
            "perdure show ticket-4711 --json | jq 'select(.kind == \"report\").report.cost'",
        ),
    )
    show.add_argument("turn", metavar="TURN", help="the turn's id")
    show.add_argument(
        "--full", action="store_true", help="task, arguments and results whole, below their lines"
    )
    options.streaming(show)
    options.telling(show, "a line of JSON for each event, and one for the report")
    options.naming(show)
    show.set_defaults(run=show_turn)
    _register_list(subparsers)
    decisions.register(subparsers, options.choosing, decide_approvals)
    more = subparsers.add_parser(
        "add-budget",
        help="add to a turn's budget or iterations",
        description=(
            "Add to the budget of a turn or to its limit of iterations; one that waits for that"
            " goes on."
        ),
        epilog=examples(
            "perdure add-budget ticket-4711 --usd 0.50 --time 10m",
            "perdure add-budget ticket-4711 --iterations 10",
        ),
    )
    more.add_argument("turn", metavar="TURN", help="the turn's id")
    amounts.add_options(more, "what is added", iterations="--iterations")
    options.deciding(more)
    options.telling(more, "what is left as a line of JSON")
    options.naming(more)
    more.set_defaults(run=add_budget)
    resume = subparsers.add_parser(
        "resume",
        help="ask a model again at once",
        description=(
            "Have a turn ask its model again at once, where it waits for a provider or was paused"
            " because one stayed away."
        ),
        epilog=examples("perdure resume ticket-4711"),
    )
    resume.add_argument("turn", metavar="TURN", help="the turn's id")
    options.telling(resume, "the turn as a line of JSON")
    options.connecting(resume)
    resume.set_defaults(run=resume_turn)
    cancel = subparsers.add_parser(
        "cancel",
        help="stop a turn",
        description="Ask a turn to stop; it keeps what it has done.",
        epilog=examples('perdure cancel ticket-4711 --reason "answered by phone"'),
    )
    cancel.add_argument("turn", metavar="TURN", help="the turn's id")
    cancel.add_argument("--reason", default="", help="why; its report says it")
    options.telling(cancel, "whether there was something to stop, as a line of JSON")
    options.naming(cancel)
    cancel.set_defaults(run=cancel_turn)
    _register_setup(subparsers)
    _register_mcp(subparsers)
    _register_asking(subparsers)


def _register_run(subparsers: Any) -> None:
    run = subparsers.add_parser(
        "run",
        help="start a turn and follow it",
        description=(
            "Start a turn, or attach to it, and follow it to its end. The answer goes to standard"
            " output, all else to standard error. Ctrl-C leaves the turn running."
        ),
        epilog=examples(
            'perdure run support "Answer ticket 4711." --id ticket-4711 --usd 0.50',
            'perdure run support "Answer ticket 4711." > answer.txt',
            'perdure run support "Answer ticket 4711." --json | jq .kind',
        ),
    )
    run.add_argument("agent", metavar="AGENT", help="the agent's name")
    run.add_argument("task", metavar="TASK", help="what is asked")
    run.add_argument("--id", help="the turn's id; the same id is the same turn")
    run.add_argument(
        "--if-exists",
        choices=["attach", "restart", "error"],
        default="attach",
        help="when a turn of this id exists (default: attach)",
    )
    options.streaming(run)
    options.telling(run, "a line of JSON for each event, and one for the report")
    amounts.add_options(run, "limits", iterations="--max-iterations")
    options.connecting(run)
    run.set_defaults(run=run_turn)


def _register_asking(subparsers: Any) -> None:
    ask = subparsers.add_parser(
        "ask",
        help="ask a question about a folder",
        description=(
            "Answer a question from the documents of a folder. Server and worker are started where"
            " there are none."
        ),
        epilog=examples('perdure ask "How long is the notice period?" --folder ~/handbook'),
    )
    ask.add_argument("question", metavar="QUESTION", help="what is asked")
    options.streaming(ask)
    options.telling(ask, "a line of JSON for each event, and one for the report")
    options.asking(ask)
    ask.set_defaults(run=ask_question)
    demo = subparsers.add_parser(
        "demo",
        help="a turn that survives a kill",
        description="Ask, kill the worker in the middle, start another.",
    )
    demo.add_argument(
        "question",
        metavar="QUESTION",
        nargs="?",
        default="What happens to a tool call when its worker dies?",
        help="what is asked",
    )
    options.asking(demo)
    demo.set_defaults(run=run_demo)


def _register_list(subparsers: Any) -> None:
    listed = subparsers.add_parser(
        "list",
        help="list turns",
        description="List turns: those that run first, then the last that ended.",
        epilog=examples(
            "perdure list --state waiting", "perdure list --outcome failed --json | jq -r .id"
        ),
    )
    listed.add_argument("--agent", metavar="NAME", help="only turns of this agent")
    listed.add_argument(
        "--state",
        choices=_STATES,
        metavar="STATE",
        help="only turns that are running, waiting, paused or ended",
    )
    outcomes = [outcome.value for outcome in Outcome]
    listed.add_argument(
        "--outcome",
        choices=outcomes,
        metavar="OUTCOME",
        help="only turns that ended so: completed, failed, cancelled, …",
    )
    options.labelled(listed, "only turns with this label; may be repeated")
    listed.add_argument("--parent", metavar="TURN", help="only turns that this turn delegated to")
    listed.add_argument(
        "--limit", type=whole_number, default=20, metavar="N", help="at most so many (default: 20)"
    )
    options.telling(listed, "a line of JSON for each turn")
    options.choosing(listed)
    listed.set_defaults(run=list_turns)


def _register_setup(subparsers: Any) -> None:
    setup = subparsers.add_parser(
        "setup",
        help="prepare a namespace",
        description=(
            "Register the search attributes that turns are listed by. It may be run again at any"
            " time."
        ),
        epilog=examples("perdure setup --address temporal.example.com:7233 --namespace agents"),
    )
    setup.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of Temporal (default: Temporal's environment, or localhost:7233)",
    )
    setup.add_argument(
        "--namespace",
        metavar="NAME",
        help="Temporal's namespace (default: Temporal's environment, or default)",
    )
    setup.add_argument(
        "--create-namespace", action="store_true", help="create the namespace if there is none"
    )
    setup.add_argument(
        "--retention",
        type=options.days,
        default=7,
        metavar="DAYS",
        help="how long a created namespace keeps ended turns (default: 7)",
    )
    setup.add_argument(
        "--wait",
        type=float,
        default=10,
        metavar="SECONDS",
        help="how long to wait for the server to answer (default: 10)",
    )
    options.telling(setup, "a line of JSON for what was found or done")
    setup.set_defaults(run=set_up)


def _register_mcp(subparsers: Any) -> None:
    served = subparsers.add_parser(
        "mcp",
        help="agents for any MCP client",
        description=(
            "An MCP server on standard input and output. An editor or an assistant starts it; by"
            " its tools they start turns, wait for them, and decide about calls."
        ),
    )
    served.add_argument(
        "--agent",
        metavar="NAME",
        action="append",
        default=[],
        help="offer only this agent; may be repeated",
    )
    served.add_argument(
        "--no-approvals",
        action="store_true",
        help="do not offer to approve or deny calls, to add to budgets or to resume turns",
    )
    options.connecting(served)
    served.set_defaults(run=serve_mcp)


async def run_turn(arguments: argparse.Namespace) -> int:
    """`perdure run AGENT TASK`."""
    from perdure.clients.cli.follow import follow

    budget, streams = amounts.budget_of(arguments), arguments.stream
    client = await _client(arguments)
    turn = await client.start(
        arguments.agent,
        arguments.task,
        id=arguments.id,
        budget=budget,
        max_iterations=arguments.max_iterations,
        if_exists=arguments.if_exists,
        live=streams,
    )
    return await follow(client, turn, arguments, is_new=True)


async def show_turn(arguments: argparse.Namespace) -> int:
    """`perdure show TURN`."""
    from perdure.clients.cli.follow import follow

    client = await _client(arguments)
    return await follow(client, await client.get(arguments.turn), arguments)


async def list_turns(arguments: argparse.Namespace) -> int:
    """`perdure list`."""
    from perdure.clients.cli import table
    from perdure.clients.cli.json_lines import tell

    client = await _client(arguments)
    limit = arguments.limit
    asked = {
        name: getattr(arguments, name)
        for name in ("agent", "state", "outcome", "parent", "task_queue")
    }
    found = [
        entry
        async for entry in client.list(
            **asked, labels=dict(arguments.label), limit=limit + 1 if limit > 0 else limit
        )
    ]
    if arguments.json:
        for entry in found[:limit]:
            tell(entry)
    elif found:
        table.show(found[:limit])
    else:
        _note(
            "there is no such turn"
            if arguments.label or any(asked.values())
            else "there is no turn yet"
        )
    if len(found) > limit:
        _note(f"there are more than these {limit}; --limit shows them")
    return 0


async def set_up(arguments: argparse.Namespace) -> int:
    """`perdure setup`: it succeeds if turns can be listed."""
    from perdure.clients.cli import setup_namespace

    client = await setup_namespace.reach(
        arguments.address, arguments.namespace, wait=timedelta(seconds=arguments.wait)
    )
    retention = timedelta(days=arguments.retention) if arguments.create_namespace else None
    say = _found_as_json if arguments.json else _found
    await setup_namespace.set_up(client, say, new_namespace=retention)
    say("ready", "`perdure list` lists turns by agent, state, outcome and label")
    return 0


def _found(what: str, found: str) -> None:
    put(f"{what:<10} {harmless(found)}")


def _found_as_json(what: str, found: str) -> None:
    from perdure.clients.cli.json_lines import tell

    tell({"what": what, "found": found})


async def serve_mcp(arguments: argparse.Namespace) -> int:
    """`perdure mcp`."""
    try:
        from perdure.clients.mcp.server import serve
    except ImportError:
        raise errors.ConfigurationError(
            "perdure mcp needs the package mcp: pip install 'perdure[mcp]'"
        ) from None
    await serve(
        await _client(arguments), arguments.agent, approvals=not arguments.no_approvals
    ).run_stdio_async()
    return 0


async def decide_approvals(arguments: argparse.Namespace) -> int:
    """`perdure approvals`."""
    return await decisions.decide(await _client(arguments), arguments)


async def add_budget(arguments: argparse.Namespace) -> int:
    """`perdure add-budget TURN`."""
    from perdure.clients.cli.json_lines import tell

    more = amounts.budget_of(arguments)
    if more is None and arguments.iterations is None:
        raise errors.InvalidRequestError(
            "say what is added: --usd, --time, --tokens, --model-calls, --tool-calls or"
            " --iterations"
        )
    client = await _client(arguments)
    left = await client.add_budget(
        arguments.turn, more, iterations=arguments.iterations, by=options.by_of(arguments)
    )
    if arguments.json:
        tell({"turn": arguments.turn, "left": left})
    else:
        _note(f"turn {word(arguments.turn)} has left: {amounts.in_words(left)}")
    return 0


async def resume_turn(arguments: argparse.Namespace) -> int:
    """`perdure resume TURN`."""
    from perdure.clients.cli.json_lines import tell

    client = await _client(arguments)
    await client.resume(arguments.turn)
    if arguments.json:
        tell({"turn": arguments.turn, "resumed": True})
    else:
        _note(f"turn {word(arguments.turn)} asks its model again")
    return 0


async def cancel_turn(arguments: argparse.Namespace) -> int:
    """`perdure cancel TURN`."""
    from perdure.clients.cli.json_lines import tell

    client = await _client(arguments)
    turn = await client.get(arguments.turn)
    asked = await turn.cancel(arguments.reason)
    if arguments.json:
        tell({"turn": turn.id, "asked": asked})
    else:
        _note(
            f"asked turn {word(turn.id)} to stop"
            if asked
            else f"turn {word(turn.id)} is over already"
        )
    return 0


async def ask_question(arguments: argparse.Namespace) -> int:
    """`perdure ask QUESTION`."""
    from perdure.clients.cli.ask import ask

    return await ask(arguments, _settings(arguments), state=STATE)


async def run_demo(arguments: argparse.Namespace) -> int:
    """`perdure demo`."""
    from perdure.clients.cli.demo import demo

    return await demo(
        arguments.question,
        arguments.folder,
        _settings(arguments),
        state=STATE,
        address=arguments.address,
    )


async def _client(arguments: argparse.Namespace) -> Any:
    from perdure.clients.agent_client import AgentClient
    from perdure.temporal.names import TASK_QUEUE

    return await AgentClient.connect(
        arguments.address, task_queue=arguments.task_queue or TASK_QUEUE
    )


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    """What the librarian's process is told, as environment."""
    if not arguments.question.strip():
        raise errors.ConfigurationError("the question is empty")
    if not arguments.folder.is_dir():
        raise errors.ConfigurationError(
            f"{one_line(str(arguments.folder), 200)} is not a folder; --folder says where the"
            " documents are"
        )
    with_key = "openai:gpt-5-mini" if os.environ.get("OPENAI_API_KEY") else "offline:librarian"
    settings = {
        "PERDURE_ASK_FOLDER": str(arguments.folder.resolve()),
        "PERDURE_ASK_MODEL": arguments.model or with_key,
    }
    if arguments.base_url:
        settings["PERDURE_ASK_BASE_URL"] = arguments.base_url
    return settings


def _note(text: str) -> None:
    put(text, sys.stderr)
