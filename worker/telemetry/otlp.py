"""Telemetry configured by OpenTelemetry's standard environment variables.

The packages with an exporter are an extra, `perdure[otlp]`; a worker without them logs a warning
and runs. The SDK itself reads sampling, resource, headers, timeouts and intervals from the
environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import threading
from collections.abc import AsyncIterator
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from perdure.worker.telemetry.telemetry import Telemetry

logger = logging.getLogger("perdure")

_PACKAGES = {
    "grpc": "opentelemetry.exporter.otlp.proto.grpc",
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http",
}
_FLUSH_S = 5.0


@contextlib.asynccontextmanager
async def from_environment() -> AsyncIterator[Telemetry | None]:
    """Yield telemetry that exports during the block; None if nothing can be exported.

    At the end, remaining data is flushed for at most five seconds.
    """
    try:
        tracer_provider, meter_provider = _tracer_provider(), _meter_provider()
    except (ImportError, LookupError, ValueError) as error:
        logger.warning("no spans and metrics: the environment enables OTLP, but %s", _reason(error))
        yield None
        return
    try:
        yield Telemetry(
            tracer_provider=tracer_provider, meter_provider=meter_provider, content=_wants_content()
        )
    finally:
        ending = threading.Thread(
            target=_shut_down,
            args=(tracer_provider, meter_provider),
            name="perdure-telemetry-end",
            daemon=True,
        )
        ending.start()
        await asyncio.to_thread(ending.join, _FLUSH_S)


def _tracer_provider() -> TracerProvider | None:
    exporter = _exporter("TRACES", "trace_exporter")
    if exporter is None:
        return None
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter.OTLPSpanExporter()))
    return provider


def _meter_provider() -> MeterProvider | None:
    exporter = _exporter("METRICS", "metric_exporter")
    if exporter is None:
        return None
    reader = PeriodicExportingMetricReader(exporter.OTLPMetricExporter())
    return MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)


def _exporter(signal: str, module: str) -> Any:
    """Return the module of a signal's exporter; None if the environment does not enable it.

    Raises:
        ImportError: Its package is not installed.
        LookupError: No package supports this protocol.
    """
    endpoint = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    if not endpoint or os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") != "otlp":
        return None
    protocol = (
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL")
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if protocol not in _PACKAGES:
        raise LookupError(f"the protocol {protocol!r} is not one of {', '.join(_PACKAGES)}")
    return importlib.import_module(f"{_PACKAGES[protocol]}.{module}")


def _resource() -> Resource:
    """Return the resource from the environment; an unnamed service is called perdure."""
    resource = Resource.create()
    is_named = not str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith(
        "unknown_service"
    )
    return resource if is_named else resource.merge(Resource({SERVICE_NAME: "perdure"}))


def _wants_content() -> bool:
    setting = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower()
    return setting in ("true", "span_only", "span_and_event")


def _shut_down(*providers: TracerProvider | MeterProvider | None) -> None:
    for provider in providers:
        if provider is not None:
            with contextlib.suppress(Exception):
                provider.shutdown()


def _reason(error: Exception) -> str:
    return f"{error}; install perdure[otlp]" if isinstance(error, ImportError) else str(error)
