"""The trace of a turn, and telemetry settings that are fixed before a turn runs."""

import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from perdure import errors
from perdure.temporal.trace_ids import TurnSpan, memo_of_caller, span_of_turn
from perdure.turn.child import Child
from perdure.turn.keys import ChildKey
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary, TurnRequest
from perdure.values.budgets import Spending
from perdure.values.reports import ChildReport, Outcome
from perdure.values.tasks import Task
from perdure.worker.settings import WorkerSettings
from perdure.worker.telemetry import otlp
from perdure.worker.telemetry.telemetry import Telemetry, _alone

CALLER = f"00-{0xABC:032x}-{0xDEF:016x}-01"


# --- ids


def test_ids_follow_from_the_turn_and_its_first_run() -> None:
    """The same in every process; another run of the same id is another trace."""
    first, again, anew = (
        span_of_turn("ticket-1", "run-1"),
        span_of_turn("ticket-1", "run-1"),
        span_of_turn("ticket-1", "run-2"),
    )

    assert first == again
    assert {first.trace_id, first.span_id}.isdisjoint({anew.trace_id, anew.span_id})
    assert 0 < first.trace_id < 2**128
    assert 0 < first.span_id < 2**64
    assert (first.parent_id, first.sampled) == (0, None)


def test_ids_are_a_promise_between_releases() -> None:
    """Workers of two releases share a queue, and the spans of a turn must match."""
    assert (
        span_of_turn("ticket-1", "run-1").traceparent()
        == "00-b24b783fa4351d37fbc6610f85aa19dd-49fccaca8c9aa84e-"
    )


def test_parts_of_an_id_are_kept_apart() -> None:
    """Different turns never have the same id because of where one part ends."""
    assert span_of_turn("a", "b\nc") != span_of_turn("a\nb", "c")


def test_child_is_in_the_trace_of_its_root() -> None:
    """With its own span."""
    root = span_of_turn("ticket-1", "run-1")
    child = span_of_turn("ticket-1/writer-1", "run-2", root=("ticket-1", "run-1"))

    assert child.trace_id == root.trace_id
    assert child.span_id != root.span_id


def test_turn_that_somebody_started_within_a_span_goes_on_in_that_trace() -> None:
    """The span is its parent, and its sampling decision applies."""
    own = span_of_turn("ticket-1", "run-1")

    assert span_of_turn("ticket-1", "run-1", traceparent=CALLER) == TurnSpan(
        0xABC, own.span_id, 0xDEF, sampled=True
    )
    assert span_of_turn("ticket-1", "run-1", traceparent=CALLER[:-1] + "2").sampled is False


@pytest.mark.parametrize("caller", ["", CALLER])
def test_child_that_is_told_its_parent_nests_in_it(caller: str) -> None:
    """In the trace of the parent; a sampler's decision applies in every process."""
    parent = span_of_turn("ticket-1", "run-1", traceparent=caller)
    child = span_of_turn(
        "ticket-1/writer-1",
        "run-2",
        root=("ticket-1", "another run"),
        traceparent=parent.traceparent(),
    )

    assert (child.trace_id, child.parent_id, child.sampled) == (
        parent.trace_id,
        parent.span_id,
        parent.sampled,
    )


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "00-1-2-01",
        CALLER + "0",
        CALLER.upper(),
        f"00-{0:032x}-{1:016x}-01",
        f"00-{1:032x}-{0:016x}-01",
        None,
        7,
        {"a": 1},
        "\x00",
    ],
)
def test_malformed_traceparent_is_as_none(traceparent: Any) -> None:
    """The starter of a workflow may write anything into its memo."""
    assert span_of_turn("ticket-1", "run-1", traceparent=traceparent) == span_of_turn(
        "ticket-1", "run-1"
    )


# --- the caller


def test_memo_of_a_caller_names_its_span() -> None:
    """In the W3C form; none if there is no span."""
    with (
        TracerProvider(shutdown_on_exit=False)
        .get_tracer("caller")
        .start_as_current_span("caller") as span
    ):
        within = memo_of_caller()
    context = span.get_span_context()

    assert within == {"perdure_trace": f"00-{context.trace_id:032x}-{context.span_id:016x}-01"}
    assert memo_of_caller() == {}


@pytest.mark.slow
def test_asking_for_the_caller_does_not_import_opentelemetry() -> None:
    """In a process that has not imported it, there is no span."""
    code = (
        "import sys; from perdure.temporal.trace_ids import memo_of_caller; print(memo_of_caller(),"
        " 'opentelemetry' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "{} False"


def test_worker_is_imported_without_opentelemetry() -> None:
    """Disabled telemetry costs nothing."""
    code = (
        "import sys, perdure.worker, perdure.worker.commands; print('opentelemetry' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


# --- configuration


def test_tracer_provider_must_be_of_the_sdk() -> None:
    """Another one cannot assign the ids of spans, and the global one is a placeholder until it is
    set.
    """
    with pytest.raises(
        errors.ConfigurationError,
        match="needs a TracerProvider of opentelemetry-sdk, not ProxyTracerProvider",
    ):
        Telemetry(tracer_provider=trace.ProxyTracerProvider())


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"ENDPOINT": "http://collector:4318"}, True),
        ({"TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"METRICS_ENDPOINT": "http://collector:4318/v1/metrics"}, True),
        ({"ENDPOINT": ""}, False),
    ],
)
def test_environment_asks_for_telemetry_by_an_endpoint(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], wanted: bool
) -> None:
    """For all signals or for one; `OTEL_SDK_DISABLED` turns all of it off."""
    for name, value in environment.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    asked = WorkerSettings.from_environment().otlp
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    assert (asked, WorkerSettings.from_environment().otlp) == (wanted, False)


async def test_signal_that_the_environment_does_not_want_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `none` as the exporter of a signal; then no package is needed either."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")

    async with otlp.from_environment() as telemetry:
        assert telemetry == Telemetry()


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("", False),
        ("true", True),
        ("no_content", False),
        ("SPAN_ONLY", True),
        ("event_only", False),
    ],
)
async def test_environment_may_ask_for_what_is_said(
    monkeypatch: pytest.MonkeyPatch, value: str, wanted: bool
) -> None:
    """With the variable of OpenTelemetry's own instrumentations."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)

    async with otlp.from_environment() as telemetry:
        assert telemetry == Telemetry(content=wanted)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "perdure"),
        ({"OTEL_SERVICE_NAME": "agents"}, "agents"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=desk,team=blue"}, "desk"),
    ],
)
def test_service_is_called_perdure_unless_it_has_a_name(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], name: str
) -> None:
    """`unknown_service` would not be useful."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)

    assert otlp._resource().attributes["service.name"] == name


# --- the metrics of a turn


def test_money_below_a_terminated_delegate_is_counted_once() -> None:
    """Only what no other turn counts: its own calls, and those of its delegates that were
    terminated, too.
    """
    below = [
        ChildReport(turn_id="a", agent="a", outcome=Outcome.CANCELLED, spent=usd(4)),
        ChildReport(
            turn_id="b",
            agent="b",
            outcome=Outcome.TERMINATED,
            spent=usd(20),
            children=(
                ChildReport(turn_id="c", agent="c", outcome=Outcome.COMPLETED, spent=usd(7)),
            ),
        ),
    ]
    request = TurnRequest(agent="x", task=Task(content="go"))
    lost = Child(
        ChildKey(1, 1, 1),
        "lost",
        request,
        usd(100),
        ended=True,
        read=summary(Outcome.TERMINATED, 50, below),
    )
    late = Child(
        ChildKey(1, 2, 1), "late", request, usd(100), ended=True, read=summary(Outcome.CANCELLED, 8)
    )
    told = Child(
        ChildKey(1, 3, 1),
        "told",
        request,
        usd(100),
        ended=True,
        summary=summary(Outcome.COMPLETED, 16),
    )
    state = TurnState(request=request, children=(lost, late, told))

    alone = _alone(state, summary(Outcome.COMPLETED, 3 + 50 + 8 + 16))

    assert alone.spent == usd(3 + 50 - 4 - 7)


def usd(amount: int) -> Spending:
    return Spending(usd=Decimal(amount))


def summary(outcome: Outcome, amount: int, children: Sequence[ChildReport] = ()) -> Summary:
    return Summary(agent="x", outcome=outcome, spent=usd(amount), children=tuple(children))
