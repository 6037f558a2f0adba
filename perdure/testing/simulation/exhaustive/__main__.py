"""Simulate every interleaving of a small turn: `python -m perdure.testing.simulation.exhaustive`.

Without arguments, these are the spaces of `SPACES`, which take some minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import get_args

from perdure.testing.simulation.exhaustive.interleavings import Space, exhaust, shortest
from perdure.testing.simulation.exhaustive.scenario import Interference

SPACES = (
    Space("message", 0),
    Space("message", 1, 0),
    Space("urgent message", 0, 0),
    Space("urgent message", 1, 0),
    Space("cancel", 0, 0),
    Space("cancel", 1, 0),
)
"""What is simulated. Each has all interleavings with fewer kills and fewer detours, too."""


def main(arguments: list[str] | None = None) -> int:
    """Simulate, print what was found, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m perdure.testing.simulation.exhaustive",
        description="Simulate every interleaving of a small turn.",
    )
    interferences = get_args(Interference)
    parser.add_argument("--interference", choices=interferences, help="of one space")
    parser.add_argument("--kills", type=int, default=0, help="at most, in that space (default: 0)")
    parser.add_argument("--detours", type=int, help="at most, in that space (default: any)")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=2, help="cores (default: 2)")
    options = parser.parse_args(arguments)
    own = Space(options.interference or "message", options.kills, options.detours)
    spaces = [own] if options.interference else SPACES
    return max([_searched(space, helped=options.workers > 1) for space in spaces])


def _show(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


def _searched(space: Space, *, helped: bool) -> int:
    """Search a space, print what was found, and return the exit code."""
    began = time.monotonic()
    found = exhaust(space, helped=helped, show=lambda counts: _show(f"{space}: {counts} so far\n"))
    sys.stdout.write(
        f"{space}: {found.interleavings} interleavings, {found.states} states;"
        f" {found.ended} simulated to their end, {found.pruned} up to a known state"
        f" ({time.monotonic() - began:.0f} s)\n"
    )
    for one in found.broken[:1]:
        short = shortest(space, one)
        sys.stdout.write(
            f"an interleaving breaks a promise: {one.message}\n{short.story}\n"
            f"repeat it: interleaving({space!r}, {list(short.choices)})\n"
        )
    sys.stdout.write(f"{len(found.broken)} broken promises\n")
    sys.stdout.flush()
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
