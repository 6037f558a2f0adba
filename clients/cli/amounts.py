"""Budgets on the command line."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta

from perdure import errors, validation
from perdure.clients.cli.arguments import whole_number
from perdure.values.budgets import Budget, Remaining

_TIME = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
UNITS = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("min", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
)


def add_options(parser: argparse.ArgumentParser, what: str, *, iterations: str) -> None:
    """The options of a budget, and the option `iterations` of the number of steps."""
    group = parser.add_argument_group(what)
    group.add_argument("--usd", metavar="AMOUNT", help="money in US dollars, such as 0.50")
    group.add_argument("--time", type=duration, metavar="TIME", help="such as 90s, 10m or 1h30m")
    group.add_argument("--tokens", type=whole_number, metavar="N", help="input and output together")
    group.add_argument("--model-calls", type=whole_number, metavar="N", help="requests to models")
    group.add_argument("--tool-calls", type=whole_number, metavar="N", help="calls of tools")
    group.add_argument(
        iterations,
        type=_iterations,
        metavar="N",
        help="steps of the turn itself, delegates not included",
    )


def budget_of(arguments: argparse.Namespace) -> Budget | None:
    """The budget that the options name; None where they name none.

    Raises:
        InvalidRequestError: A limit that cannot be kept.
    """
    named = {
        name: getattr(arguments, name)
        for name in ("usd", "time", "tokens", "model_calls", "tool_calls")
    }
    given = {name: value for name, value in named.items() if value is not None}
    try:
        return Budget(**given) if given else None
    except errors.ConfigurationError as error:
        raise errors.InvalidRequestError(error.message) from None


def duration(text: str) -> timedelta:
    """`1h30m` as a duration."""
    match = _TIME.fullmatch(text)
    if not text or match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write it like 90s, 10m or 1h30m")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def _iterations(text: str) -> int:
    """The type of a limit of iterations, and of what is added to one."""
    count, most = whole_number(text), validation.MOST
    if not 1 <= count <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
    return count


def time_in_words(time: timedelta) -> str:
    """In its two largest units, down to whole seconds: `2 h 5 min`, `12 s`."""
    units = [(name, length) for name, length in UNITS if time >= length][:2]
    parts = []
    for name, length in units:
        parts.append(f"{time // length} {name}")
        time %= length
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def in_words(left: Remaining) -> str:
    """What is left, in a line."""
    words = {
        "usd": f"${left.usd:f}" if left.usd is not None else "",
        "time": time_in_words(left.time) if left.time is not None else "",
        "tokens": f"{left.tokens} tokens" if left.tokens is not None else "",
        "model_calls": f"{left.model_calls} model calls" if left.model_calls is not None else "",
        "tool_calls": f"{left.tool_calls} tool calls" if left.tool_calls is not None else "",
        "iterations": f"{left.iterations} iteration{'s' * (left.iterations != 1)}"
        if left.iterations is not None
        else "",
    }
    return ", ".join(word for word in words.values() if word)
