"""The commands of callers: `perdure run`, `show`, `cancel`, `ask` and `demo`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from perdure import errors
from perdure.text import one_line

STATE = Path(".perdure")


def register(subparsers: Any) -> None:
    """Add the commands to the command line's parser."""
    run = subparsers.add_parser("run", help="start a turn and follow it", description="Start a turn, or attach to it, and follow it to its end.")
    run.add_argument("agent", help="the agent's name")
    run.add_argument("task", help="what is asked")
    run.add_argument("--id", help="the turn's id; the same id is the same turn")
    run.add_argument("--if-exists", choices=["attach", "restart", "error"], default="attach", help="when a turn of this id exists")
    _connecting(run)
    run.set_defaults(run=run_turn)
    show = subparsers.add_parser("show", help="show a turn, live while it runs", description="Show a turn from its beginning, live while it runs.")
    show.add_argument("turn", help="the turn's id")
    _connecting(show)
    show.set_defaults(run=show_turn)
    cancel = subparsers.add_parser("cancel", help="stop a turn", description="Ask a turn to stop; it keeps what it has done.")
    cancel.add_argument("turn", help="the turn's id")
    cancel.add_argument("--reason", default="", help="why; its report says it")
    _connecting(cancel)
    cancel.set_defaults(run=cancel_turn)
    ask = subparsers.add_parser("ask", help="ask a question about a folder", description="Answer a question from the documents of a folder.")
    ask.add_argument("question")
    _asking(ask)
    ask.set_defaults(run=ask_question)
    demo = subparsers.add_parser("demo", help="a turn that survives a kill", description="Ask, kill the worker in the middle, start another.")
    demo.add_argument("question", nargs="?", default="What happens to a tool call when its worker dies?")
    _asking(demo)
    demo.set_defaults(run=run_demo)


async def run_turn(arguments: argparse.Namespace) -> int:
    """`perdure run AGENT TASK`."""
    client = await _client(arguments)
    turn = await client.start(arguments.agent, arguments.task, id=arguments.id, if_exists=arguments.if_exists)
    _note(f"turn {turn.id}")
    return await _follow(turn)


async def show_turn(arguments: argparse.Namespace) -> int:
    """`perdure show TURN`."""
    client = await _client(arguments)
    return await _follow(await client.get(arguments.turn))


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

    return await ask(arguments.question, arguments.folder, _settings(arguments), state=STATE, address=arguments.address)


async def run_demo(arguments: argparse.Namespace) -> int:
    """`perdure demo`."""
    from perdure.clients.demo import demo

    return await demo(arguments.question, arguments.folder, _settings(arguments), state=STATE, address=arguments.address)


async def _follow(turn: Any) -> int:
    from perdure.clients.progress import Progress, figures

    progress = Progress()
    async for event in turn.events():
        progress.show(event)
    try:
        report = await turn.result()
    except errors.PerdureError as error:
        if error.report is not None:
            _note(figures(error.report))
        raise
    print(f"\n{report.output}\n")
    _note(figures(report))
    return 0


async def _client(arguments: argparse.Namespace) -> Any:
    from perdure.clients.agent_client import AgentClient

    return await AgentClient.connect(arguments.address, task_queue=arguments.task_queue)


def _connecting(command: argparse.ArgumentParser) -> None:
    command.add_argument("--address", help="where Temporal is, such as localhost:7233 (default: Temporal's environment profiles)")
    command.add_argument("--task-queue", default=os.environ.get("PERDURE_TASK_QUEUE", "perdure"), help="where the workers poll")


def _asking(command: argparse.ArgumentParser) -> None:
    command.add_argument("--folder", type=Path, default=Path("docs"), help="the documents (default: docs)")
    command.add_argument("--model", help="such as openai:gpt-5-mini (default: that with OPENAI_API_KEY, else offline:librarian)")
    command.add_argument("--base-url", help="of a server that speaks OpenAI's chat API, such as http://localhost:11434/v1")
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


def _note(text: str) -> None:
    print(text, file=sys.stderr)
