"""The stub service fails as its modes say, and its ledger has what it really did."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.testing import Fault, MadeEffect, StubService, Terms, grade, read_effects

WANTED = {"invoice": 7}
BOTH = [{"invoice": 7}, {"invoice": 8}]
SOON = Terms(late_s=0.3, tail_s=(0.2, 0.4), retry_after_s=0.2)
HELD_S = 0.15
"""The timeout of a caller whose request gets no answer."""
PATIENT_S = 10.0
"""The timeout where there is an answer, which is late on a busy machine."""
CLOCKS_S = 0.02
"""The clock of effects may differ so much from the one that delays are measured by."""
LIMBO = {
    "none": ("201", 1),
    "timeout_pre": ("ReadTimeout", 0),
    "timeout_post": ("ReadTimeout", 1),
    "timeout_late": ("ReadTimeout", 0),
    "timeout_late_tail": ("ReadTimeout", 0),
    "http500_pre": ("500", 0),
    "http500_post": ("500", 1),
    "partial_timeout": ("ReadTimeout", 1),
    "duplicate_delivery": ("201", 2),
    "http503_transient": ("503", 0),
    "rate_limit": ("429", 0),
    "outage": ("503", 0),
    "schema_drift": ("400", 0),
}
"""What a caller sees and what the service has done when it does, by the table of the paper."""
OURS = {"cut_pre": ("ReadError", 0), "cut_post": ("ReadError", 1), "cut_late": ("ReadError", 0)}


def pay(
    service: StubService, body: object = WANTED, key: str = "", timeout: float = PATIENT_S
) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    with httpx.Client(timeout=timeout, trust_env=False, verify=False) as client:
        return client.post(f"{service.url}/payments", json=body, headers=headers)


def hangs(name: str) -> bool:
    """Whether the first request in this mode gets no answer."""
    return Fault(name).shows == "nothing"


def seen(
    service: StubService, body: object = WANTED, key: str = "", *, is_held: bool = False
) -> str:
    """What the caller sees, a status or the name of an exception, once the service has acted."""
    before = service.writes
    try:
        return str(pay(service, body, key, HELD_S if is_held else PATIENT_S).status_code)
    except httpx.TransportError as error:
        eventually(lambda: service.writes > before)
        service.grade("payments", [])  # after the request, which has the lock
        return type(error).__name__


def eventually(is_true: Callable[[], bool]) -> None:
    """Wait until it is true."""
    until = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.02)


def listed(service: StubService, **wanted: Any) -> list[dict[str, Any]]:
    with httpx.Client(trust_env=False, verify=False, timeout=60) as client:
        answer = client.get(f"{service.url}/payments", params=wanted)
        items: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
        return items


def body_for(name: str) -> object:
    return BOTH if name == "partial_timeout" else WANTED


@pytest.mark.accepts("Y145")
@pytest.mark.parametrize("name", [*LIMBO, *OURS])
def test_mode_shows_and_does_what_its_name_says(name: str) -> None:
    shown, made = {**LIMBO, **OURS}[name]

    with StubService(name, terms=Terms(tail_s=(1_000, 2_000))) as service:
        assert seen(service, body_for(name), is_held=hangs(name)) == shown
        assert len(service.effects) == made
        assert len(listed(service, invoice=7)) == (1 if name == "partial_timeout" else made)


def test_every_mode_is_in_the_tables() -> None:
    assert {*LIMBO, *OURS} == {*Fault}


@pytest.mark.accepts("Y145")
def test_modes_that_show_the_same_cannot_be_told_apart() -> None:
    """Neither by the error nor by the text of the answer."""
    answers = {}
    for name in ("http500_pre", "http500_post"):
        with StubService(name) as service:
            answer = pay(service)
            headers = {key: value for key, value in answer.headers.items() if key != "date"}
            answers[name] = (answer.status_code, answer.content, headers)

    assert answers["http500_pre"] == answers["http500_post"]
    assert {fault for fault in Fault if fault.is_ambiguous} == {
        fault for fault in Fault if fault.shows in ("nothing", "a reset", "500")
    }


@pytest.mark.accepts("Y145")
@pytest.mark.parametrize("name", ["timeout_late", "timeout_late_tail", "cut_late"])
def test_late_request_takes_effect_after_its_caller_has_gone(name: str) -> None:
    shortest_s = min(SOON.late_s, *SOON.tail_s)
    with StubService(name, terms=SOON) as service:
        asked_at = time.time()
        seen(service, is_held=hangs(name))
        eventually(lambda: len(service.effects) == 1)
    [effect] = service.effects

    assert effect.source == "late"
    assert effect.at - asked_at > shortest_s - CLOCKS_S


def test_late_requests_take_effect_when_the_service_ends() -> None:
    with StubService("timeout_late", terms=Terms(late_s=1_000)) as service:
        seen(service, is_held=True)
        assert (service.effects, listed(service)) == ([], [])

    assert [effect.source for effect in service.effects] == ["late"]


def test_delays_of_the_tail_are_those_of_the_paper() -> None:
    """From 40 seconds to 2 hours, with a median of nine minutes."""
    delays = sorted(Terms(seed=seed).delay_s(Fault.TIMEOUT_LATE_TAIL) for seed in range(501))

    assert 40 <= delays[0] < 60
    assert 5_000 < delays[-1] <= 7_200
    assert 400 < delays[250] < 750
    assert Terms().delay_s(Fault.TIMEOUT_LATE) == 90


@pytest.mark.table(4)
@pytest.mark.accepts("Y145")
@pytest.mark.parametrize("name", [*LIMBO, *OURS])
def test_one_key_makes_one_effect_whatever_fails(name: str) -> None:
    """The key goes with every try: a batch goes on, a late request finds its effect made."""
    body = body_for(name)

    with StubService(name, terms=SOON) as service:
        last = ""
        for number in range(6):
            last = seen(service, body, key="k1", is_held=hangs(name) and number == 0)
            if last == "400":
                body = {"invoice_id": 7}
            if last == "201":
                break
            time.sleep(0.1)
        service.settle()

        wanted = BOTH if name == "partial_timeout" else [WANTED]
        verdict = service.grade("payments", wanted)
        assert verdict.duplicates == 0
        assert verdict.exactly_once is (name != "outage")
        assert last == ("503" if name == "outage" else "201")


@pytest.mark.accepts("Y145")
@pytest.mark.parametrize("name", ["timeout_post", "http500_post", "cut_post", "timeout_late"])
def test_ignored_key_or_another_key_makes_a_second_effect(name: str) -> None:
    for terms, keys in (
        (Terms(late_s=0.2, honours_keys=False), ("k1", "k1")),
        (Terms(late_s=0.2), ("k1", "k2")),
    ):
        with StubService(name, terms=terms) as service:
            for number, key in enumerate(keys):
                seen(service, key=key, is_held=hangs(name) and number == 0)
            service.settle()
            assert [effect.key for effect in service.effects].count("k1") == keys.count("k1")
            assert service.grade("payments", [WANTED]).duplicates == 1


def test_key_with_the_same_fields_gets_the_first_answer() -> None:
    with StubService() as service:
        first, again, other = (
            pay(service, key="k1"),
            pay(service, key="k1"),
            pay(service, {"invoice": 8}, key="k1"),
        )

        assert again.json() == first.json() == {"invoice": 7, "id": "payments-1"}
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert other.status_code == 409
        assert len(service.effects) == 1


def test_second_effect_with_the_same_unique_field_is_refused() -> None:
    """As a refund that was made already; the refusal uses up no fault."""
    with StubService("http500_post", nth=2, terms=Terms(unique=["invoice"])) as service:
        assert [seen(service), seen(service), seen(service, {"invoice": 8})] == [
            "201",
            "409",
            "500",
        ]
        assert "payments-1" in pay(service).text
        assert service.grade("payments", BOTH).exactly_once


@pytest.mark.parametrize(("lag_s", "count"), [(0.0, 1), (1_000.0, 0)])
def test_reading_back_shows_what_is_older_than_the_lag(lag_s: float, count: int) -> None:
    with StubService(terms=Terms(lag_s=lag_s)) as service:
        pay(service)

        assert len(listed(service, invoice=7)) == count
        assert listed(service, invoice=8) == []


def test_reading_back_is_late() -> None:
    with StubService(terms=Terms(lag_s=0.3)) as service:
        pay(service)
        eventually(lambda: len(listed(service, invoice=7)) == 1)

        assert time.time() - service.effects[0].at > 0.3 - CLOCKS_S


def test_reading_back_may_be_impossible() -> None:
    with StubService(terms=Terms(lag_s=math.inf)) as service:
        pay(service)

        assert (
            httpx.get(f"{service.url}/payments", trust_env=False, verify=False).status_code == 405
        )


def test_service_that_is_down_answers_nothing_else() -> None:
    with StubService() as service:
        service.is_down = True
        assert seen(service) == "503"
        assert (
            httpx.get(f"{service.url}/payments", trust_env=False, verify=False).status_code == 503
        )
        service.is_down = False
        assert seen(service) == "201"


def test_faults_that_last_and_those_that_do_not() -> None:
    """`nth` names the write that fails first."""
    found = {}
    for name in ("http503_transient", "outage", "rate_limit", "timeout_pre"):
        with StubService(name, nth=2, terms=Terms(retry_after_s=1_000)) as service:
            found[name] = [
                seen(service, is_held=hangs(name) and number == 2) for number in (1, 2, 3, 4)
            ]

    assert found == {
        "http503_transient": ["201", "503", "201", "201"],
        "outage": ["201", "503", "503", "503"],
        "rate_limit": ["201", "429", "429", "429"],
        "timeout_pre": ["201", "ReadTimeout", "201", "201"],
    }


def test_rate_limit_says_for_how_long() -> None:
    """In whole seconds, rounded up."""
    with StubService("rate_limit", terms=Terms(retry_after_s=1_000)) as service:
        assert pay(service).headers["retry-after"] == "1000"
    with StubService("rate_limit", terms=Terms(retry_after_s=0.2)) as service:
        assert pay(service).headers["retry-after"] == "1"
        eventually(lambda: seen(service) == "201")
        assert seen(service) == "201"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([7], (True, True, 0, 0)),
        ([], (False, False, 0, 0)),
        ([7, 7, 7], (True, False, 2, 0)),
        ([7, 9], (False, False, 0, 1)),
    ],
)
def test_grade_counts_what_was_done(
    fields: list[int], expected: tuple[bool, bool, int, int]
) -> None:
    effects = [
        MadeEffect(
            f"payments-{number}", "payments", {"invoice": invoice, "usd": 5}, "", "request", 0
        )
        for number, invoice in enumerate(fields)
    ]
    mail = MadeEffect("mails-1", "mails", {"invoice": 7}, "", "request", 0)

    verdict = grade([*effects, mail], "payments", [WANTED])

    assert (
        verdict.success,
        verdict.exactly_once,
        verdict.duplicates,
        verdict.unwanted,
    ) == expected
    assert verdict.is_overclaim(claims_success=True) is not verdict.exactly_once
    assert not verdict.is_overclaim(claims_success=False)


def test_process_logs_its_effects_before_it_answers(tmp_path: Path) -> None:
    """So the log has them if the process is killed."""
    log = tmp_path / "effects.jsonl"
    command = [sys.executable, "-m", "perdure.testing.stub_service", "--log", str(log)]
    environment: Mapping[str, str] = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "--fault", "http500_post"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        answer = httpx.post(
            f"{url}/payments",
            json=WANTED,
            headers={"Idempotency-Key": "k1"},
            timeout=PATIENT_S,
            trust_env=False,
            verify=False,
        )
        process.kill()

    [effect] = read_effects(log)
    assert answer.status_code == 500
    assert (effect.kind, effect.fields, effect.key) == ("payments", WANTED, "k1")
    assert effect.source == "request"
