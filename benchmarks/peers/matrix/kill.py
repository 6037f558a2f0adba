"""A job whose process is killed at a moment, and the judgement by the witness."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.matrix import witness
from benchmarks.matrix.judge import AT_MOST_ONCE, BY_KEY, REPEATABLE, Plan, Verdict, judge
from benchmarks.peers.matrix.systems import LOOK_S, Crew, System, crew
from benchmarks.peers.matrix.tools import ANSWER_S, PAUSE_S

PATIENCE_S = 400.0
EFFECTS = {"look": REPEATABLE, "book": BY_KEY, "charge": AT_MOST_ONCE, "look-again": REPEATABLE}
CALLS = 4
"""The model calls of the job; with its effects, what the witness sees of it."""
_JOB = ("bill", "effect")


@dataclass(frozen=True)
class Moment:
    """When to kill: so many seconds after the witness has seen this call; see `called`."""

    call: str
    after_s: float = 0.0


MOMENTS = (
    Moment("model 1"),
    Moment("book"),
    Moment("charge"),
    Moment("charge", PAUSE_S + 0.1),
    Moment(f"model {CALLS}"),
)
"""In the first and the last call of the model, in two effects, and just after one of them."""


def called(line: witness.Line) -> str:
    """The name of a call: of an effect, or of a call of the model, by its number."""
    return str(line["what"] if line["kind"] == "effect" else f"model {line['answers'] + 1}")


@dataclass
class Record:
    """What the witness has written so far, by jobs."""

    folder: Path
    addresses: Mapping[str, str]
    _lines: dict[str, list[witness.Line]] = field(default_factory=dict)
    _place: int = 0

    def of(self, job: str) -> list[witness.Line]:
        """The lines of a job."""
        with (self.folder / witness.FILE).open("rb") as file:
            file.seek(self._place)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._place += len(whole)
        for line in map(json.loads, whole.splitlines()):
            self._lines.setdefault(line["job"], []).append(line)
        return self._lines.get(job, [])

    def calls(self, job: str, until: float = math.inf) -> list[str]:
        """Its calls of the model and the service until a time, in order."""
        lines = [line for line in self.of(job) if line["kind"] in _JOB]
        return [called(line) for line in lines if line["at"] <= until]

    async def note(self, kind: str, job: str, **fields: Any) -> None:
        """Have the witness write a line."""
        line = {"kind": kind, "job": job, **fields}
        await asyncio.to_thread(witness.post, self.addresses["service"], "/notes", line)


@dataclass(frozen=True)
class Run:
    """A job that was killed: the judgement, and the model calls beyond those that it needs."""

    system: System
    moment: Moment
    verdict: Verdict
    paid_again: int


async def run(found: Crew, record: Record, number: int, moment: Moment) -> Run:
    """Run a job, kill its process at a moment, and judge it."""
    job = job_name(found.system, number)
    await found.prepare()
    ending = asyncio.create_task(found.run(job, f"[job {job}] Do the job."))
    struck: dict[str, Any] = {}
    striking = asyncio.create_task(_strike(found, record, job, moment, struck))
    try:
        outcome, text = await asyncio.wait_for(ending, PATIENCE_S)
        await record.note("claim", job, outcome=outcome, text=text, unread=[])
    except TimeoutError:
        await found.give_up(job)
    if struck or striking.done():
        await striking
    striking.cancel()
    evidence, began = struck.get("evidence", ""), struck.get("began", 0.0)
    calls = len(record.calls(job, until=began))
    note = {"fault": "kill", "event": calls, "length": calls, "began": began}
    await record.note("fault", job, **note, landed=bool(evidence), evidence=evidence)
    found_run = judged(found.system, moment, job, record.of(job))
    print(f"{moment}, {found_run.verdict}", file=sys.stderr, flush=True)
    return found_run


def job_name(system: System, number: int) -> str:
    """The name of a job."""
    return f"{system.slug}-{number}"


def judged(system: System, moment: Moment, job: str, lines: Sequence[witness.Line]) -> Run:
    """Judge a job by its lines. A kill that did not land is marked."""
    verdict = judge(lines, Plan(job=job, effects=EFFECTS, limit_usd=Decimal(10)))
    bills = sum(line["kind"] == "bill" for line in lines)
    has_landed = verdict.landed and landed(lines, moment)
    return Run(system, moment, dataclasses.replace(verdict, landed=has_landed), bills - CALLS)


def landed(lines: Sequence[witness.Line], moment: Moment) -> bool:
    """Whether the process died within the call, or after it if it was to, and the job was open and
    had repeated no call before.
    """
    began = next(line["began"] for line in lines if line["kind"] == "fault")
    before = [line for line in lines if line["at"] <= began]
    times = {called(line): line["at"] for line in before if line["kind"] in _JOB}
    is_open = not any(line["kind"] == "claim" for line in before)
    has_repeated = len(times) < sum(line["kind"] in _JOB for line in before)
    if moment.call not in times or has_repeated or not is_open:
        return False
    took = ANSWER_S if moment.call.startswith("model") else PAUSE_S
    return moment.after_s > 0 or began - times[moment.call] < took


async def _strike(
    found: Crew, record: Record, job: str, moment: Moment, struck: dict[str, Any]
) -> None:
    """Kill the process at the moment, and let another one take over."""
    while moment.call not in record.calls(job):  # noqa: ASYNC110 - another process
        await asyncio.sleep(LOOK_S / 2)
    await asyncio.sleep(moment.after_s)
    struck["began"] = math.inf
    struck["evidence"] = await found.kill()
    struck["began"] = time.time()
    await found.take_over()
    if found.system.by_hand_s is not None:
        await asyncio.sleep(found.system.by_hand_s)
        await found.again(job)


async def killed(
    system: System, address: str, record: Record, folder: Path, moments: Sequence[Moment] = MOMENTS
) -> list[Run]:
    """Run a job for each moment, one after the other."""
    async with crew(system, address, folder, record.addresses) as found:
        return [
            await run(found, record, number, moment) for number, moment in enumerate(moments, 1)
        ]
