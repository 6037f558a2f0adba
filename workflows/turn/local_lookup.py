"""Resolves the agent within the first workflow task of a turn, if the worker has it at hand.

A local activity needs no task on a queue, and no second workflow task for its result. It is for
work that takes no time. If it fails, the ordinary activity does the same, and its error is the
turn's (docs/decisions/archive/0087).
"""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import FailureError

from perdure import limits
from perdure.temporal import outcomes
from perdure.temporal.names import IS_AT_HAND, RESOLVE_AGENT
from perdure.temporal.payloads import pack
from perdure.turn.agent_call import AgentCall
from perdure.turn.facts import AgentResolved
from perdure.turn.keys import AgentKey
from perdure.workflows.turn.calls import ONCE, Handle
from perdure.workflows.turn.turn_context import Board

_PATCH = "agent-at-hand"


def is_at_hand(call: AgentCall) -> bool:
    """Return whether the worker that began the turn had the agent at hand.

    That worker is asked once. History has a yes as the marker of a patch, which a replay reads.
    """
    if workflow.unsafe.is_replaying():
        return workflow.patched(_PATCH)
    function = workflow.extern_functions().get(IS_AT_HAND)
    return function is not None and function(call) and workflow.patched(_PATCH)


async def resolve(board: Board, call: AgentCall) -> None:
    """Resolve the agent, or leave it to the ordinary activity.

    A cancellation waits for the end, which is a moment away: the result may be in history.
    """
    key = AgentKey()
    handle = workflow.start_local_activity(
        RESOLVE_AGENT,
        pack(call, f"the input of {RESOLVE_AGENT}"),
        result_type=RawValue,
        activity_id=str(key),
        start_to_close_timeout=limits.LOCAL_LOOKUP,
        retry_policy=ONCE,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=f"agent {call.agent}",
    )
    try:
        await workflow.wait([handle])
    except asyncio.CancelledError:
        handle.cancel()
        await workflow.wait([handle])
        _fold_end(board, key, handle)
        raise
    _fold_end(board, key, handle)


def _fold_end(board: Board, key: AgentKey, handle: Handle) -> None:
    """Fold the definition. Readers of the history know nothing of a failure either."""
    try:
        fact = outcomes.completed(key, handle.result())
    except (FailureError, asyncio.CancelledError):
        return
    if isinstance(fact, AgentResolved):
        board.note(fact)
