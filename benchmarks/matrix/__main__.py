"""The kill matrix: `make -C benchmarks matrix`, or `python -m benchmarks.matrix`.

A job is run undisturbed, to learn how many events its history has. Then it is run once for each
fault at each event, or at each nth event; several jobs at the same time. The table is printed, and
what it is made of is kept: the lines of the witness, the verdicts, the versions and the seed. The
exit code is 1 if a job breaks a check, or if a build without a safeguard breaks none.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import platform
import random
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.matrix import controls, judge
from benchmarks.matrix.deciders import DECIDERS
from benchmarks.matrix.faults import FAULTS
from benchmarks.matrix.judge import Verdict
from benchmarks.matrix.matrix import Matrix
from benchmarks.matrix.site import ROOT, has_small_disks
from perdure.worker.dev import server_binary

SHORT, LONG = 40, 1
"""Each nth event in the short form and in the long form."""


def arguments(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make -C benchmarks matrix")
    parser.add_argument("--faults", default=",".join(FAULTS), help="names, with commas")
    parser.add_argument("--every", type=int, default=SHORT, help="each nth event of the history")
    parser.add_argument("--long", action="store_true", help="each event")
    parser.add_argument("--events", default="", help="these events, with commas")
    parser.add_argument("--at-once", type=int, default=6, help="the number of jobs at a time")
    parser.add_argument("--deciders", default=",".join(map(str, DECIDERS)), help="how many at once")
    parser.add_argument(
        "--controls", default="all", help="builds without a safeguard, by numbers; all, or none"
    )
    parser.add_argument("--seed", type=int, default=None, help="which of the events are taken")
    parser.add_argument("--out", type=Path, default=None, help="the folder that keeps everything")
    return parser.parse_args(words)


def points(total: int, every: int, seed: int) -> list[int]:
    """Return each nth event; the seed draws the first."""
    return list(range(1 + random.Random(seed).randrange(every), total + 1, every))


async def main(words: list[str]) -> int:
    """Run the matrix, and return the exit code. SIGTERM ends all that it has started."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    options = arguments(words)
    seed = options.seed if options.seed is not None else int(time.time())
    out = new_folder(options.out)
    faults = [FAULTS[name] for name in options.faults.split(",") if name]
    if any(fault.has_small_disk for fault in faults) and not has_small_disks():
        print("disk: cannot be done here, for the machine allows no namespaces of users")
        faults = [fault for fault in faults if not fault.has_small_disk]
    began = time.monotonic()
    async with Matrix(out, options.at_once) as matrix:
        total = await matrix.undisturbed()
        events = [int(one) for one in options.events.split(",") if one] or points(
            total, LONG if options.long else options.every, seed
        )
        about = {**versions(), "seed": seed, "events": events, "of": total, "arguments": words}
        (out / "run.json").write_text(json.dumps(about, indent=1))
        print(f"a job has {total} events; faults at {len(events)} of them, seed {seed}", flush=True)
        counts = [int(one) for one in options.deciders.split(",") if one]
        verdicts = await matrix.all(faults, events, counts)
        found = await controls.all(matrix, controls.chosen(options.controls))
    keep(out, verdicts, found)
    red = sum(bool(verdict.broken) for verdict in verdicts if verdict.landed)
    seen = sum(bool(one.checks) for one in found)
    print(
        f"{red} of {len(verdicts)} jobs are red, {seen} of {len(found)} builds without a safeguard"
        f" were seen; {(time.monotonic() - began) / 60:.1f} minutes; everything is in {out}"
    )
    return int(red > 0 or seen < len(found))


def new_folder(out: Path | None) -> Path:
    """Create the folder that keeps everything."""
    out = out or ROOT / "build" / "matrix" / time.strftime("%Y%m%d-%H%M%S")
    out.mkdir(parents=True)
    return out


def keep(out: Path, verdicts: list[Verdict], found: list[controls.Found]) -> None:
    """Print the tables, and keep them with what they are made of."""
    with (out / "verdicts.jsonl").open("w", encoding="utf-8") as file:
        for verdict in verdicts:
            file.write(json.dumps(dataclasses.asdict(verdict), default=str) + "\n")
    text = f"{judge.text(verdicts)}\n\n{controls.text(found)}"
    markdown = f"{judge.markdown(verdicts)}\n{controls.markdown(found)}"
    (out / "table.txt").write_text(text)
    (out / "table.md").write_text(markdown)
    print(text if sys.stdout.isatty() else markdown)
    for verdict in verdicts:
        if verdict.broken and verdict.landed:
            print(f"red: {verdict.job}: {', '.join(verdict.broken)}; {verdict}")


def versions() -> dict[str, str]:
    """Return what was tested, and on what."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "perdure": version("perdure"),
        "commit": commit.stdout.strip(),
        "temporalio": version("temporalio"),
        "server": str(server_binary.find()),
        "python": platform.python_version(),
        "machine": platform.platform(),
    }


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
