"""The parts of the effects benchmark: which episodes there are, the grader, and the model."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.effects.__main__ import merged
from benchmarks.effects.behaviours import FIND, Behaviour, Claim, next_move
from benchmarks.effects.episodes import serving
from benchmarks.effects.grading import MEASURES, Statement, counted, graded
from benchmarks.effects.kills import Job as KilledJob
from benchmarks.effects.kills import Round
from benchmarks.effects.peers import killed
from benchmarks.effects.peers.jobs import (
    DEFAULTS,
    FIND_TOOL,
    KEY,
    NO_END,
    SETTINGS,
    WRITE_TOOL,
    Job,
    Seen,
    failure,
    may_repeat,
    port_of,
)
from benchmarks.effects.peers.rows import MODULES
from benchmarks.effects.peers.rows import ROWS as PEERS
from benchmarks.effects.templates import BY_TOOL, MODES, TEMPLATES, Case, Record, cases
from benchmarks.effects.tools import GATE, ServiceRefused
from perdure import ToolCall, ToolResult
from perdure.testing import Fault, MadeEffect, Reply
from tests.support.docs.measured import PEER_SETTINGS, effect_tables

from ..conftest import eventually

PAY, ORDER, REFUND = BY_TOOL["pay"], BY_TOOL["order"], BY_TOOL["refund"]
PAYMENT = PAY.records[0]
LOST = "the answer was lost; whether it took effect is unknown"


def made(record: Record = PAYMENT, kind: str = "payments", source: str = "request") -> MadeEffect:
    return MadeEffect("x-1", kind, record, "", source, 0.0)


def said(outcome: str, record: Record = PAYMENT) -> Statement:
    return Statement(outcome, [record])


def counts(effects: list[MadeEffect], statements: list[Statement], claim: str) -> dict[str, int]:
    """What is counted of one payment, without what is zero."""
    case = Case(PAY, Fault.TIMEOUT_POST)
    episode = graded(case, Behaviour.BLIND, effects, statements, claim)
    return {name: count for name, count in counted([episode]).items() if count}


def test_there_are_as_many_episodes_as_in_the_paper() -> None:
    """Twelve tasks in thirteen modes, of which 143 fit together."""
    assert (len(TEMPLATES), len(MODES), len([*cases()])) == (12, 13, 143)
    assert Case(REFUND, Fault.DUPLICATE_DELIVERY) not in [*cases()]
    assert Case(PAY, Fault.PARTIAL_TIMEOUT) not in [*cases()]


def test_a_payment_that_is_made_once_counts_as_nothing_else() -> None:
    """It is the only good end."""
    assert counts([made()], [said("done")], Claim.DONE) == {"exactly once": 1, "success": 1}
    assert counts([made()], [said("verified")], Claim.DONE) == {"exactly once": 1, "success": 1}


@pytest.mark.parametrize(
    ("effects", "statements", "claim", "expected"),
    [
        pytest.param(
            [made(), made()],
            [said("done"), said("done")],
            Claim.DONE,
            {"success": 1, "duplicates": 1, "overclaims": 1},
            id="the model pays twice",
        ),
        pytest.param(
            [made(), made()],
            [said("done")],
            Claim.DONE,
            {"success": 1, "duplicates": 1, "overclaims": 1, "repeated": 1, "denied, but done": 1},
            id="one call pays twice",
        ),
        pytest.param(
            [made(), made(source="redelivery")],
            [said("done")],
            Claim.DONE,
            {"success": 1, "duplicates": 1, "overclaims": 1},
            id="a request is delivered twice",
        ),
        pytest.param(
            [],
            [said("verified")],
            Claim.DONE,
            {"overclaims": 1, "by the outcome": 1},
            id="a result claims too much",
        ),
        pytest.param(
            [], [said("failed")], Claim.DONE, {"overclaims": 1}, id="the model claims too much"
        ),
        pytest.param(
            [made()],
            [said("failed")],
            Claim.NOT_DONE,
            {"exactly once": 1, "success": 1, "denied, but done": 1},
            id="a result denies what was done",
        ),
        pytest.param(
            [made()],
            [said("unknown")],
            Claim.UNKNOWN,
            {"exactly once": 1, "success": 1, "unknown named": 1},
            id="the unknown is named",
        ),
    ],
)
def test_grader_sees_what_is_planted(
    effects: list[MadeEffect], statements: list[Statement], claim: str, expected: dict[str, int]
) -> None:
    """Each measure is one that a fault can change."""
    assert counts(effects, statements, claim) == expected
    assert set(expected) <= set(MEASURES)


def test_what_a_result_lists_as_missing_is_not_claimed() -> None:
    """A batch that broke off was read back."""
    first, *others = ORDER.records
    content = json.dumps({"made": [first], "missing": others}) + "\n[It was looked up.]"

    statement = Statement.of(ORDER, "verified", ORDER.records, content)

    assert statement.records == [first]


def result(content: str, *, name: str = "pay", is_error: bool = True) -> ToolResult:
    return ToolResult(call_id="c", name=name, content=content, is_error=is_error)


def found(made: list[Record], missing: list[Record]) -> ToolResult:
    content = json.dumps({"made": made, "missing": missing})
    return result(content, name=FIND + "pay", is_error=False)


def move(behaviour: Behaviour, *results: ToolResult) -> tuple[str, Any]:
    """The tool that is called next and its records, or what is said."""
    return _shown(next_move(PAY, behaviour, results))


def _shown(reply: Reply) -> tuple[str, Any]:
    assert reply.answer is not None
    parts = reply.answer.message.parts
    asked = [part for part in parts if isinstance(part, ToolCall)]
    if not asked:
        return "says", reply.answer.message.text
    return asked[0].name, json.loads(asked[0].arguments)["records"]


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (Behaviour.BLIND, ("pay", [PAYMENT])),
        (Behaviour.TELL, ("says", Claim.UNKNOWN)),
        (Behaviour.CAREFUL, (FIND + "pay", [PAYMENT])),
        (Behaviour.PATIENT, (FIND + "pay", [PAYMENT])),
    ],
)
def test_behaviours_differ_after_an_error(behaviour: Behaviour, expected: tuple[str, Any]) -> None:
    """They begin alike."""
    assert move(behaviour) == ("pay", [PAYMENT])
    assert move(behaviour, result(LOST)) == expected


def test_blind_stops_after_four_calls_and_says_what_the_last_one_said() -> None:
    """What was said before does not count."""
    assert move(Behaviour.BLIND, *[result(LOST)] * 3)[0] == "pay"
    assert move(Behaviour.BLIND, *[result(LOST)] * 4) == ("says", Claim.UNKNOWN)
    assert move(Behaviour.BLIND, *[result(LOST)] * 3, result("503")) == ("says", Claim.NOT_DONE)


def test_careful_calls_again_for_what_is_missing_only() -> None:
    """What is there is left alone."""
    nothing, there = found([], [PAYMENT]), found([PAYMENT], [])

    assert move(Behaviour.CAREFUL, result(LOST), nothing) == ("pay", [PAYMENT])
    assert move(Behaviour.CAREFUL, result(LOST), there) == ("says", Claim.DONE)


def test_a_field_with_a_new_name_has_it_in_the_next_call() -> None:
    """The meaning of the call is the same."""
    refused = result("400 unknown field 'invoice': it is named 'invoice_id' now")

    name, [record] = move(Behaviour.CAREFUL, refused)

    assert name == "pay"
    assert record == PAY.drifted(PAYMENT, to="invoice_id")
    assert PAY.original(record) == PAYMENT


def job(behaviour: Behaviour = Behaviour.CAREFUL, *, port: int = 1, kill: str = "") -> Job:
    return Job(KEY, behaviour, PAY, port, kill)


async def test_model_of_other_frameworks_moves_like_the_one_of_perdure() -> None:
    """It calls by two names, whatever the task, and its moves depend on what it has seen."""
    asked = job()

    first = await asked.next_move([])
    lost = Seen(first.call_id, WRITE_TOOL, failure("RemoteProtocolError", "no answer"))
    second = await asked.next_move([lost])
    nothing = Seen(second.call_id, FIND_TOOL, json.dumps({"made": [], "missing": [PAYMENT]}))
    third = await asked.next_move([lost, nothing])
    last = await asked.next_move([lost, nothing, Seen(third.call_id, WRITE_TOOL, "{}")])

    assert [first.tool, second.tool, third.tool] == [WRITE_TOOL, FIND_TOOL, WRITE_TOOL]
    assert json.loads(json.loads(first.arguments)["records"]) == [PAYMENT]
    assert (last.tool, last.text) == ("", Claim.DONE)
    assert [one.outcome for one in asked.statements()] == ["unknown", "done"]


async def test_a_call_without_a_result_denies_nothing() -> None:
    """So a framework that never answers is not said to have lied."""
    asked = job(Behaviour.BLIND)
    await asked.next_move([])

    assert [one.outcome for one in asked.statements()] == ["unknown"]


@pytest.mark.parametrize(
    ("error", "repeats", "is_unknown"),
    [
        (ServiceRefused("400 unknown field"), False, False),
        (ServiceRefused("409 it was made before"), False, False),
        (ServiceRefused("429 too many requests"), True, False),
        (ServiceRefused("500 internal server error"), True, True),
        (ServiceRefused("503 overloaded"), True, False),
        (ConnectionResetError("reset"), True, True),
    ],
)
def test_other_frameworks_repeat_and_name_what_they_can_know(
    error: Exception, *, repeats: bool, is_unknown: bool
) -> None:
    """Their best settings are those of a careful author."""
    text = failure(type(error).__name__, str(error))

    assert may_repeat(error) is repeats
    assert ("is unknown" in text) is is_unknown
    assert Seen("call_0", WRITE_TOOL, text).is_error


async def test_model_of_a_process_that_took_over_needs_only_what_is_shown() -> None:
    """The name of a job says all of it, so nothing has to be remembered."""
    asked = job(kill="in")
    first = await asked.next_move([])
    lost = Seen(first.call_id, WRITE_TOOL, failure("TimeoutError", "activity StartToClose timeout"))

    taken_over = Job.of(asked.name)

    assert taken_over == replace(asked, asked={}, results=())
    assert await taken_over.next_move([lost]) == await asked.next_move([lost])
    assert "/" not in asked.name  # it names a file


@pytest.mark.parametrize(
    ("moment", "fault"),
    [
        pytest.param("before", Fault.NONE, id="before"),
        pytest.param("in", Fault.TIMEOUT_POST, id="in"),
        pytest.param("after", Fault.NONE, id="after"),
    ],
)
async def test_a_kill_has_landed_if_the_ledger_and_the_call_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, fault: Fault
) -> None:
    """Neither a job that is not there yet, nor one that is beyond it counts."""
    monkeypatch.setenv(GATE, str(tmp_path))
    terms = PAY.terms(honours_keys=False, hold_s=60)
    async with serving(fault, terms) as service:
        asked = job(port=port_of(service), kill=moment)
        one = KilledJob(Behaviour.CAREFUL, Case(PAY, fault), service)
        jobs = Round(moment, tmp_path, [one])

        def is_in_call(pid: int = os.getpid()) -> bool:
            return killed.is_in_call(jobs, asked.name, one, pid)

        assert not is_in_call()
        first = asyncio.create_task(asked.write(json.dumps([PAYMENT])))
        await eventually(is_in_call, "it is in its call")
        assert is_in_call(pid=1) is (moment == "in")  # nothing of it is noted there
        first.cancel()
        await asked.write(json.dumps([PAYMENT]))
        assert not is_in_call()


def test_a_job_whose_kill_did_not_land_counts_apart() -> None:
    """It is in no other column."""
    case = Case(PAY, Fault.NONE)
    ends = {"done": True, NO_END: True, "ServiceRefused": True, "unknown": False}
    jobs = [
        killed.Killed(graded(case, Behaviour.BLIND, [made()], [], claim), has_landed)
        for claim, has_landed in ends.items()
    ]

    counted_ones = killed.figures(jobs, [Behaviour.BLIND])

    assert {name: of for name, of in counted_ones.items() if of != [0]} == {
        "exactly once": [3],
        "success": [3],
        "no end": [1],
        "error": [1],
        "not landed": [1],
    }


def test_every_row_of_other_frameworks_says_what_is_set() -> None:
    """What is measured is described on the page of the tables."""
    assert set(PEERS) <= set(PEER_SETTINGS)
    assert len(PEERS) == len(MODULES) * len(SETTINGS)
    assert not DEFAULTS.sends_key


def figures(rows: list[str], **more: Any) -> dict[str, Any]:
    measures: dict[str, Any] = {"exactly once": [1, 2, 3, 4]}
    modes = {"none": [1, 2, 3, 4]}
    return {
        "rows": dict.fromkeys(rows, measures),
        "modes": dict.fromkeys(rows, modes),
        "kills": {},
        **more,
    }


def test_rows_of_other_frameworks_are_kept_beside_ours(tmp_path: Any) -> None:
    """A run of either leaves the figures of the other as they are, with their versions."""
    file, [theirs, *_] = tmp_path / "effects.json", PEERS
    file.write_text(json.dumps(figures(["loop, no key"], date="2026-01-01")))
    peers, ends = {"versions": {"x": "1"}}, {theirs: {"no end": [0, 0, 0, 0]}}

    file.write_text(json.dumps(merged(figures([theirs], peers=peers, ends=ends), file)))
    again = merged(figures(["loop, no key"], date="2026-01-02"), file)

    assert [*again["rows"]] == ["loop, no key", theirs]
    assert (again["date"], again["peers"], again["ends"]) == ("2026-01-02", peers, ends)
    shown = "".join(effect_tables(again))
    assert shown.index("| none |") < shown.index("other frameworks") < shown.rindex("| none |")


def test_kills_of_other_frameworks_are_shown_after_ours(tmp_path: Any) -> None:
    """They have columns of their own, and leave the figures of episodes as they are."""
    file, [theirs, *_] = tmp_path / "effects.json", PEERS
    ours = {measure: [1, 2, 3, 4] for measure in MEASURES}
    before = {**figures(["loop, no key"]), "kills": {"loop, no key, in": ours}}
    file.write_text(json.dumps(before))
    other = killed.figures([], [Behaviour.BLIND])

    found = merged({"rows": {}, "modes": {}, "kills": {f"{theirs}, in": other}}, file)

    assert found["rows"] == before["rows"]
    assert [*found["kills"]] == ["loop, no key, in", f"{theirs}, in"]
    shown = "".join(effect_tables(found))
    assert shown.index("| loop, no key, in |") < shown.index("not landed |") < shown.index(theirs)
