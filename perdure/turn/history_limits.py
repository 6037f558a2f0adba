"""What fits into the history of a turn: what the server accepts and a worker can replay. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pydantic_core import to_json

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition
from perdure.turn.decide import CallMove, StartDelegates
from perdure.turn.state import TurnState
from perdure.values.shared_state import size_of

_ESCAPED = 6
"""The most bytes of JSON for one byte of text, as in `\\u0000`."""


def check_history(size_bytes: int, events: int) -> None:
    """End a turn with a typed error before the server terminates its workflow for its size.

    Raises:
        TooLargeError: The history is close to the limit of the server.
    """
    if size_bytes > limits.HISTORY_BYTES or events > limits.HISTORY_EVENTS:
        raise errors.TooLargeError(
            f"the turn's history has {size_bytes} bytes in {events} events, close to what the"
            " server allows; turn.resume() goes on in a new turn",
            context={"bytes": size_bytes, "events": events},
        )


def replayable_events(
    task_timeout: timedelta, per_second: int = limits.EVENTS_PER_TASK_SECOND
) -> int:
    """Return the most events of a history that can be replayed within one workflow task."""
    return int(per_second * task_timeout.total_seconds())


def run_events(task_timeout: timedelta) -> int:
    """Return the events of a run after which it ends, to be replayed in time by another worker."""
    return int(replayable_events(task_timeout) * limits.RUN_SHARE)


def too_long(steps: int, events: int, task_timeout: timedelta, limit: int) -> errors.TooLargeError:
    """Return the error of a turn with more than `limit` events."""
    return errors.TooLargeError(
        f"the turn ended after {steps} steps because its history has {events} events; more than "
        f"{limit} may take too long to be replayed within its workflow task timeout of "
        f"{task_timeout.total_seconds():g} s; turn.resume() goes on in a new turn, or "
        "split the task",
        context={"steps": steps, "events": events, "limit": limit},
    )


def check_batch(state: TurnState, moves: Sequence[CallMove], size_bytes: int) -> None:
    """End a turn with a typed error if calls made at once exceed what the server accepts.

    Their inputs go to the server in one message; their results add to the history.

    Raises:
        TooLargeError: The inputs or the results do not fit.
    """
    input_bytes = _given(state, moves)
    if input_bytes > limits.COMMANDS_BYTES:
        raise errors.TooLargeError(
            f"{len(moves)} tool calls at once are given {input_bytes} bytes, more than"
            f" {limits.COMMANDS_BYTES}; have the agent run its tools one after the other",
            context={"calls": len(moves), "bytes": input_bytes, "limit": limits.COMMANDS_BYTES},
        )
    result_bytes = _brought(state, moves)
    if size_bytes + result_bytes > limits.SERVER_BYTES:
        raise errors.TooLargeError(
            f"the turn's history has {size_bytes} bytes, and {len(moves)} tool calls at once may"
            f" bring {result_bytes} more, beyond what the server allows; turn.resume() goes on in a"
            " new turn, or have the agent run its tools one after the other",
            context={
                "bytes": size_bytes,
                "calls": len(moves),
                "may_bring": result_bytes,
                "limit": limits.SERVER_BYTES,
            },
        )


def media_room(
    state: TurnState, moves: Sequence[CallMove], agent: AgentDefinition, size_bytes: int
) -> int:
    """Return the most bytes of images and files that each of these calls may add to history.

    It is 0 in a turn whose tool results are text alone: before rules 3, or with a transcript that
    is too large already.
    """
    if agent.rules < 3 or state.transcript.size_bytes > limits.TRANSCRIPT_BYTES:
        return 0
    room = limits.SERVER_BYTES - size_bytes - _brought(state, moves)
    return max(min(limits.RESULT_MEDIA_BYTES, room // len(moves)), 0)


def _given(state: TurnState, moves: Sequence[CallMove]) -> int:
    """Return the bytes of the inputs of these calls."""
    labels = len(to_json(state.request.labels)) if state.request else 0
    each = limits.CALL_BYTES + labels + size_of(state.shared)
    return sum(each + len(to_json(move.call.arguments)) for move in moves)


def _brought(state: TurnState, moves: Sequence[CallMove]) -> int:
    """Return the most bytes that these calls add to history, without images and files."""
    return _given(state, moves) + sum(map(_may_return, moves))


def _may_return(move: CallMove) -> int:
    """Return the most bytes of JSON for a call: its result, or a summary for each delegate."""
    if not isinstance(move, StartDelegates):
        return _ESCAPED * limits.TOOL_RESULT_BYTES
    return len(move.errands) * (limits.CALL_BYTES + _ESCAPED * limits.SUMMARY_BYTES)
