"""Tools make effects while their service fails, and the ledger of the service is the witness."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.effects.behaviours import Behaviour, Claim
from benchmarks.effects.episodes import many, worker_of
from benchmarks.effects.grading import Graded
from benchmarks.effects.templates import BY_TOOL, TEMPLATES, Case, cases
from benchmarks.effects.tools import (
    BOTH,
    CALL_KEY,
    EFFECT_KEY,
    NO_KEY,
    READ_BACK,
    STOPPED,
    Configuration,
)
from perdure.testing import Fault

from ...conftest import Runtime

SOME = [
    *cases(
        [Fault.TIMEOUT_POST, Fault.TIMEOUT_LATE, Fault.PARTIAL_TIMEOUT, Fault.CUT_POST],
        [BY_TOOL["pay"], BY_TOOL["order"], BY_TOOL["refund"]],
    )
]
ALL = [*cases(tuple(Fault), TEMPLATES)]
PAYMENT = [Case(BY_TOOL["pay"], Fault.TIMEOUT_POST)]
by_cases = pytest.mark.parametrize(
    "chosen", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"]
)


async def seen(
    runtime: Runtime,
    configuration: Configuration,
    behaviour: Behaviour,
    chosen: Sequence[Case],
) -> list[Graded]:
    async with runtime(worker_of([configuration])) as client:
        episodes = await many(client, configuration, [behaviour], chosen)
    assert len(episodes) == len(chosen)
    assert not [one for one in episodes if one.overclaims]
    return episodes


def doubled(episodes: Sequence[Graded]) -> set[Fault]:
    return {one.case.fault for one in episodes if one.verdict.duplicates}


@pytest.mark.slow
@by_cases
@pytest.mark.accepts("Y146")
@pytest.mark.parametrize("configuration", [NO_KEY, STOPPED], ids=lambda one: one.name)
async def test_perdure_repeats_no_call_by_itself(
    runtime: Runtime, configuration: Configuration, chosen: list[Case]
) -> None:
    """A tool that it has stopped has an unknown outcome."""
    episodes = await seen(runtime, configuration, Behaviour.TELL, chosen)

    assert not [one for one in episodes if one.repeats]
    assert doubled(episodes) <= {Fault.DUPLICATE_DELIVERY}
    unanswered = [one for one in episodes if one.case.fault.shows == "nothing"]
    assert {one.claim for one in unanswered} == {Claim.UNKNOWN}
    assert not [one for one in unanswered if one.denials]


@by_cases
@pytest.mark.accepts("Y146")
async def test_key_of_the_effect_is_used_once_however_often_the_model_calls(
    runtime: Runtime, chosen: list[Case]
) -> None:
    """Only a service that does nothing is not done with."""
    episodes = await seen(runtime, EFFECT_KEY, Behaviour.BLIND, chosen)

    failed = {one.case.fault for one in episodes if not one.verdict.exactly_once}
    assert failed <= {Fault.OUTAGE}


@pytest.mark.slow
@by_cases
@pytest.mark.accepts("Y146")
async def test_read_back_after_a_while_makes_up_for_keys(
    runtime: Runtime, chosen: list[Case]
) -> None:
    """Except for what takes effect after the time to settle, or is delivered twice."""
    episodes = await seen(runtime, READ_BACK, Behaviour.BLIND, chosen)

    assert doubled(episodes) <= {Fault.TIMEOUT_LATE_TAIL, Fault.DUPLICATE_DELIVERY}
    failed = {one.case.fault for one in episodes if not one.verdict.exactly_once}
    assert failed - doubled(episodes) <= {Fault.OUTAGE}


@pytest.mark.slow
async def test_both_need_no_second_call_of_the_model(runtime: Runtime) -> None:
    """Perdure reads back, and makes the call again with its key."""
    chosen = [Case(BY_TOOL["order"], fault) for fault in (Fault.TIMEOUT_PRE, Fault.PARTIAL_TIMEOUT)]
    episodes = await seen(runtime, BOTH, Behaviour.TELL, chosen)

    assert {(one.did, one.claim) for one in episodes} == {("once", Claim.DONE)}


@pytest.mark.slow
@pytest.mark.parametrize("configuration", [NO_KEY, CALL_KEY], ids=lambda one: one.name)
async def test_a_second_payment_is_seen(runtime: Runtime, configuration: Configuration) -> None:
    """It would otherwise be no proof that there is none. A key of the call does not prevent it."""
    [episode] = await seen(runtime, configuration, Behaviour.BLIND, PAYMENT)

    assert (episode.did, episode.claim) == ("twice", Claim.DONE)
    assert episode.is_overclaim
    assert episode.repeats == 0
