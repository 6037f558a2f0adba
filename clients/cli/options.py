"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
from pathlib import Path
from typing import Any

from perdure import validation

_MOST_DAYS = 36_500


def connecting(command: argparse.ArgumentParser) -> None:
    """Where Temporal is, and which workers run what is started."""
    queue = os.environ.get("PERDURE_TASK_QUEUE", "perdure")
    group = _address(command)
    group.add_argument(
        "--task-queue",
        metavar="NAME",
        default=queue,
        help="where workers poll (default: PERDURE_TASK_QUEUE, or perdure)",
    )


def choosing(command: argparse.ArgumentParser) -> None:
    """Where Temporal is, for a command that lists turns of all task queues, or of one."""
    _address(command).add_argument(
        "--task-queue", metavar="NAME", help="only turns of this task queue (default: of all)"
    )


def naming(command: argparse.ArgumentParser) -> None:
    """Where Temporal is, for a command about one turn.

    Its id is enough, but scripts may give a task queue to every command.
    """
    _address(command).add_argument("--task-queue", help=argparse.SUPPRESS)


def _address(command: argparse.ArgumentParser) -> Any:
    group = command.add_argument_group("where")
    group.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of Temporal (default: Temporal's environment, or localhost:7233)",
    )
    return group


def telling(command: argparse.ArgumentParser, what: str) -> None:
    """`--json`; `what` says which lines."""
    command.add_argument("--json", action="store_true", help=what)


def streaming(command: argparse.ArgumentParser) -> None:
    """`--stream`."""
    command.add_argument(
        "--stream", action="store_true", help="print what the model says while it speaks"
    )


def labelled(command: argparse.ArgumentParser, what: str) -> None:
    """`--label`."""
    command.add_argument(
        "--label", metavar="NAME=VALUE", type=label, action="append", default=[], help=what
    )


def asking(command: argparse.ArgumentParser) -> None:
    """What the librarian is asked with."""
    command.add_argument(
        "--folder", type=Path, default=Path("docs"), help="the documents (default: docs)"
    )
    command.add_argument(
        "--model",
        help=(
            "such as openai:gpt-5-mini (default: that with OPENAI_API_KEY, else offline:librarian)"
        ),
    )
    command.add_argument(
        "--base-url",
        help="of a server that speaks OpenAI's APIs, such as http://localhost:11434/v1",
    )
    command.add_argument(
        "--address", metavar="HOST:PORT", help="use this Temporal server instead of an embedded one"
    )


def deciding(command: argparse.ArgumentParser) -> None:
    """`--by`."""
    command.add_argument(
        "--by",
        metavar="NAME",
        help="who decides; it is recorded (default: PERDURE_BY, or your login name)",
    )


def by_of(arguments: argparse.Namespace) -> str | None:
    """Who decides; None where the login name is unknown, or is not a line that could be recorded."""
    named: str | None = (
        arguments.by if arguments.by is not None else os.environ.get("PERDURE_BY") or None
    )
    if named is not None:
        return named
    with contextlib.suppress(OSError, KeyError, ImportError):
        name = getpass.getuser()
        return name if validation.accepts(validation.By, name) else None
    return None


def label(text: str) -> tuple[str, str]:
    """`NAME=VALUE` as a pair."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def days(text: str) -> int:
    """A number of days."""
    if not text.isdecimal() or not 0 < int(text) < _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days, such as 7")
    return int(text)
