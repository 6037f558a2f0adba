"""Was anything lost, or done twice? By the reports of turns and the lines of their calls."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load.app import BY_KEY, ONCE, Job

Line = Mapping[str, Any]


def read_lines(file: Path) -> list[Line]:
    """All lines that workers have written."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True)
class Ended:
    """A turn that was accepted.

    Attributes:
        id: Its id in Temporal.
        began, ended: Seconds since 1970, before its start and after its report.
        answer: Its answer; None if it failed or has not ended.
        session: The session that it belongs to, or empty.
    """

    name: str
    id: str
    job: Job
    began: float
    ended: float
    answer: str | None
    session: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of the work.

    Attributes:
        lost: Turns without a complete report, effects that may be repeated and are missing, and
            effects that a report says are done and are missing.
        duplicates: Effects that took place twice.
        unknown: Calls of the tool that may not be repeated, whose outcome the model knows to be
            unknown.
        repeated: Model calls that were made again.
    """

    lost: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    unknown: int = 0
    repeated: int = 0


def judge(turns: Iterable[Ended], lines: Iterable[Line]) -> Verdict:
    """Compare reports with effects."""
    effects: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    asked: Counter[tuple[str, str]] = Counter()
    for line in lines:
        if line["kind"] in (BY_KEY, ONCE):
            effects[line["kind"], line["turn"], line["call"]].append(line["key"])
        elif line["kind"] == "asked":
            asked[line["turn"], line["call"]] += 1
    lost, unknown = [], 0
    for turn in turns:
        claims = json.loads(turn.answer) if turn.answer is not None else None
        if claims is None or [*claims] != [call for call, _ in turn.job.calls()]:
            lost.append(turn.name)
            continue
        for call, kind in turn.job.calls():
            unknown += kind == ONCE and not claims[call]
            if (kind == BY_KEY or claims[call]) and (kind, turn.name, call) not in effects:
                lost.append(f"{turn.name} {call}")
    duplicates = [
        f"{turn} {call}"
        for (kind, turn, call), keys in effects.items()
        if len(keys if kind == ONCE else {*keys}) > 1
    ]
    repeated = sum(count - 1 for count in asked.values())
    return Verdict(tuple(lost), tuple(duplicates), unknown, repeated)
