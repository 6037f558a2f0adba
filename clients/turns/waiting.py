"""The calls that wait for a person, by the names that people use for them.

A call's id identifies a call and its arguments as long as the turn has had only one run. After a
restart or a reset the same id may belong to another call. Then the token is required as well, as
`CALL:TOKEN`: it is made from the run, the call and its arguments, so it identifies the reviewed
call. The token is also required if a deploy has changed the tool of an approved call: the call
waits again, and the earlier approval must not count a second time. So it is for the second question
of a server during a call.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from temporalio.client import Client

from perdure import errors
from perdure.clients.reading.recorded import runs_of, state_of
from perdure.clients.turns.entries import TurnEntry
from perdure.clients.turns.status import pending
from perdure.temporal import access
from perdure.temporal.histories.runs import describe_last, runs_up_to
from perdure.turn import gates, jobs
from perdure.turn.approvals import already
from perdure.values.approvals import Decision, PendingApproval, token_of

if TYPE_CHECKING:
    from perdure.clients.turns.readable import ReadableTurn


async def calls_that_wait(client: Client, turn_id: str, run_id: str) -> tuple[PendingApproval, ...]:
    """Return the calls of a turn that wait for a person now. `run_id` is the id of any of its runs.

    Raises:
        PerdureError: As `Turn.pending_approvals` does.
    """
    with access.TURN.asking(turn_id):
        description = await describe_last(client, turn_id, run_id, retry=True)
        runs = await runs_up_to(client, description)
    state = await state_of(client, turn_id, runs[-1])
    return (*pending(state, runs[0], datetime.now(UTC)), *jobs.pending(state))


def full(approval: PendingApproval) -> str:
    """Return the name that is valid in any run."""
    return f"{approval.call_id}:{approval.token}"


async def named(
    client: Client, turn: ReadableTurn[Any], calls: Sequence[str], *, to_run: bool
) -> list[PendingApproval]:
    """Return the waiting calls with these names, all of them before anything is decided.

    Args:
        client: Temporal's client.
        turn: The turn of the calls.
        calls: Ids of calls, or `CALL:TOKEN`.
        to_run: Whether they are to be approved or settled. To deny a call, its id is sufficient.

    Raises:
        ApprovalConflictError: A call does not wait, does not match its token, or lacks a token
            that it needs.
        ServerUnreachableError: Temporal does not answer.
    """
    pending = await turn.pending_approvals()
    waiting = {
        name: approval for approval in pending for name in (approval.call_id, full(approval))
    }
    for call in calls:
        if call in waiting and not waiting[call].is_job:
            continue
        earlier = await _earlier(client, turn, call, pending)
        if call not in waiting or earlier is not None:
            raise _unknown(turn, call, pending, earlier)
    selected = {call: waiting[call] for call in calls}
    if to_run:
        plain = [approval for call, approval in selected.items() if call != full(approval)]
        await _refuse_ambiguous(client, turn, plain)
    return list({full(approval): approval for approval in selected.values()}.values())


async def _refuse_ambiguous(
    client: Client, turn: ReadableTurn[Any], plain: Sequence[PendingApproval]
) -> None:
    """Check that ids alone identify the calls that were reviewed.

    Raises:
        ApprovalConflictError: One of these calls, which were given without a token, needs it.
        ServerUnreachableError: Temporal does not answer.
    """
    changed = next(
        (approval for approval in plain if approval.reason and not approval.is_unknown), None
    )
    if changed is not None and changed.is_question:
        raise errors.ApprovalConflictError(
            f"people are asked more than once about call {changed.call_id!r} of turn {turn.id!r}:"
            " look at the question, and answer it with its token; nothing was decided"
        )
    if changed is not None:
        raise errors.ApprovalConflictError(
            f"the tool of call {changed.call_id!r} of turn {turn.id!r} has changed, so the call"
            " waits for a person again: review it and approve it with its token; nothing was"
            " decided"
        )
    if plain and not await is_only_run(client, turn):
        raise errors.ApprovalConflictError(
            f"turn {turn.id!r} was started again or reset, so {plain[0].call_id!r} alone does not"
            " identify the reviewed call: review the call again and decide with its token; nothing"
            " was decided"
        )


async def of_all(
    client: Client, entries: AsyncIterable[TurnEntry]
) -> AsyncIterator[tuple[TurnEntry, PendingApproval | errors.PayloadDecodeError]]:
    """Yield the calls of several turns that wait for a person.

    For a turn that cannot be decoded, yield the error instead.
    """
    async for entry in entries:
        try:
            approvals = await calls_that_wait(client, entry.id, entry.run_id)
        except errors.PayloadDecodeError as error:
            yield entry, error
        else:
            for approval in approvals:
                yield entry, approval


async def is_only_run(client: Client, turn: ReadableTurn[Any]) -> bool:
    """Whether no run of another turn has had the turn's id, as far as Temporal still has them.

    Raises:
        ServerUnreachableError: Temporal does not answer.
    """
    written = turn.id.replace("\\", "\\\\").replace("'", "\\'")
    own_runs = await runs_of(client, turn.id)
    if (await turn.first_run()) not in own_runs:
        return False
    try:
        with access.TURN.asking(turn.id):
            async for run in client.list_workflows(f"WorkflowId = '{written}'"):
                if run.id == turn.id and run.run_id not in own_runs:
                    return False
    except errors.InvalidRequestError:  # an id that no query can hold
        return False
    return True


async def decision_about(client: Client, turn: ReadableTurn[Any], call_id: str) -> Decision | None:
    """Return what people have decided about a call of a turn; None if nobody has.

    Raises:
        PerdureError: The history cannot be read.
    """
    state = await state_of(client, turn.id, await turn.first_run())
    return gates.earlier_decision(state, call_id)


async def _earlier(
    client: Client, turn: ReadableTurn[Any], name: str, pending: Sequence[PendingApproval]
) -> Decision | None:
    """Return what was decided about the call with a name that no waiting call has; None if nothing.

    While people are asked something else about the call, the token says what is meant.
    """
    call_id, _, token = name.partition(":")
    first_run = await turn.first_run()
    decisions = gates.decisions_about(await state_of(client, turn.id, first_run), call_id)
    same = [each for each in decisions if token == token_of(first_run, call_id, each.digest)]
    waits = any(approval.call_id == call_id and not approval.is_job for approval in pending)
    return next(reversed(same if same or waits else decisions), None)


def _unknown(
    turn: ReadableTurn[Any],
    call: str,
    pending: tuple[PendingApproval, ...],
    earlier: Decision | None,
) -> errors.ApprovalConflictError:
    if earlier is not None:
        reason = f"{already(earlier)}, in turn {turn.id!r}"
    elif any(call.startswith(f"{approval.call_id}:") for approval in pending):
        reason = (
            f"the token of {call!r} is not that of the call that waits in turn {turn.id!r}:"
            " its arguments differ, or the turn was started again; review the call again"
        )
    else:
        names = ", ".join(approval.call_id for approval in pending) or "none"
        reason = f"no call {call!r} of turn {turn.id!r} waits for approval (waiting: {names})"
    return errors.ApprovalConflictError(f"{reason}; nothing was decided")
