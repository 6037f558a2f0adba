"""The settings of a worker that an operator can make in the environment.

Temporal's address comes from Temporal's own environment profiles.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta

from perdure import errors, limits
from perdure.activities import webhook_rules
from perdure.activities.live_text import Listening
from perdure.temporal.liveness import INTERVAL, TOLERANCE
from perdure.worker.deployment import WorkerVersion

_HEARTBEAT = "PERDURE_HEARTBEAT_S"
_HEARTBEAT_TOLERANCE = "PERDURE_HEARTBEAT_TOLERANCE_S"
_LAST_PORT = 65_535
STICKY_TIMEOUT = timedelta(seconds=1)
"""How long a turn waits for a killed worker before another takes over; the SDK waits 10 s."""

HEARTBEAT_THROTTLE = timedelta(seconds=0.5)
"""The minimum interval between heartbeats.

It holds for live text and for the heartbeats that deliver a cancel.
"""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """The settings.

    Attributes:
        task_queue: `PERDURE_TASK_QUEUE`: overrides the task queue in the code.
        grace: `PERDURE_GRACE_S`: how long running work may continue after SIGTERM before it is
            cancelled.
        max_activities: `PERDURE_MAX_ACTIVITIES`: the number of concurrent activities except for
            model calls, such as tool calls.
        max_model_calls: `PERDURE_MAX_MODEL_CALLS`: the number of concurrent model calls.
        heartbeat: `PERDURE_HEARTBEAT_S`: the interval between heartbeats of the activities of turns
            that this worker runs.
        heartbeat_tolerance: `PERDURE_HEARTBEAT_TOLERANCE_S`: how late a heartbeat may be before its
            activity counts as lost.
        local_lookups: `PERDURE_LOCAL_LOOKUPS`: whether agents are looked up within the first
            workflow task, which workers of an earlier release cannot replay; 0 for no.
        webhook_hosts: `PERDURE_WEBHOOK_HOSTS`: the hosts that webhooks may be sent to.
        webhook_secrets: `PERDURE_WEBHOOK_SECRETS`: the secrets that they are signed with.
        health_port: `PERDURE_HEALTH_PORT`: the port for probes; none by default.
        live_text: `PERDURE_LIVE_TEXT`: where the text of models is served while they generate it,
            as `HOST:PORT`, or `:PORT` for the address with which this machine reaches Temporal;
            None for `off`. By default on loopback, if Temporal is there, too.
        deployment: `PERDURE_DEPLOYMENT` and `PERDURE_BUILD_ID`: the version of a versioned worker.
        log_format: `PERDURE_LOG_FORMAT`: `lines` for text, or `json`.
        otlp: `OTEL_EXPORTER_OTLP_ENDPOINT`, or the variable of one signal, unless
            `OTEL_SDK_DISABLED` is true: whether to export spans and metrics there.
    """

    task_queue: str | None = None
    grace: timedelta = limits.MODEL_CALL
    max_activities: int = limits.ACTIVITIES_AT_ONCE
    max_model_calls: int = limits.MODEL_CALLS_AT_ONCE
    heartbeat: timedelta = INTERVAL
    heartbeat_tolerance: timedelta = TOLERANCE
    local_lookups: bool = True
    webhook_hosts: tuple[str, ...] = ()
    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    health_port: int | None = None
    live_text: Listening | None = Listening(only_loopback=True)
    deployment: WorkerVersion = WorkerVersion()
    log_format: str = "lines"
    otlp: bool = False

    @classmethod
    def from_environment(cls) -> WorkerSettings:
        """Read the environment.

        Raises:
            ConfigurationError: A variable is not a number above zero, or not a log format.
        """
        return cls(
            task_queue=os.environ.get("PERDURE_TASK_QUEUE"),
            grace=timedelta(seconds=_number("PERDURE_GRACE_S", limits.MODEL_CALL.total_seconds())),
            max_activities=_at_least_one("PERDURE_MAX_ACTIVITIES", limits.ACTIVITIES_AT_ONCE),
            max_model_calls=_at_least_one("PERDURE_MAX_MODEL_CALLS", limits.MODEL_CALLS_AT_ONCE),
            heartbeat=_heartbeat(_HEARTBEAT, INTERVAL),
            heartbeat_tolerance=_heartbeat(_HEARTBEAT_TOLERANCE, TOLERANCE),
            local_lookups=os.environ.get("PERDURE_LOCAL_LOOKUPS", "1") != "0",
            webhook_hosts=_listed(webhook_rules.HOSTS),
            webhook_secrets=_listed(webhook_rules.SECRETS),
            health_port=int(_number("PERDURE_HEALTH_PORT", 0)) or None,
            live_text=_live_text(),
            deployment=WorkerVersion.from_environment(os.environ),
            log_format=_log_format(),
            otlp=_otlp(),
        )


def _heartbeat(name: str, default: timedelta) -> timedelta:
    seconds = _number(name, default.total_seconds())
    longest = limits.HEARTBEAT_INTERVAL.total_seconds()
    if not 1 <= seconds <= longest:
        raise errors.ConfigurationError(
            f"the environment variable {name} is a number of seconds from 1 to {longest:g},"
            f" not {seconds:g}"
        )
    return timedelta(seconds=seconds)


def _otlp() -> bool:
    is_configured = any(
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT")
        for signal in ("", "TRACES_", "METRICS_")
    )
    return is_configured and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"


def _log_format() -> str:
    style = os.environ.get("PERDURE_LOG_FORMAT", "lines")
    if style not in ("lines", "json"):
        raise errors.ConfigurationError(
            f"the environment variable PERDURE_LOG_FORMAT is 'lines' or 'json', not {style!r}"
        )
    return style


def _live_text() -> Listening | None:
    value = os.environ.get("PERDURE_LIVE_TEXT", "")
    if not value:
        return Listening(only_loopback=True)
    if value == "off":
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _LAST_PORT:
        raise errors.ConfigurationError(
            f"the environment variable PERDURE_LIVE_TEXT is HOST:PORT, :PORT or off, not {value!r}"
        )
    return Listening(host.strip("[]"), int(port))


def _listed(name: str) -> tuple[str, ...]:
    return tuple(os.environ.get(name, "").replace(",", " ").split())


def _at_least_one(name: str, default: int) -> int:
    return max(1, int(_number(name, default)))


def _number(name: str, default: float) -> float:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise errors.ConfigurationError(
            f"the environment variable {name} must be a number above zero, not {text!r}"
        )
    return value
