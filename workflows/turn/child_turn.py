"""A turn as a child of a user's workflow."""

from __future__ import annotations

import asyncio
from typing import Any, Unpack

from temporalio import workflow
from temporalio.common import Priority, RawValue
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError

from perdure import errors, limits, validation
from perdure.agents.agent import Agent
from perdure.base import R
from perdure.temporal import outcomes, start_request, trace_ids
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.temporal.priorities import priority_of
from perdure.text import stays_in_urls
from perdure.turn import ending
from perdure.turn.facts import ChildEnded, TurnEnded
from perdure.turn.keys import ChildKey
from perdure.turn.wire import Summary, TurnRequest
from perdure.values import keywords
from perdure.values.reports import AgentReport, Outcome
from perdure.values.tasks import Task
from perdure.values.turn_options import TurnOptions
from perdure.workflows import child_handles
from perdure.workflows.ends import has_ended

_CHECKED_ID = "checked-id"
_ONLY = ChildKey(0, 0, 1)


@keywords.shows(TurnOptions)
async def run_turn(
    agent: Agent[R] | str,
    task: str | Task,
    *,
    output: type[R] | None = None,
    id: str | None = None,
    task_queue: str | None = None,
    priority: int | None = None,
    fairness: str | None = None,
    weight: float | None = None,
    **options: Unpack[TurnOptions],
) -> AgentReport[R]:
    """Run a turn as a child of your workflow, and wait for its end.

    A cancellation of your workflow is passed on to the turn, with its reason. The report has no
    messages and no steps: they are in the turn's own history.

    Args:
        agent: The agent, or its name.
        task: The task.
        output: The type of the answer; overrides the agent's own.
        id: The turn's id; by default your workflow's id followed by `/<agent>-<12 characters>`.
        task_queue: The task queue of the agent's workers; by default your workflow's.
        priority: From 1, the first, to 5, the last; by default your workflow's.
        fairness: The fairness key; by default your workflow's.
        weight: The share of the key beside others, from 0.001 to 1000.

    The options that are not described here are as for `AgentClient.start`; there is no `subject`.

    Raises:
        InvalidRequestError: An argument is not valid.
        PerdureError: As for the client; `.report` holds what was done. If not caught, it fails your
            workflow (because of `PerdurePlugin`).
    """
    request = start_request.turn_request(agent, task, output=output, **options)
    request.check_moments(workflow.now())
    if request.subject is not None:
        raise errors.InvalidRequestError(
            "a turn of your workflow has the data subject of your workflow; give the subject to"
            " AgentClient.start, in an activity"
        )
    order = priority_of(priority, fairness, weight)
    turn_id = id or f"{workflow.info().workflow_id}/{request.agent}-{workflow.uuid4().hex[:12]}"
    if id and not stays_in_urls(id) and workflow.patched(_CHECKED_ID):
        validation.new_id("turn", id, limits.TURN_ID_CHARACTERS)
    ended = await _ended(turn_id, request, task_queue, order)
    output_type = start_request.type_of(agent, output, options.get("output_schema"))
    return _read(turn_id, request, ended, output_type)


async def _ended(
    turn_id: str, request: TurnRequest, task_queue: str | None, priority: Priority
) -> ChildEnded:
    """Run the turn to its end.

    A cancellation of the caller is passed on, and raised when the turn has ended.
    """
    try:
        handle: workflow.ChildWorkflowHandle[Any, RawValue] = await workflow.start_child_workflow(
            TURN,
            pack(request, "the input of the turn"),
            id=turn_id,
            task_queue=task_queue,
            result_type=RawValue,
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            priority=priority,
            **start_request.introduced(request, trace_ids.memo_of_caller()),
        )
        try:
            return outcomes.child_completed(_ONLY, await asyncio.shield(handle))
        except asyncio.CancelledError:
            if not await has_ended(handle):
                child_handles.cancel(handle, workflow.cancellation_reason() or "")
            await workflow.wait([handle])
            raise
    except WorkflowAlreadyStartedError as error:
        raise errors.TurnExistsError(
            f"a turn {turn_id!r} exists already", context={"turn_id": turn_id}
        ) from error
    except ChildWorkflowError as error:
        return outcomes.child_failed(_ONLY, error.cause or error)


def _read(
    turn_id: str, request: TurnRequest, ended: ChildEnded, output_type: Any
) -> AgentReport[Any]:
    """Return the report of a turn, or raise the error of its end."""
    summary = ended.summary or Summary(agent=request.agent, outcome=Outcome.TERMINATED)
    report = ending.report_of(turn_id, summary)
    error = ending.error_of(
        TurnEnded(summary.outcome, summary, ended.reason),
        summary.error.message if summary.error else None,
    )
    if error is not None:
        error.report = ending.without_answer(report)
        raise error
    return ending.typed(report, output_type, request.output_schema)
