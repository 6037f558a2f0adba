"""What became of an episode, by the ledger of its service, and what is counted of all of them.

The measures are those of LIMBO: task success, exactly-once success, duplicates and overclaims. An
overclaim is a report of success that is wrong: something is missing, or was made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.effects.behaviours import Behaviour, Claim, missing
from benchmarks.effects.templates import Case, Record, Template
from perdure.testing import Grade, MadeEffect, grade
from perdure.values.messages import ToolOutcome

ASSERTS_SUCCESS = frozenset({"done", "verified"})
"""The outcomes that assert that a call took effect."""
ASSERTS_NOTHING_DONE = frozenset({ToolOutcome.FAILED, ToolOutcome.NOT_RUN, ToolOutcome.DENIED})


@dataclass(frozen=True)
class Statement:
    """What became of a call by its result.

    Attributes:
        outcome: Its outcome.
        records: The records that it had to make, without those that the result lists as missing.
    """

    outcome: str
    records: Sequence[Record] = ()

    @classmethod
    def of(
        cls, template: Template, outcome: str, records: Sequence[Record], content: str
    ) -> Statement:
        """What a result says, with the names of fields before they were renamed."""
        left = missing(content)
        originals = [template.original(record) for record in records]
        return cls(outcome, [record for record in originals if record not in left])

    @property
    def asserts_success(self) -> bool:
        """Whether it says that the effects were made."""
        return self.outcome in ASSERTS_SUCCESS


@dataclass(frozen=True)
class Graded:
    """An episode and what became of it.

    Attributes:
        case: Its task and mode.
        behaviour: That of the model.
        verdict: What was done, by the ledger.
        claim: What the model said at the end; another text if it did not come to an end.
        overclaims: Whether a result has asserted what the ledger does not have.
        denials: The number of effects of calls whose results assert that there were none.
        repeats: The number of effects beyond the calls of the model, without redeliveries.
    """

    case: Case
    behaviour: Behaviour
    verdict: Grade
    claim: str
    overclaims: bool = False
    denials: int = 0
    repeats: int = 0

    @property
    def did(self) -> str:
        """What was done."""
        if self.verdict.duplicates:
            return "twice"
        if self.verdict.made == self.verdict.wanted:
            return "once"
        return "part" if self.verdict.made else "none"

    @property
    def is_overclaim(self) -> bool:
        """Whether the report of success at the end is wrong."""
        return self.verdict.is_overclaim(claims_success=self.claim == Claim.DONE)


def graded(
    case: Case,
    behaviour: Behaviour,
    effects: Sequence[MadeEffect],
    statements: Sequence[Statement],
    claim: str,
) -> Graded:
    """Judge an episode.

    Args:
        case: Its task and mode.
        behaviour: That of the model.
        effects: The ledger at the end, with what was late.
        statements: The result of each call that makes effects.
        claim: What the model said at the end.
    """
    template = case.template
    by_record = [_Made.of(record, effects, statements) for record in template.records]
    return Graded(
        case,
        behaviour,
        grade(effects, template.kind, template.records),
        claim,
        overclaims=any(made.is_claimed and not made.effects for made in by_record),
        denials=sum(max(0, made.effects - made.admitted) for made in by_record),
        repeats=sum(max(0, made.effects - made.calls) for made in by_record),
    )


@dataclass(frozen=True)
class _Made:
    """How often a record was made, called for, admitted as possibly made, and claimed."""

    effects: int
    calls: int
    admitted: int
    is_claimed: bool

    @classmethod
    def of(
        cls,
        record: Record,
        effects: Sequence[MadeEffect],
        statements: Sequence[Statement],
    ) -> _Made:
        about = [one for one in statements if record in one.records]
        return cls(
            effects=sum(one.has(record) and one.source != "redelivery" for one in effects),
            calls=len(about),
            admitted=sum(one.outcome not in ASSERTS_NOTHING_DONE for one in about),
            is_claimed=any(one.asserts_success for one in about),
        )


MEASURES: Mapping[str, Callable[[Graded], int]] = {
    "exactly once": lambda one: one.verdict.exactly_once,
    "success": lambda one: one.verdict.success,
    "duplicates": lambda one: one.verdict.duplicates,
    "overclaims": lambda one: one.is_overclaim,
    "by the outcome": lambda one: one.overclaims,
    "denied, but done": lambda one: one.denials > 0,
    "repeated": lambda one: one.repeats,
    "unknown named": lambda one: one.claim == Claim.UNKNOWN,
}
"""What is counted of each episode."""


def counted(episodes: Iterable[Graded]) -> dict[str, int]:
    """The sum of each measure."""
    graded_ones = list(episodes)
    return {name: sum(int(of(one)) for one in graded_ones) for name, of in MEASURES.items()}
