"""Spans and metrics as an exporter receives them."""

import asyncio
import os
import secrets
import sys
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanContext
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import PayloadCodec

from perdure import Agent, Price
from perdure.worker import AgentWorker
from perdure.worker.telemetry import Telemetry

from ..conftest import RecordingClient

PRICE = Price(input="1000", output="1000")


class Traces:
    """Exported spans, and metrics when they are read."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._meters = MeterProvider([self._metrics], shutdown_on_exit=False)

    def telemetry(self, *, content: bool = False) -> Telemetry:
        """For a worker."""
        return Telemetry(
            tracer_provider=self.provider, meter_provider=self._meters, content=content
        )

    def worker(self, agent: Agent, *, content: bool = False) -> AgentWorker:
        """A worker whose model costs a tenth of a cent per token."""
        return AgentWorker(
            agent, telemetry=self.telemetry(content=content), prices={"scripted:*": PRICE}
        )

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Every span that has ended, in this order."""
        return self._spans.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        [span] = [span for span in self.spans if span.name == name]
        return span

    def tree(self) -> list[tuple[str, str | None]]:
        """Names of spans with the names of their parents, in the same trace; None for a parent that
        was not exported.
        """
        names = {(ids(span).trace_id, ids(span).span_id): span.name for span in self.spans}
        return [
            (
                span.name,
                names.get((ids(span).trace_id, span.parent.span_id)) if span.parent else None,
            )
            for span in self.spans
        ]

    def measured(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """The attributes and the sum of every series of a metric."""
        data = self._metrics.get_metrics_data()
        found = (
            [
                metric
                for resource in data.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            ]
            if data
            else []
        )
        points: list[Any] = [
            point for metric in found if metric.name == name for point in metric.data.data_points
        ]
        return [
            (dict(point.attributes), getattr(point, "value", None) or getattr(point, "sum", 0))
            for point in points
        ]


def ids(span: ReadableSpan) -> SpanContext:
    """The ids of a span."""
    found = span.get_span_context()
    assert found is not None
    return found


def trace_ids(spans: Sequence[ReadableSpan]) -> set[int]:
    """The traces of spans."""
    return {ids(span).trace_id for span in spans}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span, with the run's id removed from its event."""
    given = dict(span.attributes or {})
    return {**given, "perdure.event_id": str(given["perdure.event_id"]).partition("/")[2]}


def status(span: ReadableSpan) -> tuple[str, str | None, Any]:
    """Status, description and error class of a span."""
    return (
        span.status.status_code.name,
        span.status.description,
        (span.attributes or {}).get("error.type"),
    )


class Reversing(PayloadCodec):
    """A codec in place of encryption."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(metadata={"encoding": b"reversed"}, data=payload.SerializeToString()[::-1])
            for payload in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            (
                Payload.FromString(payload.data[::-1])
                if payload.metadata["encoding"] == b"reversed"
                else payload
            )
            for payload in payloads
        ]


def queue() -> str:
    """A task queue that no other test uses."""
    return f"test-{secrets.token_hex(6)}"


async def run_in_a_process(address: str, **environment: str) -> tuple[str, str]:
    """The outcome of a turn with `perdure worker` in this environment, and the worker's output
    until SIGTERM ended it.
    """
    name = queue()
    arguments = ["-m", "perdure", "worker", "perdure.worker.librarian:make", "--address", address]
    known = {**os.environ, "PERDURE_TASK_QUEUE": name, "PERDURE_GRACE_S": "5", **environment}
    worker = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=known, stderr=asyncio.subprocess.PIPE
    )
    try:
        client = RecordingClient(await Client.connect(address), name)
        report = await client.run("librarian", "What does a step cost?")
    finally:
        worker.terminate()
        _, said = await worker.communicate()
    return report.outcome.value, said.decode()
