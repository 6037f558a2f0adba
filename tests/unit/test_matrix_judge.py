"""The judge of the kill matrix, from the lines of the witness alone."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.matrix import judge, script, witness
from benchmarks.matrix.judge import APPROVED, AT_MOST_ONCE, BY_KEY, REPEATABLE, Plan, Verdict

PLAN = Plan(
    job="j",
    effects={"look": REPEATABLE, "book": BY_KEY, "charge": AT_MOST_ONCE, "wire": APPROVED},
    limit_usd=Decimal("0.10"),
    limits_usd={"scout": Decimal("0.02")},
)
CLAIM = "look: done, book: done, charge: done, wire: done"
Line = dict[str, Any]


def bill(usd: str = "0.01", model: str = "clerk", *shown: str) -> Line:
    """A request to a model."""
    return {"kind": "bill", "model": model, "usd": usd, "shown": list(shown)}


def effect(what: str, *, applied: bool = True, **arguments: int) -> Line:
    """An effect of a tool."""
    return {"kind": "effect", "what": what, "applied": applied, "arguments": arguments}


def decision(by: str = "anna", *, approves: bool = True, **arguments: int) -> Line:
    """A decision about the transfer, before it is sent."""
    fields = {"what": "wire", "arguments": arguments or {"amount": 1}}
    return {"kind": "decision", "by": by, "approves": approves, **fields}


def decided(answer: str, by: str = "anna") -> Line:
    """What a decider was told."""
    return {
        "kind": "decided",
        "what": "wire",
        "arguments": {"amount": 1},
        "by": by,
        "answer": answer,
    }


def accepted(name: str) -> Line:
    """A message that was accepted."""
    return {"kind": "accepted", "id": name}


def claim(text: str = CLAIM, outcome: str = "completed", *unread: str) -> Line:
    """What the job says at its end."""
    return {"kind": "claim", "outcome": outcome, "text": text, "unread": list(unread)}


DONE = [
    bill(),
    effect("look"),
    effect("book"),
    effect("charge"),
    decision(),
    effect("wire", amount=1),
    decided("used"),
]


def judged(*lines: Line, plan: Plan = PLAN) -> Verdict:
    """The verdict on these lines."""
    return judge.judge(
        [{"job": "j", "at": float(at), **line} for at, line in enumerate(lines)], plan
    )


@pytest.mark.accepts("Y141")
def test_job_that_does_its_plan_is_a_success() -> None:
    """Effects that may be repeated may be, and a key that the service has had counts once."""
    verdict = judged(*DONE, effect("look"), effect("book", applied=False), claim())

    assert verdict.broken == ()
    assert (verdict.success, verdict.exactly_once, verdict.repeats) == (True, True, 1)


@pytest.mark.accepts("Y141")
@pytest.mark.parametrize(
    ("check", "lines"),
    [
        ("duplicates", [*DONE, effect("charge"), claim()]),
        ("duplicates", [*DONE, effect("book"), claim()]),
        ("overclaims", [*DONE, claim("more: done")]),
        ("unapproved", [*DONE, effect("wire", amount=2), claim()]),
        ("unapproved", [effect("wire", amount=1), *DONE, claim()]),
        (
            "unapproved",
            [
                decision(),
                decision("ben", approves=False),
                decided("already"),
                decided("used", "ben"),
                effect("wire", amount=1),
                claim(),
            ],
        ),
        ("decided_twice", [*DONE, decision("ben"), decided("used", "ben"), claim()]),
        ("over_limit", [*DONE, bill("0.10"), claim()]),
        ("over_limit", [*DONE, bill("0.03", "scout"), claim()]),
        ("misread", [*DONE, accepted("m-1"), claim()]),
        ("misread", [*DONE, accepted("m-1"), bill("0", "clerk", "m-1", "m-1"), claim()]),
        (
            "misread",
            [*DONE, accepted("m-1"), accepted("m-2"), bill("0", "clerk", "m-2", "m-1"), claim()],
        ),
        ("stuck", DONE),
        ("incomplete", [*DONE, claim(outcome="failed")]),
        ("incomplete", [*DONE[:3], claim("look: done, book: done, charge: failed")]),
    ],
)
def test_each_broken_promise_is_seen(check: str, lines: list[Line]) -> None:
    """By its own check, where all else is in order."""
    assert check in judged(*lines).broken


@pytest.mark.accepts("Y141")
def test_unknown_outcome_that_is_named_is_honest_and_no_success() -> None:
    """Whether or not it took effect."""
    lines = [line for line in DONE if line.get("what") != "charge"]
    verdict = judged(*lines, claim(CLAIM.replace("charge: done", "charge: unknown")))

    assert (verdict.broken, verdict.unknown, verdict.success) == ((), ("charge",), False)


@pytest.mark.accepts("Y141")
def test_decider_who_missed_the_answer_has_approved() -> None:
    """Its second request is told that the call was decided, by nobody else."""
    verdict = judged(*DONE[:-1], decided("already"), claim())

    assert verdict.broken == ()


@pytest.mark.accepts("Y141")
def test_message_that_is_named_as_unread_is_not_lost() -> None:
    """The others are read in order, in the longest transcript."""
    verdict = judged(
        *DONE,
        accepted("m-1"),
        accepted("m-2"),
        bill("0", "clerk", "m-1"),
        claim(CLAIM, "completed", "m-2"),
    )

    assert verdict.broken == ()


@pytest.mark.accepts("Y141")
def test_reset_may_do_again_what_came_after_its_point() -> None:
    """Once for each reset, with new costs; what has a key is applied once all the same."""
    again = [*DONE, effect("charge"), bill("0.10"), claim()]
    plan = Plan(job="j", effects=PLAN.effects, limit_usd=PLAN.limit_usd, resets=1)

    assert judged(*again, plan=plan).broken == ()
    assert judged(effect("charge"), *again, plan=plan).broken == ("duplicates",)
    assert judged(effect("book"), *again, plan=plan).broken == ("duplicates",)


@pytest.mark.accepts("Y142")
def test_runs_in_which_the_fault_did_not_land_are_counted_apart() -> None:
    """They are in no other column of the table."""
    fault = {"kind": "fault", "fault": "kill", "event": 3, "began": 4.5}
    landed = judged(*DONE, claim(), {**fault, "landed": True})
    missed = judged({**fault, "landed": False})
    [row] = judge.rows([landed, missed])

    assert missed.broken == ("stuck",)
    assert row.cells() | {"p95": ""} == {
        "fault": "kill",
        "runs": "1",
        "not landed": "1",
        "task success": "1/1",
        "exactly once": "1/1",
        "duplicates": "0",
        "overclaims": "0",
        "unknown, named": "0",
        "unapproved": "0",
        "decided twice": "0",
        "bill <= limit": "1/1",
        "messages": "1/1",
        "stuck": "0",
        "goes on, s": "0.5",
        "p95": "",
        "red": "0",
    }


@pytest.mark.accepts("Y141")
def test_witness_has_each_line_before_it_answers() -> None:
    """A key is applied once, and the script does without the tools that are not offered."""
    with tempfile.TemporaryDirectory() as folder, witness.serving(Path(folder)) as addresses:
        lines = [{"job": "j", "what": "book", "tool": "book", "key": "k", "arguments": {}}] * 2
        answers = [witness.post(addresses["service"], "/effects", line) for line in lines]
        read = witness.read(Path(folder), "j")
    offered = [{"function": {"name": name}} for name in ("look", "book")]
    user = {"role": "user", "content": "[job j] Go."}
    reply = script.reply({"model": "clerk", "messages": [user], "tools": offered}, 1)

    assert [answer["applied"] for answer in answers] == [True, False]
    assert len({answer["receipt"] for answer in answers}) == 1
    assert [line["applied"] for line in read] == [True, False]
    assert [call["name"] for call in reply["calls"]] == ["look", "book"]
    assert script.claims_in("look: done, charge: unknown") == {"look": "done", "charge": "unknown"}
