"""Spans and metrics of turns, for OpenTelemetry.

`chat` and `execute_tool` are spans around activities, current while the provider or the tool runs.
Their parent, `invoke_agent`, is created when the turn ends, by the worker that runs its last
workflow task, with deterministic ids (`perdure.temporal.trace_ids`) and with the times of the turn.
Replays do not create spans. The span is created once the server has accepted that task, and
therefore exactly once; a crash at that moment may lose it.

Failures of telemetry are logged and do not affect turns. Spans end on the worker's loop and on
workflow threads, where nothing may wait for a collector: providers need a `BatchSpanProcessor`.
Only a worker with telemetry imports this module, and thereby OpenTelemetry.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
)
from temporalio import activity, exceptions, workflow
from temporalio.client import Client
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    WorkflowInterceptorClassInput,
)

from perdure import errors
from perdure.activities.provider import Heard, ModelRequest, Provider, listen
from perdure.errors import PerdureError
from perdure.temporal import names, trace_ids
from perdure.temporal.payloads import raw_input, unpack
from perdure.temporal.trace_ids import Origins, TraceOrigin, TurnSpan
from perdure.turn.child import Child
from perdure.turn.keys import ModelKey, ToolKey, parse_key
from perdure.turn.state import TurnState
from perdure.turn.wire import ModelCall, Summary, ToolOutput, ToolRun
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import NOTHING, Spending
from perdure.values.reports import ChildReport, Outcome
from perdure.worker.telemetry import names as by
from perdure.worker.telemetry.latest import is_opted_in
from perdure.worker.telemetry.names import Attributes, Instruments
from perdure.workflows import ancestors

logger = logging.getLogger("perdure")

_SCOPE = ("perdure", version("perdure"))
_FAILED = "telemetry failed; the turn goes on"


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The destination of the spans and metrics of a worker's turns.

    Attributes:
        tracer_provider: A provider of `opentelemetry-sdk`; without it there are no spans.
        meter_provider: Without it there are no metrics.
        content: Whether spans include prompts, answers, tool arguments and tool results.
        latest: Whether there are the names of the conventions for GenAI 0.1.0 as well; by default,
            if `OTEL_SEMCONV_STABILITY_OPT_IN` has `gen_ai_latest_experimental`.

    Raises:
        ConfigurationError: The tracer provider is not the SDK's, so that it cannot create spans
            with given ids.
    """

    tracer_provider: trace.TracerProvider | None = None
    meter_provider: MeterProvider | None = None
    content: bool = False
    latest: bool = field(default_factory=is_opted_in)

    def __post_init__(self) -> None:
        if self.tracer_provider is not None and not isinstance(
            self.tracer_provider, TracerProvider
        ):
            kind = type(self.tracer_provider).__name__
            raise errors.ConfigurationError(
                f"telemetry needs a TracerProvider of opentelemetry-sdk, not {kind}; set the global"
                " provider before you pass it"
            )

    def watching(self, providers: Mapping[str, Provider]) -> dict[str, Provider]:
        """Wrap providers so that requests are recorded in the span of the call."""
        return {name: _RecordedProvider(name, provider) for name, provider in providers.items()}

    def interceptor(self, client: Client, ours: Container[str]) -> Interceptor:
        """Return an interceptor that records the activities in `ours`."""
        return _Interceptor(_Recorder(self), Origins(client), ours)


class _Interceptor(Interceptor):
    def __init__(self, recorder: _Recorder, origins: Origins, ours: Container[str]) -> None:
        self._recorder = recorder
        self._origins = origins
        self._ours = ours

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        return _TracedActivities(next, self._recorder, self._origins, self._ours)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:  # noqa: A002 - the SDK's name
        """Provide the functions that workflows call; nothing is intercepted.

        `workflows/turn/log_events.py` uses them to report the end of a turn.
        """
        input.unsafe_extern_functions[trace_ids.TURN_ENDED] = self._recorder.turn_ended
        input.unsafe_extern_functions[trace_ids.WAIT_BEGAN] = self._recorder.wait_began


class _TracedActivities(ActivityInboundInterceptor):
    def __init__(
        self,
        inner: ActivityInboundInterceptor,
        recorder: _Recorder,
        origins: Origins,
        ours: Container[str],
    ) -> None:
        super().__init__(inner)
        self._recorder = recorder
        self._origins = origins
        self._ours = ours

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        key = parse_key(info.activity_id)
        if info.activity_type not in self._ours or key is None:
            return await super().execute_activity(input)
        origin = await self._origins.of(info)
        call = (
            self._recorder.begin(key, info, origin, input.args)
            if isinstance(key, ModelKey | ToolKey)
            else None
        )
        # factories, policies and hooks have no span, but their own spans belong to the turn
        if call is None:
            with trace.use_span(
                self._recorder.turn(origin), record_exception=False, set_status_on_exception=False
            ):
                return await super().execute_activity(input)
        _current.set(call)
        with trace.use_span(call.span, record_exception=False, set_status_on_exception=False):
            try:
                result = await super().execute_activity(input)
            except BaseException as error:
                self._recorder.failed(call, error)
                raise
            self._recorder.returned(call, result)
            return result


@dataclass
class _TracedCall:
    """A model call or a tool call in progress. `labels` are the labels of its metrics."""

    key: ModelKey | ToolKey
    span: Span
    labels: Attributes
    content: bool
    began: float = field(default_factory=time.monotonic)

    def asked(self, provider: str, request: ModelRequest) -> None:
        with _harmless():
            self.labels |= {by.PROVIDER: provider, by.MODEL: request.model}
            self.span.update_name(f"{by.CHAT} {request.model}")
            self.add(
                by.of_request(provider, request)
                | (by.content_of_request(request) if self.content else {})
            )

    def add(self, attributes: Attributes) -> None:
        self.span.set_attributes(attributes)


_current: ContextVar[_TracedCall | None] = ContextVar("perdure_call", default=None)


class _RecordedProvider:
    """A provider that records its requests in the current call."""

    def __init__(self, name: str, provider: Provider) -> None:
        self._name = name
        self._provider = provider

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self._record(request)
        return await self._provider.complete(request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        self._record(request)
        return await listen(self._provider, request, heard)

    async def close(self) -> None:
        await self._provider.close()

    def _record(self, request: ModelRequest) -> None:
        call = _current.get()
        if call is not None:
            call.asked(self._name, request)


class _Recorder:
    """Creates the spans and metrics of one worker."""

    def __init__(self, telemetry: Telemetry) -> None:
        provider = telemetry.tracer_provider
        self._content, self._latest = telemetry.content, telemetry.latest
        self._sampler = provider.sampler if isinstance(provider, TracerProvider) else None
        self._tracer: trace.Tracer = (
            provider.get_tracer(*_SCOPE) if provider else trace.NoOpTracer()
        )
        self._count = Instruments(
            (telemetry.meter_provider or NoOpMeterProvider()).get_meter(*_SCOPE),
            latest=telemetry.latest,
        )

    def begin(
        self, key: ModelKey | ToolKey, info: activity.Info, origin: TraceOrigin, args: Sequence[Any]
    ) -> _TracedCall | None:
        """Start the span of an activity; return None on failure."""
        try:
            return self._begin(key, info, origin, args)
        except Exception:
            logger.warning(_FAILED, exc_info=True)
            return None

    def turn(self, origin: TraceOrigin) -> Span:
        """Return the span of a turn for use as a parent."""
        try:
            return trace.get_current_span(
                self._remote(origin.span, origin.span.span_id, origin.agent)
            )
        except Exception:
            logger.warning(_FAILED, exc_info=True)
            return trace.INVALID_SPAN

    def returned(self, call: _TracedCall, result: Any) -> None:
        """Record the result of an activity.

        An error result is an error of the tool, even though the model may read it.
        """
        with _harmless():
            if isinstance(call.key, ModelKey):
                self._answered(call, unpack(result, ModelAnswer))
                return
            output = unpack(result, ToolOutput)
            call.add({by.RESULT: output.content} if self._content else {})
            self._end(call, by.TOOL_ERROR if output.is_error else "")

    def failed(self, call: _TracedCall, error: BaseException) -> None:
        with _harmless():
            self._end(call, _error_type(error))

    def turn_ended(
        self, state: TurnState, summary: Summary, error: PerdureError | None
    ) -> Callable[[], None]:
        """Prepare the record of a turn's end.

        It is called by the workflow, but not in a replay. The returned function writes the span and
        the metrics.
        """
        try:
            return self._end_of_turn(state, summary, error)
        except Exception:  # telemetry does not affect turns
            logger.warning(_FAILED, exc_info=True)
            return _nothing

    def wait_began(self, state: TurnState, kind: str) -> Callable[[], None]:
        """Prepare the record of a wait. The returned function counts it."""
        labels = by.of_agent(state.agent, state.request) if state.agent else {}

        def write() -> None:
            with _harmless():
                self._count.waits.add(1, {**labels, by.WAITS_FOR: kind})

        return write

    def _end_of_turn(
        self, state: TurnState, summary: Summary, error: PerdureError | None
    ) -> Callable[[], None]:
        info, ended_ns = workflow.info(), workflow.time_ns()
        labels = by.of_agent(state.agent, state.request) if state.agent else {}
        failed: Attributes = {by.ERROR: error.code} if error else {}
        alone, turn_span = _alone(state, summary), ancestors.span_of_this_turn()
        attributes = {
            **by.of_turn(info.workflow_id, info.run_id, state.request),
            **labels,
            **by.of_summary(summary),
            **failed,
        }
        began_ns = int(info.workflow_start_time.timestamp() * 1e6) * 1000
        if info.continued_run_id:  # the turn began in an earlier run
            began_ns = ended_ns - summary.duration_ms * 1_000_000

        def write() -> None:
            with _harmless():
                self._count.count_turn(alone, {**labels, **failed})
                span = self._turn(turn_span, summary.agent, attributes, began_ns)
                _mark_failed(span, error.code if error else "")
                span.end(ended_ns)

        return write

    def _begin(
        self, key: ModelKey | ToolKey, info: activity.Info, origin: TraceOrigin, args: Sequence[Any]
    ) -> _TracedCall:
        name, kind, labels = by.CHAT, SpanKind.CLIENT, by.of_chat(_asking(key, args, origin))
        attributes = by.of_call(key, info.workflow_id or "", info.workflow_run_id or "")
        if isinstance(key, ToolKey):
            run = unpack(raw_input(args), ToolRun)
            tool = run.tool or info.activity_type
            name = f"{by.EXECUTE_TOOL} {tool}"
            kind = SpanKind.INTERNAL
            labels = by.of_tool(run.owner, tool)
            attributes |= {
                by.CALL_ID: run.call_id,
                **({by.ARGUMENTS: run.arguments} if self._content else {}),
            }
        parent = self._remote(origin.span, origin.span.span_id, origin.agent)
        return _TracedCall(
            key,
            self._tracer.start_span(name, parent, kind, {**attributes, **labels}),
            labels,
            self._content,
        )

    def _answered(self, call: _TracedCall, answer: ModelAnswer) -> None:
        call.labels[by.RESPONSE_MODEL] = answer.model or call.labels.get(by.MODEL, "")
        self._count.count_tokens(answer.usage, call.labels)
        call.add({by.RESPONSE_MODEL: call.labels[by.RESPONSE_MODEL], **by.of_answer(answer)})
        call.add(by.of_answer_latest(answer) if self._latest else {})
        call.add(by.content_of_answer(answer) if self._content else {})
        self._end(call)

    def _end(self, call: _TracedCall, error_type: str = "") -> None:
        failed: Attributes = {by.ERROR: error_type} if error_type else {}
        self._count.count_call(
            time.monotonic() - call.began, call.labels, failed, is_retry=call.key.attempt > 1
        )
        call.add(failed)
        _mark_failed(call.span, error_type)
        call.span.end()

    def _turn(self, turn_span: TurnSpan, agent: str, attributes: Attributes, began_ns: int) -> Span:
        """Start the span of a turn.

        A copy of the tracer gives it the ids of `turn_span`; ids of other spans remain random.
        """
        tracer = copy.copy(self._tracer)
        if isinstance(tracer, Tracer):
            tracer.id_generator = _TurnIds(turn_span)
        context = (
            self._remote(turn_span, turn_span.parent_id, agent)
            if turn_span.parent_id
            else Context()
        )
        return tracer.start_span(
            f"{by.INVOKE_AGENT} {agent}",
            context,
            SpanKind.INTERNAL,
            attributes,
            start_time=began_ns,
        )

    def _remote(self, turn_span: TurnSpan, span_id: int, agent: str) -> Context:
        """Return a context with a span of the turn's trace that is created elsewhere."""
        flags = TraceFlags(
            TraceFlags.SAMPLED if self._is_sampled(turn_span, agent) else TraceFlags.DEFAULT
        )
        return trace.set_span_in_context(
            NonRecordingSpan(
                SpanContext(turn_span.trace_id, span_id, is_remote=True, trace_flags=flags)
            ),
            Context(),
        )

    def _is_sampled(self, turn_span: TurnSpan, agent: str) -> bool:
        """Return the caller's sampling decision, else the sampler's decision for the turn.

        The sampler's decision is the same everywhere if it only depends on the trace id.
        """
        if turn_span.sampled is not None or self._sampler is None:
            return bool(turn_span.sampled)
        labels: Attributes = {by.OPERATION: by.INVOKE_AGENT, by.AGENT: agent}
        decided = self._sampler.should_sample(
            Context(), turn_span.trace_id, f"{by.INVOKE_AGENT} {agent}", SpanKind.INTERNAL, labels
        )
        return decided.decision is Decision.RECORD_AND_SAMPLE


class _TurnIds(IdGenerator):
    """Generates the given ids."""

    def __init__(self, turn_span: TurnSpan) -> None:
        self._place = turn_span

    def generate_span_id(self) -> int:
        return self._place.span_id

    def generate_trace_id(self) -> int:
        return self._place.trace_id


def _asking(key: ModelKey | ToolKey, args: Sequence[Any], origin: TraceOrigin) -> str:
    """Return the agent that asks a model; for a tool, the agent of the turn."""
    agent = unpack(raw_input(args), ModelCall).agent if isinstance(key, ModelKey) else ""
    return agent or origin.agent


def _alone(state: TurnState, summary: Summary) -> Summary:
    """Return a turn's own spending, including the spending of terminated delegates.

    No code of those runs to count it.
    """
    counted = sum(map(_counted, state.children), NOTHING)
    return summary.model_copy(
        update={"spent": summary.spent - counted, "is_priced": state.is_priced_itself}
    )


def _counted(child: Child) -> Spending:
    """Return what the turn of a delegate, and those below it, count themselves."""
    if (
        child.summary
        or not child.ended
        or (child.read and child.read.outcome is not Outcome.TERMINATED)
    ):
        return child.charged
    return sum(map(_counted_below, child.read.children), NOTHING) if child.read else NOTHING


def _counted_below(report: ChildReport) -> Spending:
    """Return what a turn further below counts itself."""
    if report.outcome is Outcome.TERMINATED:
        return sum(map(_counted_below, report.children), NOTHING)
    return report.spent


def _nothing() -> None:
    """Write nothing."""


def _mark_failed(span: Span, error_type: str) -> None:
    """Set the status of a span to the class of an error; its message may quote content."""
    if error_type:
        span.set_status(StatusCode.ERROR, error_type)


def _error_type(error: BaseException) -> str:
    """Return the class of an error: an error code, or a word for what ended an attempt."""
    if isinstance(error, exceptions.ApplicationError) and error.type:
        return error.type
    if isinstance(error, asyncio.CancelledError | exceptions.CancelledError):
        details = activity.cancellation_details()
        if details is None or details.cancel_requested:
            return by.CANCELLED
        return names.WORKER_SHUTDOWN if details.worker_shutdown else by.TIMED_OUT
    return type(error).__name__


@contextlib.contextmanager
def _harmless() -> Iterator[None]:
    """Log exceptions and continue."""
    try:
        yield
    except Exception:  # telemetry does not affect turns
        logger.warning(_FAILED, exc_info=True)
