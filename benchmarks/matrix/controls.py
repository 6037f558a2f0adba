"""Negative controls: builds of the product from which a safeguard is removed.

Each is a copy of the product with a replacement. A matrix that stays green on it would show
nothing of the product either.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.matrix import app
from benchmarks.matrix.faults import FAULTS, NOTHING, Fault
from tests.support.planted import PLANTED, Planted, plant

if TYPE_CHECKING:
    from benchmarks.matrix.judge import Verdict
    from benchmarks.matrix.matrix import Matrix

TRIES = 4
_SOON_S = 120.0


@dataclass(frozen=True)
class Control:
    """A build, and what is done to its job.

    Attributes:
        planted: What is removed. Its promises are the checks of which one has to be broken.
        fault: The fault; nothing for none.
        deciders: The number of deciders at once, instead of a fault.
    """

    planted: Planted
    fault: Fault = NOTHING
    deciders: int = 0

    @property
    def what(self) -> str:
        """What is done to its job, in words."""
        return f"{self.deciders} deciders" if self.deciders else self.fault.name or "nothing"


@dataclass(frozen=True)
class Found:
    """What saw it.

    Attributes:
        control: The build.
        checks: The checks that it breaks, of those that it is to break; none if it stayed green.
        runs: After how many runs.
        seconds: After how many seconds of these runs, with what else ran at the same time.
    """

    control: Control
    checks: tuple[str, ...]
    runs: int
    seconds: float


def _impatient(name: str) -> Fault:
    return replace(FAULTS[name], patience_s=_SOON_S)


_UNREAD = replace(NOTHING, variables={app.SLOW: "charge"})
"""Messages come while a tool is at work, so several of them are unread at once."""
_REPEATED = "a tool that may not be repeated is, after its worker was lost"
CONTROLS = (
    Control(
        replace(
            next(fault for fault in PLANTED if fault.name == _REPEATED),
            promises=("duplicates",),
            also=(
                (
                    "activities/tool_compatibility.py",
                    "if run.repeats and not item.idempotent and not isinstance(item, MCPTool):",
                    "if False:",
                ),
            ),  # the worker refuses a second attempt, too
        ),
        FAULTS["kill in charge"],
    ),
    Control(
        Planted(
            "tools are retried by Temporal",
            "workflows/turn/calls.py",
            "ONCE = RetryPolicy(maximum_attempts=1)",
            "ONCE = RetryPolicy(maximum_attempts=3)",
            ("duplicates",),
            also=(
                (
                    "activities/heartbeats.py",
                    "if info.attempt > 1 or info.",
                    "if False and info.",
                ),
            ),  # the worker refuses a second attempt, too
        ),
        FAULTS["machine in charge"],
    ),
    Control(
        Planted(
            "each attempt of a tool has another idempotency key",
            "activities/call_tool.py",
            "run.idempotency_key(turn_id, key.step, key.call, name)",
            "run.idempotency_key(turn_id, key.step, key.attempt * 1000 + key.call, name)",
            ("duplicates",),
        ),
        FAULTS["kill in book"],
    ),
    Control(
        Planted(
            "nothing is reserved before a call",
            "perdure/turn/ledger.py",
            "getattr(amount, dimension) > remaining:",
            "remaining <= 0:",
            ("over_limit",),
        ),
        replace(NOTHING, variables={app.WORDS: "2000"}),  # one call costs more than is left
    ),
    Control(
        Planted(
            "an approval is bound neither to arguments nor to a run",
            "perdure/turn/approvals.py",
            'text = f"{call.name}\\n{call.arguments}" + (f"\\n{reason}" if reason else "")',
            "text = call.name",
            ("unapproved",),
            also=(
                (
                    "perdure/values/approvals.py",
                    '"\\n".join((run_id, call_id, digest))',
                    "call_id",
                ),
            ),
        ),
        FAULTS["replaced call"],
    ),
    Control(
        Planted(
            "calls that need an approval do not wait for it",
            "perdure/turn/approvals.py",
            "if is_wanted(rule, is_marked=tool.needs_approval, changes=not tool.is_read_only)",
            "if False",
            ("unapproved",),
            also=(
                (
                    "activities/tool_compatibility.py",
                    'if run.approved == "" and is_wanted(',
                    "if False and is_wanted(",
                ),
            ),  # the worker refuses a call without an approval, too
        ),
    ),
    Control(
        Planted(
            "every decision that arrives in one workflow task is accepted",
            "perdure/turn/gates.py",
            "        if (approval.call_id, approval.digest) in open_places\n",
            "",
            ("decided_twice",),
        ),
        deciders=16,
    ),
    Control(
        Planted(
            "heartbeats are not missed for an hour",
            "perdure/temporal/liveness.py",
            "    return interval + tolerance\n",
            "    return timedelta(hours=1)\n",
            ("stuck",),
        ),
        _impatient("machine in charge"),
    ),
    Control(
        Planted(
            "a worker process that died is not started again",
            "worker/supervision/supervisor.py",
            "            if await self._pause(child, end.code, deaths):\n",
            "            if True:\n",
            ("stuck",),
        ),
        _impatient("kill in charge"),
    ),
    Control(
        Planted(
            "a tool whose worker was lost is reported as done",
            "perdure/turn/steps.py",
            '"contact with the process that ran it was lost{after}; whether it took effect is'
            ' unknown"',
            '"receipt-0"',
            ("overclaims",),
        ),
        FAULTS["kill before charge"],
    ),
    Control(
        Planted(
            "the last message is read first",
            "perdure/turn/inbox.py",
            "unread=(*self.unread, _message(new_message)),",
            "unread=(_message(new_message), *self.unread),",
            ("misread",),
        ),
        _UNREAD,
    ),
    Control(
        Planted(
            "a message that is not read yet is forgotten when another one comes",
            "perdure/turn/inbox.py",
            "        return replace(\n"
            "            self,\n"
            "            unread=(*self.unread, _message(new_message)),",
            "        return replace(\n"
            "            self,\n"
            "            unread=(_message(new_message),),",
            ("misread",),
        ),
        _UNREAD,
    ),
)


def chosen(words: str) -> list[Control]:
    """Return the controls by their numbers, from 1, with commas; `all`, or `none`."""
    if words in ("", "none"):
        return []
    if words == "all":
        return list(CONTROLS)
    return [CONTROLS[int(word) - 1] for word in words.split(",")]


async def all(matrix: Matrix, controls: Sequence[Control]) -> list[Found]:  # noqa: A001 - of the module
    """Try each control."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_try(matrix, control)) for control in controls]
    return [task.result() for task in tasks]


async def _try(matrix: Matrix, control: Control) -> Found:
    """Run its job until a check of the control is broken, at most a few times."""
    folder = matrix.folder_for("control")
    await asyncio.to_thread(plant, control.planted, folder)
    try:
        found = await _found(matrix, control, folder)
        print(f"{control.planted.name}: {', '.join(found.checks) or 'NOT SEEN'}", flush=True)
        return found
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


async def _found(matrix: Matrix, control: Control, folder: Path) -> Found:
    """Run the job of a control with the build in a folder, until it is seen."""
    seconds = 0.0
    for run in range(1, TRIES + 1):
        verdict = await _run(matrix, control, folder)
        seconds += verdict.seconds
        seen = tuple(one for one in verdict.broken if one in control.planted.promises)
        if seen:
            return Found(control, seen, run, seconds)
    return Found(control, (), TRIES, seconds)


async def _run(matrix: Matrix, control: Control, folder: Path) -> Verdict:
    if control.deciders:
        return await matrix.decided(control.deciders, folder)
    return await matrix.run(control.fault, 0, folder)


def _cells(found: Sequence[Found]) -> list[tuple[str, ...]]:
    return [
        (
            one.control.planted.name,
            one.control.fault.name
            or (f"{one.control.deciders} deciders" if one.control.deciders else "none"),
            ", ".join(one.checks) or "NONE",
            str(one.runs),
            f"{one.seconds:.0f}",
        )
        for one in found
    ]


_HEAD = ("removed", "fault", "seen by", "runs", "seconds")


def text(found: Sequence[Found]) -> str:
    """Return the table as text."""
    lines = [_HEAD, *_cells(found)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def markdown(found: Sequence[Found]) -> str:
    """Return the table as Markdown."""
    lines = [_HEAD, ("---",) * len(_HEAD), *_cells(found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
