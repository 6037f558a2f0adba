"""Traces and metrics, by OpenTelemetry."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.worker.telemetry.telemetry import Telemetry
else:
    from perdure import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__, {"perdure.worker.telemetry.telemetry": ["Telemetry"]}
    )

__all__ = ["Telemetry"]
