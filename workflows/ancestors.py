"""The ancestors of a turn: the news that they receive, and the trace that they share."""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from perdure import errors
from perdure.agents.delegates import Ancestor, Lineage
from perdure.temporal import trace_ids
from perdure.temporal.names import CHILD_NEWS
from perdure.temporal.payloads import pack
from perdure.turn.state import TurnState
from perdure.turn.wire import ChildNews
from perdure.values.budgets import Budget

MADE_UP_REFUSED = "made-up-input-is-refused"
"""The patch since which sessions and push notifications do not begin with a later run's input."""
_APART = "signal-apart"
"""The patch id of turns that wait for a signal to an ancestor in an asyncio task of its own."""


def span_of_this_turn() -> trace_ids.TurnSpan:
    """Return the span of the current turn."""
    info = workflow.info()
    root = (info.root.workflow_id, info.root.run_id) if info.root else None
    traceparent = workflow.memo_value(trace_ids.MEMO_TRACE, "")
    return trace_ids.span_of_turn(
        info.workflow_id, info.first_execution_run_id, root=root, traceparent=traceparent
    )


def check(lineage: Lineage | None) -> None:
    """Reject a lineage that is not from the parent: it determines which inherited tools may run.

    Raises:
        InvalidRequestError: The workflow was not started by the last of the ancestors.
    """
    parent = workflow.info().parent
    if lineage is None or (parent and parent.workflow_id == lineage.ancestors[-1].turn_id):
        return
    raise errors.InvalidRequestError(
        f"the lineage says that {lineage.ancestors[-1].turn_id!r} delegated this turn, which did"
        " not start it; start a turn without a lineage"
    )


def check_continued(subject: str, *, patch: str = "") -> None:
    """Reject what only a run may pass to the next run of its workflow.

    `patch` is the patch since which that is rejected. Only such an input asks for it, so that it
    costs no other workflow an event of its history.

    Raises:
        InvalidRequestError: The workflow was started with it.
    """
    if workflow.info().continued_run_id is None and (not patch or workflow.patched(patch)):
        raise errors.InvalidRequestError(
            f"{subject} is that of a later run, which only the run before may give; start with the"
            " input of a first run"
        )


async def tell_waits(state: TurnState, waits_for: str, reason: str) -> None:
    """Tell the parent about a wait for people, so that it can stop its clock."""
    if state.lineage:
        parent = state.lineage.ancestors[-1]
        await _tell(parent, ChildNews(key=parent.key, waits_for=waits_for, reason=reason))


async def tell_goes_on(state: TurnState) -> None:
    """Tell the parent that the wait is over."""
    await tell_waits(state, "", "")


async def tell_added(state: TurnState, more: Budget) -> None:
    """Tell the ancestors about an addition to this turn's budget, which is new to the whole tree.

    The root is told first, so that leases never exceed the budget.
    """
    for ancestor in state.lineage.ancestors if state.lineage else ():
        await _tell(ancestor, ChildNews(key=ancestor.key, added=more))


async def _tell(ancestor: Ancestor, news: ChildNews) -> None:
    """Signal an ancestor and wait until its history has it; an ancestor that has ended is skipped.

    A cancellation ends the wait, and the signal is sent nevertheless.
    """
    signal = _signalled(ancestor, news)
    if not workflow.patched(_APART):  # the SDK forgets a cancellation while it waits for a signal
        await signal
        return
    task = asyncio.create_task(signal)
    await workflow.wait([task])
    task.result()


async def _signalled(ancestor: Ancestor, news: ChildNews) -> None:
    try:
        await workflow.get_external_workflow_handle(ancestor.turn_id).signal(CHILD_NEWS, pack(news))
    except ApplicationError as error:
        workflow.logger.info("turn %s was not told: %s", ancestor.turn_id, error)
