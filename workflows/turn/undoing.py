"""Starts the turns that take effects back when a turn ends.

The first one is a child workflow that is abandoned, so that the turn ends without it. Each starts
the next at its own end, so one effect is taken back after another.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError

from perdure.errors import PerdureError
from perdure.temporal import search_attributes, start_request
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.turn import undo
from perdure.turn.effect_values import Undo
from perdure.turn.state import TurnState
from perdure.values.effects import EffectRecord
from perdure.values.reports import Outcome


class Undoing:
    """What one turn takes back at its end."""

    def __init__(self) -> None:
        self._starting: asyncio.Task[None] | None = None

    async def begin(self, state: TurnState, outcome: Outcome) -> None:
        """Begin to take effects back, if the agent wants that. It begins once.

        A failure to do so does not keep the turn from ending; the worker logs it.
        """
        if self._starting is None:
            records = undo.then_undoes(state, workflow.info().workflow_id, outcome)
            if not records:
                return
            self._starting = asyncio.create_task(_start_first(state, records))
        await asyncio.shield(self._starting)  # a cancelled turn comes here again


async def _start_first(state: TurnState, records: tuple[EffectRecord, ...]) -> None:
    """Start the turn for the first of these effects that no other turn takes back."""
    for number, record in enumerate(records, 1):
        asked = undo.chained(record, records[number:], _asked_by(state))
        try:
            await _start(state, asked)
        except WorkflowAlreadyStartedError:
            continue
        except (FailureError, PerdureError):
            workflow.logger.warning(
                "%s is not taken back: its turn was not started", record.place, exc_info=True
            )
            continue
        left_out = len(records) - number - len(asked.then)
        if left_out:
            workflow.logger.warning(
                "%d effects are not taken back: they are too large for one input", left_out
            )
        return


async def _start(state: TurnState, asked: Undo) -> None:
    assert state.request is not None
    root = undo.root_of(state.request, workflow.info().workflow_id)
    request = undo.request_of(state.request, root, asked)
    indexed = state.agent is not None and state.agent.indexed
    await workflow.start_child_workflow(
        TURN,
        pack(request, "the input of a turn that takes an effect back"),
        id=undo.turn_id_of(undo.place_of(asked.record)),
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,  # also after its end
        parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
        search_attributes=(
            search_attributes.at_start(request.agent, request.labels, subject=request.subject)
            if indexed
            else None
        ),
        **start_request.introduced(request, {}),
    )


def _asked_by(state: TurnState) -> str | None:
    before = state.request.undo if state.request else None
    return before.by if before else None
