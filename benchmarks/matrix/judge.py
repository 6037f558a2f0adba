"""The judgement of a job, from the lines of the witness alone.

The columns are those of LIMBO (arXiv 2609.29095), and some more:

| column | meaning |
|---|---|
| `success` | the job ended as completed, and each effect of the plan was applied, or denied |
| `exactly_once` | the same, and each effect that may not be repeated was applied once |
| `duplicates` | effects that may not be repeated, each time after the first |
| `overclaims` | effects that the job claims as done and the witness does not have |
| `unknown` | effects whose outcome the job names as unknown |
| `unapproved` | effects that need an approval, and have none of these arguments before them, or \
none that was used |
| `decided_twice` | calls about which the decisions of several deciders were used |
| `over_limit` | dollars of the bill above the limit |
| `misread` | what is wrong with the messages: lost, read twice, or out of order |
| `stuck` | whether the job did not end within the patience of the program |
| `went_on_s` | seconds from the fault until the job called its model or its service again |

`Verdict.broken` names the checks that a job breaks. A job with an unknown outcome is no success,
and breaks nothing: it is honest. So is a job that does not complete and says so, unless the plan
`must_complete`; then `incomplete` is broken.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from benchmarks.matrix.script import claims_in

REPEATABLE, AT_MOST_ONCE, BY_KEY, APPROVED = "repeatable", "at most once", "by key", "approved"
"""The kinds of effects: it may be repeated; it may not; once for each key, by the service; at most
once, and only with an approval."""

Line = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a job was to do.

    Attributes:
        job: Its name.
        effects: The kind of each effect, by its `what`. Effects that are not in the plan are not
            judged.
        limit_usd: The largest bill.
        limits_usd: The largest bill of single models, by their names.
        resets: How often it was reset. Each reset may do again what came after its point, and spend
            the rest of the budget again, as documented.
        must_complete: Whether a job that ends in another way is broken.
    """

    job: str
    effects: Mapping[str, str]
    limit_usd: Decimal
    limits_usd: Mapping[str, Decimal] = field(default_factory=dict)
    resets: int = 0
    must_complete: bool = True


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The judgement of a job; see the columns above.

    Attributes:
        job: Its name.
        fault: What was done to it; empty for nothing.
        event: The event at which it was to be done.
        landed: Whether it was really done; true if nothing was to be done.
        usd: The bill.
        repeats: Effects that may be repeated, and were.
        missing: Effects that were not applied.
        seconds: The time from the first line of the witness about it to the last one.
    """

    job: str
    fault: str = ""
    event: int = 0
    landed: bool = True
    success: bool
    exactly_once: bool
    duplicates: int
    overclaims: tuple[str, ...]
    unknown: tuple[str, ...]
    unapproved: tuple[str, ...]
    decided_twice: tuple[str, ...]
    usd: Decimal
    over_limit: Decimal
    misread: str
    stuck: bool
    went_on_s: float | None
    repeats: int
    missing: tuple[str, ...]
    broken: tuple[str, ...]
    seconds: float


def judge(lines: Sequence[Line], plan: Plan) -> Verdict:
    """Judge a job by the lines of the witness. Lines of other jobs are ignored."""
    lines = [line for line in lines if line["job"] == plan.job]
    fault = next((line for line in lines if line["kind"] == "fault"), None)
    claim = next((line for line in reversed(lines) if line["kind"] == "claim"), None)
    claims = claims_in(claim["text"]) if claim else {}
    applied = Counter(
        line["what"] for line in lines if line["kind"] == "effect" and line["applied"]
    )
    found: dict[str, Any] = {
        "duplicates": _duplicates(applied, plan),
        "overclaims": tuple(
            what for what, end in claims.items() if end == "done" and not applied[what]
        ),
        "unapproved": _unapproved(lines, plan),
        "decided_twice": _decided_twice(lines),
        "over_limit": _over_limit(lines, plan),
        "misread": _misread(lines, claim),
        "stuck": claim is None,
    }
    denied = _denied(lines)
    missing = tuple(what for what in plan.effects if not applied[what] and what not in denied)
    completed = claim is not None and claim["outcome"] == "completed"
    hidden = tuple(what for what in missing if claims.get(what) not in ("unknown", "denied"))
    broken = [name for name, value in found.items() if value]
    if plan.must_complete and not found["stuck"] and (not completed or hidden):
        broken.append("incomplete")
    return Verdict(
        job=plan.job,
        fault=fault["fault"] if fault else "",
        event=fault["event"] if fault else 0,
        landed=fault is None or fault["landed"],
        success=completed and not missing,
        exactly_once=completed and not missing and not found["duplicates"],
        unknown=tuple(what for what, end in claims.items() if end == "unknown"),
        usd=_bill(lines),
        went_on_s=_went_on(lines, fault),
        repeats=sum(
            count - 1 for what, count in applied.items() if plan.effects.get(what) == REPEATABLE
        ),
        missing=missing,
        broken=tuple(broken),
        seconds=lines[-1]["at"] - lines[0]["at"] if lines else 0.0,
        **found,
    )


def _duplicates(applied: Mapping[str, int], plan: Plan) -> int:
    return sum(
        max(0, applied[what] - 1 - (0 if kind == BY_KEY else plan.resets))
        for what, kind in plan.effects.items()
        if kind != REPEATABLE
    )


def _call(line: Line) -> tuple[str, str]:
    return line["what"], json.dumps(line["arguments"], sort_keys=True)


def _unapproved(lines: Sequence[Line], plan: Plan) -> tuple[str, ...]:
    """Return the effects without an approval of their arguments before them.

    An approval does not count if the decision of another decider was used. A decider who was told
    that the call was decided may have done so itself, and have missed the answer.
    """
    answers = [line for line in lines if line["kind"] == "decided"]
    used = {(_call(line), line["by"]) for line in answers if line["answer"] == "used"}
    refused = {
        (_call(line), line["by"])
        for line in answers
        if any(call == _call(line) and by != line["by"] for call, by in used)
    } - used
    approved: set[tuple[str, str]] = set()
    found: list[str] = []
    for line in lines:
        is_decision = line["kind"] == "decision" and line["approves"]
        if is_decision and (_call(line), line["by"]) not in refused:
            approved.add(_call(line))
        needs_one = line["kind"] == "effect" and plan.effects.get(line["what"]) == APPROVED
        if needs_one and _call(line) not in approved:
            found.append(line["what"])
    return tuple(found)


def _decided_twice(lines: Sequence[Line]) -> tuple[str, ...]:
    used = {
        (_call(line), line["by"])
        for line in lines
        if line["kind"] == "decided" and line["answer"] == "used"
    }
    counts = Counter(call for call, _ in used)
    return tuple(call[0] for call, count in counts.items() if count > 1)


def _denied(lines: Sequence[Line]) -> set[str]:
    """Return the effects of which a denial was used."""
    denials = {
        (_call(line), line["by"])
        for line in lines
        if line["kind"] == "decision" and not line["approves"]
    }
    return {
        line["what"]
        for line in lines
        if line["kind"] == "decided"
        and line["answer"] == "used"
        and (_call(line), line["by"]) in denials
    }


def _bill(lines: Sequence[Line], model: str = "") -> Decimal:
    return sum(
        (
            Decimal(line["usd"])
            for line in lines
            if line["kind"] == "bill" and model in line["model"]
        ),
        Decimal(0),
    )


def _over_limit(lines: Sequence[Line], plan: Plan) -> Decimal:
    """Return the dollars above the limits; each reset may spend them again."""
    limits = {"": plan.limit_usd, **plan.limits_usd}
    times = 1 + plan.resets
    return sum(
        (max(Decimal(0), _bill(lines, model) - times * limit) for model, limit in limits.items()),
        Decimal(0),
    )


def _misread(lines: Sequence[Line], claim: Line | None) -> str:
    """Return what is wrong with the messages; empty if nothing is.

    They are read in the order in which they were accepted, each once in every transcript, and the
    last transcript has all of them that the claim does not name as unread.
    """
    accepted = list(dict.fromkeys(line["id"] for line in lines if line["kind"] == "accepted"))
    last: list[str] = []
    for line in lines:
        if line["kind"] != "bill" or not (line["shown"] or accepted):
            continue
        shown = [name for name in line["shown"] if name in accepted]
        if len(shown) != len(set(shown)):
            return f"read twice: {shown}"
        if shown != [name for name in accepted if name in shown]:
            return f"out of order: {shown}"
        last = max(last, shown, key=len)
    unread = set(claim["unread"]) if claim else set(accepted)
    lost = [name for name in accepted if name not in last and name not in unread]
    return f"lost: {lost}" if lost else ""


def _went_on(lines: Sequence[Line], fault: Line | None) -> float | None:
    if fault is None:
        return None
    later = (
        line["at"] - fault["began"]
        for line in lines
        if line["kind"] in ("bill", "effect", "claim") and line["at"] > fault["began"]
    )
    return next(later, None)


@dataclass(frozen=True)
class Row:
    """A row of the table: the verdicts of one fault, of which only those that landed count."""

    fault: str
    verdicts: Sequence[Verdict]

    @property
    def landed(self) -> list[Verdict]:
        """The runs in which the fault was really made."""
        return [verdict for verdict in self.verdicts if verdict.landed]

    def cells(self) -> dict[str, str]:
        """The columns of the table, in words."""
        landed = self.landed
        seconds = sorted(one.went_on_s for one in landed if one.went_on_s is not None)
        return {
            "fault": self.fault or "none",
            "runs": str(len(landed)),
            "not landed": str(len(self.verdicts) - len(landed)),
            "task success": share(sum(one.success for one in landed), len(landed)),
            "exactly once": share(sum(one.exactly_once for one in landed), len(landed)),
            "duplicates": str(sum(one.duplicates for one in landed)),
            "overclaims": str(sum(len(one.overclaims) for one in landed)),
            "unknown, named": str(sum(len(one.unknown) for one in landed)),
            "unapproved": str(sum(len(one.unapproved) for one in landed)),
            "decided twice": str(sum(len(one.decided_twice) for one in landed)),
            "bill <= limit": share(sum(not one.over_limit for one in landed), len(landed)),
            "messages": share(sum(not one.misread for one in landed), len(landed)),
            "stuck": str(sum(one.stuck for one in landed)),
            "goes on, s": f"{statistics.median(seconds):.1f}" if seconds else "",
            "p95": f"{percentile(seconds, 0.95):.1f}" if seconds else "",
            "red": str(sum(bool(one.broken) for one in landed)),
        }


def share(count: int, total: int) -> str:
    """Return a share in words."""
    return f"{count}/{total}"


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return a percentile of values in ascending order: the nearest rank."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def rows(verdicts: Sequence[Verdict]) -> list[Row]:
    """Return a row for each fault, in the order in which they come."""
    faults = dict.fromkeys(verdict.fault for verdict in verdicts)
    return [Row(fault, [one for one in verdicts if one.fault == fault]) for fault in faults]


def text(verdicts: Sequence[Verdict]) -> str:
    """Return the table as text."""
    cells = [row.cells() for row in rows(verdicts)]
    names = list(cells[0])
    widths = {name: max(len(name), *(len(row[name]) for row in cells)) for name in names}
    lines = [{name: name for name in names}, *cells]
    return "\n".join(
        "  ".join(
            row[name].ljust(widths[name]) if name == "fault" else row[name].rjust(widths[name])
            for name in names
        )
        for row in lines
    )


def markdown(verdicts: Sequence[Verdict]) -> str:
    """Return the table as Markdown."""
    cells = [row.cells() for row in rows(verdicts)]
    names = list(cells[0])
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in cells)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
