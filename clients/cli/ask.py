"""The commands `perdure ask` and `perdure demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import Display
from perdure.clients.cli.group import Command, examples

STATE = Path(".perdure")
_QUESTION = options.together(
    click.option(
        "--folder",
        type=options.FOLDER,
        default=Path("docs"),
        metavar="FOLDER",
        help="The documents (default: docs).",
    ),
    click.option(
        "--model",
        metavar="MODEL",
        help=(
            "Such as openai:gpt-5-mini (default: that with OPENAI_API_KEY, else offline:librarian)."
        ),
    ),
    click.option(
        "--base-url",
        metavar="URL",
        help="A server with OpenAI's API, such as http://localhost:11434/v1.",
    ),
    options.temporal(
        "--address",
        metavar="HOST:PORT",
        help="Use this Temporal server instead of an embedded one.",
    ),
)


@click.command(
    cls=Command,
    epilog=examples('perdure ask "How long is the notice period?" --folder ~/handbook'),
)
@click.argument("question", help="The question.")
@options.STREAM
@options.EVENTS
@_QUESTION
async def ask(question: str, stream: bool, as_json: bool, **values: Any) -> int:
    """Answer a question from the documents of a folder.

    A server and a worker are started if there are none.
    """
    from perdure.clients.cli.running.asking import FolderQuestion, ask

    display = Display(as_json=as_json, stream=stream, outlives=False)
    return await ask(FolderQuestion(question, **values), display, state=STATE)


@click.command(cls=Command)
@click.argument(
    "question", default="What happens to a tool call when its worker dies?", help="The question."
)
@_QUESTION
async def demo(question: str, **values: Any) -> int:
    """Run a turn that survives the kill of its worker.

    The turn answers a question from the documents of a folder. Its worker is killed in the middle,
    and another worker is started.
    """
    from perdure.clients.cli.running.asking import FolderQuestion
    from perdure.clients.cli.running.demo import demo

    return await demo(FolderQuestion(question, **values), state=STATE)
