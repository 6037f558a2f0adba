"""Determines the trace of a turn.

The workflow and its activities compute it independently, in any process and after any crash, with
the same result. The ids are derived by SHA-256 from the turn's workflow id and its first run, so
that the parent of a span is known without asking. A child turn shares the trace of its root. If the
caller had a span when it started the turn, its W3C traceparent is in the memo, and the turn
continues that trace. Temporal's root of a child is the root's *latest* run, so the memo of a child
says where it belongs.

As an activity receives neither the first run nor the memo, it reads the first event of its history,
once per turn and process. That takes a few milliseconds, whereas headers would enlarge every step
of every history.

OpenTelemetry is not imported here unless the caller has done so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import sys
from dataclasses import dataclass

from temporalio import activity
from temporalio.api.history.v1 import WorkflowExecutionStartedEventAttributes
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import WorkflowSerializationContext

from perdure.base import Wire
from perdure.temporal.histories.fetching import first_event
from perdure.temporal.payloads import unpack
from perdure.temporal.recent import Recent

logger = logging.getLogger("perdure")

MEMO_TRACE = "perdure_trace"
"""The memo field with the span that started the turn."""

TURN_ENDED = "perdure.turn_ended"
"""The extern function by which workflows report the end of a turn: `(state, summary, error)`.

It returns a function that writes the record.
"""

WAIT_BEGAN = "perdure.wait_began"
"""The extern function by which workflows count a wait: `(state, kind)`.

It returns a function that writes the record.
"""

WRITE = "perdure.write"
"""The extern function that calls a function once the server has accepted the turn's task."""

_TRACEPARENT = re.compile(
    r"00-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})?"
)
_KEPT = 1000
_READ_S = 5.0


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """The span of a turn.

    It has its ids, the id of its parent (0 for none), and whether its trace is sampled (None if the
    sampler decides).
    """

    trace_id: int
    span_id: int
    parent_id: int = 0
    sampled: bool | None = None

    def traceparent(self) -> str:
        """Return the value of `MEMO_TRACE` for a child turn.

        If the sampler decides, the flags are omitted, so that it decides for the child too.
        """
        flags = "" if self.sampled is None else f"{self.sampled:02x}"
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{flags}"


@dataclass(frozen=True, slots=True)
class TraceOrigin:
    """The origin of a turn: its agent as requested, and its span."""

    agent: str
    span: TurnSpan


def span_of_turn(
    turn_id: str, first_run: str, *, root: tuple[str, str] | None = None, traceparent: object = ""
) -> TurnSpan:
    """Return the span of a turn.

    `root` is the workflow id and the run of the root, unless the turn is its own root. A malformed
    traceparent is ignored.
    """
    span_id = _derived(8, "span", turn_id, first_run)
    caller = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if caller is None or not int(caller["trace"], 16) or not int(caller["span"], 16):
        return TurnSpan(_derived(16, "trace", *(root or (turn_id, first_run))), span_id)
    sampled = None if caller["flags"] is None else bool(int(caller["flags"], 16) & 1)
    return TurnSpan(int(caller["trace"], 16), span_id, int(caller["span"], 16), sampled)


def memo_of_caller() -> dict[str, str]:
    """Return the memo with the client's current span, if any, for turns that it starts."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry import trace

    span = trace.get_current_span().get_span_context()
    return (
        {MEMO_TRACE: f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & 1:02x}"}
        if span.is_valid
        else {}
    )


class Origins:
    """Looks up the origins of the turns whose activities run in this process.

    It is used only on the worker's loop.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known = Recent[str, TraceOrigin](_KEPT)

    async def of(self, info: activity.Info) -> TraceOrigin:
        """Return the origin of an activity's turn.

        If the history cannot be read, it is computed without it, which is correct for most turns.
        """
        assert info.workflow_id is not None
        assert info.workflow_run_id is not None
        known = self._known.get(info.workflow_run_id)
        if known is not None:
            return known
        try:
            origin = await asyncio.wait_for(
                self._read(info.workflow_id, info.workflow_run_id), _READ_S
            )
        except Exception as error:  # noqa: BLE001 - telemetry does not affect turns
            logger.warning(
                "the first event of %s cannot be read, so its trace may be in parts: %s",
                info.workflow_id,
                error,
            )
            return TraceOrigin("", span_of_turn(info.workflow_id, info.workflow_run_id))
        self._known.put(info.workflow_run_id, origin)
        return origin

    async def _read(self, turn_id: str, run_id: str) -> TraceOrigin:
        event = await first_event(self._client, turn_id, run_id)
        return await self._origin(turn_id, event.workflow_execution_started_event_attributes)

    async def _origin(
        self, turn_id: str, started: WorkflowExecutionStartedEventAttributes
    ) -> TraceOrigin:
        converter = self._client.data_converter
        with_context = converter.with_context(
            WorkflowSerializationContext(namespace=self._client.namespace, workflow_id=turn_id)
        )
        [raw] = await converter.decode(list(started.input.payloads), [RawValue])
        memo = [started.memo.fields[MEMO_TRACE]] if MEMO_TRACE in started.memo.fields else []
        [traceparent] = await with_context.decode(memo) if memo else [""]
        root = started.root_workflow_execution
        span = span_of_turn(
            turn_id,
            started.first_execution_run_id,
            root=(root.workflow_id, root.run_id) if root.workflow_id else None,
            traceparent=traceparent,
        )
        return TraceOrigin(unpack(raw, _TurnInput).agent, span)


class _TurnInput(Wire):
    """The part of a turn's input that is needed here."""

    agent: str = ""


def _derived(size: int, *parts: str) -> int:
    """Return an id of `size` bytes, never 0, which would be invalid."""
    digest = hashlib.sha256(json.dumps(["perdure", *parts]).encode()).digest()
    return int.from_bytes(digest[:size], "big") or 1
