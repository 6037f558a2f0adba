"""Asks on the terminal whether a command may do what cannot be taken back."""

from __future__ import annotations

import asyncio
import sys

from perdure import errors
from perdure.clients.cli.drawing.screen import put


async def agrees(question: str, problem: str) -> bool:
    """Return whether the answer to a question is yes.

    Raises:
        InvalidRequestError: There is no terminal to ask on; `problem` is the message.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.InvalidRequestError(problem)
    put(f"{question} [y/N] ", sys.stderr, end="")
    return (await _line()).strip().lower() in ("y", "yes")


async def _line() -> str:
    """Return a line from the terminal. Ctrl-C interrupts the wait."""
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    loop.add_reader(sys.stdin, is_there.set)
    try:
        await is_there.wait()
        return sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin)
