"""Calls of unknown outcome that no turn waits for: what a person says of them afterwards.

The turn has gone on, or is over, so it cannot record that. A workflow of its own keeps it, and the
workers that later meet the same effect look it up. No worker is needed to say so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from perdure import errors, limits
from perdure.temporal import access, settlements
from perdure.temporal.histories.runs import describe_last, runs_up_to
from perdure.temporal.names import SETTLEMENT
from perdure.temporal.payloads import pack
from perdure.text import clip, markdown, one_line, word
from perdure.turn import unsettled
from perdure.turn.approvals import digest_of
from perdure.turn.effect_values import CallPlace, SettledCall
from perdure.turn.state import TurnState
from perdure.values.approvals import Decision, Settlement
from perdure.values.messages import ToolCall
from perdure.values.reports import UnsettledCall

if TYPE_CHECKING:
    from perdure.clients.turns.readable import ReadableTurn


class IdPolicies(TypedDict):
    """What a start does with a workflow of the same id."""

    id_reuse_policy: WorkflowIDReusePolicy
    id_conflict_policy: WorkflowIDConflictPolicy


class MadeCall(NamedTuple):
    """A call that was made without a known result.

    `is_known` means that a later call with the same effect has shown what became of it.
    """

    call: UnsettledCall
    is_known: bool


async def find(turn: ReadableTurn[Any], call: UnsettledCall | str) -> MadeCall:
    """Return the call of a turn that a person means.

    Raises:
        ApprovalConflictError: There is none, or another call has its place now.
        PerdureError: The turn cannot be read.
    """
    state = await _state(turn)
    call_id = call if isinstance(call, str) else call.call_id
    calls, unknown = unsettled.made(state), tuple(unsettled.calls(state))
    made = next((each for each in calls if each.call_id == call_id), None)
    if made is None:
        names = ", ".join(each.call_id for each in calls if each in unknown) or "none"
        raise errors.ApprovalConflictError(
            f"no call {call_id!r} of turn {turn.id!r} waits for a person, or was made with an"
            f" unknown outcome (such calls: {names}); nothing was decided",
            context={"turn_id": turn.id},
        )
    if isinstance(call, UnsettledCall) and _reviewed(made) != _reviewed(call):
        raise errors.ApprovalConflictError(
            f"the call {call_id!r} of turn {turn.id!r} is not the call that was reviewed: the turn"
            " was started again, or reset; nothing was decided",
            context={"turn_id": turn.id},
        )
    return MadeCall(made, is_known=made not in unknown)


def _reviewed(call: UnsettledCall) -> tuple[int, str, str]:
    return call.step, call.tool, call.arguments


async def _state(turn: ReadableTurn[Any]) -> TurnState:
    state = TurnState()
    async with contextlib.aclosing(turn.changes()) as changing:
        async for change in changing:
            state = change.state
            if change.is_new:
                break
    return state


def decision(made: MadeCall, settlement: Settlement, result: str, by: str | None) -> Decision:
    """Return what a person says of a call.

    Raises:
        InvalidRequestError: The call shall be made again, which only a turn that waits can do.
    """
    call = made.call
    if settlement == "again":
        raise errors.InvalidRequestError(
            f"no turn waits for the call {call.call_id!r}, so it cannot be made again: settle it as"
            " absent, and a later call with the same effect is made",
            context={"call_id": call.call_id},
        )
    asked = ToolCall(id=call.call_id, name=call.tool, arguments=call.arguments)
    return Decision(
        call_id=call.call_id,
        digest=digest_of(asked),
        approve=False,
        reason=clip(result, limits.TOOL_RESULT_BYTES // 2),
        by=by,
        settlement=settlement,
    )


async def record(client: Client, turn_id: str, run_id: str, made: MadeCall, said: Decision) -> None:
    """Record what a person says of a call of a turn. `run_id` is any of its runs.

    Raises:
        ApprovalConflictError: Somebody has said so already, or it is known.
        PerdureError: The server refuses it, or does not answer.
    """
    call = made.call
    place = CallPlace(turn_id, call.step, call.call_id)
    with access.TURN.asking(turn_id):
        last = await describe_last(client, turn_id, run_id, retry=True)
        runs = await runs_up_to(client, last)
    settled = SettledCall(
        turn_id=turn_id, run_id=runs[-1], step=call.step, tool=call.tool, decision=said
    )
    task_queue = last.workflow_execution_info.task_queue
    if not made.is_known and await _is_started(client, settled, task_queue, **_FIRST):
        return
    before = await access.TURN.asked(turn_id, settlements.settled(client, place, runs))
    if before is not None or made.is_known:
        known = before.in_words if before else "settled by a later call with the same effect"
        raise errors.ApprovalConflictError(
            f"the call {call.call_id!r} of turn {turn_id!r} is already {known}; nothing was"
            " decided",
            context={"turn_id": turn_id},
        )
    await _is_started(client, settled, task_queue, **_INSTEAD)


_FIRST = IdPolicies(
    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
)
_INSTEAD = IdPolicies(
    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
)
"""For a call of a turn that was reset, or started again, since somebody said so of another call."""


async def _is_started(
    client: Client, settled: SettledCall, task_queue: str, **policies: Unpack[IdPolicies]
) -> bool:
    summary = f"{markdown(word(settled.tool))} of {markdown(settled.turn_id)} is settled"
    run_id = await access.start(
        client,
        access.TURN,
        SETTLEMENT,
        pack(settled, "what was said"),
        id=settlements.workflow_id(settled.place),
        about=settled.turn_id,
        like=settled.turn_id,
        task_queue=task_queue,
        static_summary=one_line(summary, 200),
        **policies,
    )
    return run_id is not None


async def still_unknown(
    client: Client, turn_id: str, calls: Sequence[UnsettledCall], runs: Collection[str]
) -> tuple[UnsettledCall, ...]:
    """Return the calls of a turn of which nobody has said what became of them.

    Raises:
        PerdureError: The server does not answer, or this process lacks the codec.
    """
    return tuple(
        [
            call
            for call in calls
            if not await _is_settled(client, CallPlace(turn_id, call.step, call.call_id), runs)
        ]
    )


async def number_settled(client: Client, calls: Sequence[CallPlace]) -> int:
    """Return of how many calls a person has said what became of them.

    Raises:
        PerdureError: The server does not answer, or this process lacks the codec.
    """
    return sum([await _is_settled(client, call, ()) for call in calls])


async def _is_settled(client: Client, place: CallPlace, runs: Collection[str]) -> bool:
    reading = settlements.settled(client, place, runs)
    return await access.TURN.asked(place.turn_id, reading) is not None
