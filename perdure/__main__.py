"""The command line: `perdure`. What callers need is in `perdure.clients.commands`, what runs workers in `perdure.worker.commands`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from perdure.clients import commands as for_callers
from perdure.errors import PerdureError
from perdure.worker import commands as for_workers

FAILED, USAGE, INTERRUPTED = 1, 2, 130


def parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    made = argparse.ArgumentParser(prog="perdure", description="Agents that must finish: each turn is a Temporal workflow.")
    made.add_argument("--verbose", action="store_true", help="show what the libraries log")
    made.set_defaults(run=None)
    subparsers = made.add_subparsers(title="commands", metavar="COMMAND")
    for_workers.register(subparsers)
    for_callers.register(subparsers)
    return made


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code: 0 well, 1 the turn did not end well, 2 something is to be put right first."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as left:  # --help and mistakes
        return left.code if isinstance(left.code, int) else USAGE
    logging.basicConfig(level=logging.INFO if arguments.verbose else logging.WARNING, format="%(message)s", stream=sys.stderr)
    if arguments.run is None:
        parser().print_help()
        return USAGE
    try:
        return int(asyncio.run(arguments.run(arguments)))
    except PerdureError as error:
        print(f"perdure: {error.message}", file=sys.stderr)
        return FAILED if error.report is not None else USAGE
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("perdure: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else FAILED


def main() -> None:
    """Run, then leave at once: Temporal's client may abort an interpreter that takes its time to end."""
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
