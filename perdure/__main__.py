"""The command line: `perdure`.

What callers need is in `perdure.clients.cli.commands`, what runs workers in
`perdure.worker.commands`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence
from importlib.metadata import version
from types import TracebackType

from perdure.clients.cli import commands as for_callers
from perdure.clients.cli import completion, exits
from perdure.clients.cli.arguments import Parser
from perdure.clients.cli.screen import put
from perdure.errors import PerdureError, TurnNotFoundError
from perdure.text import harmless, harmless_lines
from perdure.worker import commands as for_workers
from perdure.worker.logs import Lines

EPILOG = f"""\
Temporal is where its environment says (TEMPORAL_ADDRESS, TEMPORAL_PROFILE, …),
else at localhost:7233. `perdure COMMAND --help` says more, with examples.

exit codes:
{exits.in_words()}
"""
HINTS: dict[type[PerdureError], str] = {
    TurnNotFoundError: "`perdure list` shows those that there are"
}


def parser() -> Parser:
    """Every command with its options."""
    made = Parser(
        prog="perdure",
        description="Agents that must finish: each turn is a Temporal workflow.",
        epilog=EPILOG,
    )
    made.add_argument("--version", action="version", version=f"perdure {version('perdure')}")
    made.add_argument("--verbose", action="store_true", help="show what the libraries log")
    made.set_defaults(run=None, json=False, full=False)
    subparsers = made.add_subparsers(title="commands", metavar="COMMAND")
    for_workers.register(subparsers)
    for_callers.register(subparsers)
    completion.register(subparsers, made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code; `perdure.clients.cli.exits` says what they mean."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as left:  # --help and mistakes
        return left.code if isinstance(left.code, int) else exits.USAGE
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(dated=False))
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING, handlers=[handler]
    )
    if arguments.run is None:
        parser().print_help()
        return exits.USAGE
    try:
        return _run(arguments)
    except BrokenPipeError:
        return exits.NO_READER


def _run(arguments: Namespace) -> int:
    try:
        return int(asyncio.run(arguments.run(arguments)))
    except PerdureError as error:
        hint = f"; {HINTS[type(error)]}" if type(error) in HINTS else ""
        put(f"perdure: {_below(error.message)}{hint}", sys.stderr)
        if arguments.json:
            from perdure.clients.cli.json_lines import tell_error

            tell_error(error)
        return exits.of_error(error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        put("perdure: interrupted", sys.stderr)
        return exits.INTERRUPTED
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else exits.FAILED


def _below(message: str) -> str:
    """A message of which all lines but the first are indented, so that none can pass for a line of the command's own."""
    first, *more = message.splitlines() or [""]
    return "\n".join([harmless(first), *(f"  {harmless(line)}" for line in more)])


def _unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show an exception that is a bug: it may quote anything."""
    put(harmless_lines("".join(traceback.format_exception(kind, error, trace))), sys.stderr, end="")


def main() -> None:
    """Run, then leave at once.

    Temporal's client may abort an interpreter that takes its time to end.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a terminal that knows few letters is no reason to fail
    sys.excepthook = _unexpected
    code = run(sys.argv[1:])
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
