"""A turn as the child of somebody else's workflow."""

from __future__ import annotations

import asyncio
from typing import Any, Unpack

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError

from perdure import errors
from perdure.agents.agent import Agent
from perdure.base import R
from perdure.temporal import outcomes, start_request, trace_ids
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.turn import ending
from perdure.turn.facts import ChildEnded, TurnEnded
from perdure.turn.keys import ChildKey
from perdure.turn.wire import Summary, TurnRequest
from perdure.values import keywords
from perdure.values.reports import AgentReport, Outcome
from perdure.values.tasks import Task
from perdure.values.turn_options import TurnOptions
from perdure.workflows.calls import has_ended

_ONLY = ChildKey(0, 0, 1)


@keywords.shows(TurnOptions)
async def run_turn(
    agent: Agent[R] | str,
    task: str | Task,
    *,
    output: type[R] | None = None,
    id: str | None = None,  # noqa: A002 - what callers know it as
    task_queue: str | None = None,
    **given: Unpack[TurnOptions],
) -> AgentReport[R]:
    """Run a turn from a workflow of yours, as its child, and wait for its end.

    A cancel of your workflow reaches the turn, with its reason. The report has no messages and no
    steps: they stand in the turn's own history.

    Args:
        agent: Its name, or the agent itself.
        task: What is asked.
        output: The type of the answer; it goes before the agent's own.
        id: The turn's id; without it, that of your workflow with `/<agent>-<12 characters>`.
        context: Named blocks that stand before the task.
        history: Messages of an earlier turn, to go on from.
        labels: Words of yours that tools see, and that turns are listed by.
        budget: What the turn may spend, delegates included.
        max_iterations: How many steps it may make, from 1; it overrides that of the agent.
        options: Temperature, output limit and the like.
        allowed_tools: Only these are offered, and calling another ends the turn.
        task_queue: Where the workers of the agent poll; without it, where your workflow runs.

    Raises:
        PerdureError: As at the client; `.report` holds what was done. Uncaught, it fails your
            workflow (`PerdurePlugin` sees to that).
    """
    request = start_request.turn_request(agent, task, output=output, **given)
    turn_id = id or f"{workflow.info().workflow_id}/{request.agent}-{workflow.uuid4().hex[:12]}"
    ended = await _ended(turn_id, request, task_queue)
    return _read(turn_id, request, ended, start_request.type_of(agent, output))


async def _ended(turn_id: str, request: TurnRequest, task_queue: str | None) -> ChildEnded:
    """Run the turn to its end.

    A cancel of whoever waits is passed on, and raised when the turn is over.
    """
    try:
        handle: workflow.ChildWorkflowHandle[Any, RawValue] = await workflow.start_child_workflow(
            TURN,
            pack(request, "the input of the turn"),
            id=turn_id,
            task_queue=task_queue,
            result_type=RawValue,
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            **start_request.introduced(request, trace_ids.memo_of_caller()),
        )
        try:
            return outcomes.child_completed(_ONLY, await asyncio.shield(handle))
        except asyncio.CancelledError:
            if not await has_ended(handle):
                handle.cancel(workflow.cancellation_reason() or "")
            await workflow.wait([handle])
            raise
    except WorkflowAlreadyStartedError as error:
        raise errors.TurnExistsError(
            f"a turn {turn_id!r} exists already", context={"turn_id": turn_id}
        ) from error
    except ChildWorkflowError as error:
        return outcomes.child_failed(_ONLY, error.cause or error)


def _read(turn_id: str, request: TurnRequest, ended: ChildEnded, wanted: Any) -> AgentReport[Any]:
    """The report of a turn, or the error that its end means."""
    summary = ended.summary or Summary(agent=request.agent, outcome=Outcome.TERMINATED)
    report = ending.report_of(turn_id, summary)
    error = ending.error_of(
        TurnEnded(summary.outcome, summary, ended.reason),
        summary.error.message if summary.error else None,
    )
    if error is not None:
        error.report = report
        raise error
    return ending.typed(report, wanted, request.output_schema)
