"""Calls whose result comes later: the job that the tool has started, its result, its end. Pure.

The call waits as one of `wait_for` does, for an event that only its token names. A result that
comes before the tool has returned, or while the turn waits for something else, is kept by the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from perdure import errors, limits, validation
from perdure.agents.definitions import AgentDefinition
from perdure.agents.jobs import PinnedJob
from perdure.base import replace
from perdure.errors import TooLargeError
from perdure.text import head, one_line, size
from perdure.turn import call_tokens, effects, inquiries, steps
from perdure.turn.approvals import digest_of
from perdure.turn.call_tokens import CallToken, TurnRun
from perdure.turn.facts import CallFinished, JobStopped, Polled, ToolLost, ToolReturned
from perdure.turn.job_values import CallJob, FinishCall
from perdure.turn.keys import ToolKey
from perdure.turn.open_step import OpenCall
from perdure.turn.state import TurnState
from perdure.turn.wait_values import CallWait, Woken
from perdure.turn.wire import ToolOutput
from perdure.values.approvals import PendingApproval
from perdure.values.losses import Loss


def pinned_job(state: TurnState, open_call: OpenCall) -> PinnedJob | None:
    """Return what the turn is pinned to of the jobs of the tool that a call names."""
    tool = state.agent.tool(open_call.call.name) if state.agent else None
    return tool.job if tool else None


def open_keys(state: TurnState) -> tuple[ToolKey, ...]:
    """Return the keys of the open calls whose jobs have begun and have no result."""
    return tuple(
        ToolKey(state.step_count + 1, position)
        for position, open_call in state.open_step.unfinished
        if open_call.job is not None and open_call.job.begun and open_call.job.output is None
    )


def began(state: TurnState, key: ToolKey, output: ToolOutput) -> TurnState:
    """Return the state after a tool has started a job."""
    return _with_job(inquiries.over(state, key), key, begun=output)


def finished(state: TurnState, fact: CallFinished) -> TurnState:
    """Return the state with a result, unless the call has one already."""
    return _with_output(state, fact.key, fact.output, fact.by)


def polled(before: TurnState, fact: Polled) -> TurnState:
    """Return the state after the polls of a call have ended: with its result, or a question."""
    state = replace(before, in_flight=before.without(fact.key))
    key = ToolKey(fact.key.step, fact.key.call)
    if fact.output is None:
        return state
    if fact.output.inquiry is None:
        return _with_output(state, key, fact.output, None)
    is_awaited = key in open_keys(state)
    return inquiries.asked(state, key, fact.output.inquiry) if is_awaited else state


def stopped(before: TurnState, fact: JobStopped) -> TurnState:
    """Return the state after the cancel of a job was requested."""
    state, key = replace(before, in_flight=before.without(fact.key)), fact.key
    if not steps.is_open(state, key):
        return state
    said = f"it could not be cancelled: {fact.problem}" if fact.problem else "it was cancelled"
    return _with_job(state, ToolKey(key.step, key.call), stopped=said)


def _with_output(state: TurnState, key: ToolKey, output: ToolOutput, by: str | None) -> TurnState:
    if not steps.is_open(state, key):
        return state
    job = state.open_step.at(key.call).job
    if job is not None and job.output is not None:
        return state
    return _with_job(state, key, output=output, by=by)


def _with_job(state: TurnState, key: ToolKey, **changes: object) -> TurnState:
    open_call = state.open_step.at(key.call)
    job = (open_call.job or CallJob()).model_copy(update=changes)
    step = state.open_step.with_call(key.call, replace(open_call, job=job))
    return replace(state, open_step=step)


def wait_of(open_call: OpenCall, pinned: PinnedJob, key: ToolKey, now: datetime) -> CallWait:
    """Return the wait of a call that begins now."""
    handle = open_call.job.handle if open_call.job else ""
    what = "to be run by the client" if pinned.by_client else handle
    note = f"{open_call.call.name}: {what}" if what else open_call.call.name
    until = now + timedelta(seconds=pinned.longest_s)
    return CallWait(
        key=str(key),
        note=head(one_line(note, limits.NOTE_CHARACTERS), limits.NOTE_CHARACTERS),
        since=now,
        until=until,
        is_job=True,
    )


def for_client(
    wait: CallWait, agent: AgentDefinition, open_call: OpenCall, key: ToolKey, run: TurnRun
) -> CallWait:
    """Return the wait of a call that the client runs, with what is recorded of its token."""
    digest = call_tokens.digest_of(open_call.edited, run.run)
    place = ToolKey(key.step, key.call)
    token = call_tokens.make(agent.call_secret, run.turn_id, place, digest)
    return wait.model_copy(update={"digest": digest, "proof": call_tokens.proof_of(token)})


def given_to_client(open_call: OpenCall) -> OpenCall:
    """Return a call that waits, with its job if the client runs it."""
    wait = open_call.wait
    if wait is None or not wait.is_of_client or open_call.job is not None:
        return open_call
    return replace(open_call, job=CallJob(begun=ToolOutput(content="", proof=wait.proof)))


def pending(state: TurnState) -> Iterator[PendingApproval]:
    """Yield the calls of a turn that wait for the results of jobs, as people see them."""
    if state.ended is not None:
        return
    for _, open_call in state.open_step.unfinished:
        call, wait, job = open_call.edited, open_call.wait, open_call.job
        is_awaited = job is not None and job.output is None and not open_call.is_asked
        if wait is not None and is_awaited:
            yield PendingApproval(
                call_id=call.id,
                tool=call.name,
                arguments=call.arguments,
                digest=digest_of(call),
                expires_at=wait.until,
                is_job=True,
                since=wait.since,
                note=wait.note,
            )


def cause(job: CallJob, wait: CallWait, waited_s: float, *, is_over: bool) -> Woken | None:
    """Return the end of the wait for a job; None if nothing ends it."""
    if job.output is not None:
        return Woken(key=wait.key, by="result", waited_s=waited_s)
    return Woken(key=wait.key, by="time", waited_s=waited_s) if is_over else None


def ended(state: TurnState, key: ToolKey, end: Woken) -> TurnState:
    """Give a call the result of its job; or say that its time is over, and what is known."""
    open_call = state.open_step.at(key.call)
    job = open_call.job
    assert job is not None
    if end.by == "result" and job.output is not None:
        return effects.returned(state, ToolReturned(key, result_of(job, job.output)))
    since = open_call.wait.since if open_call.wait else None
    return effects.lost(state, ToolLost(key, Loss.TIMED_OUT, sent_at=since))


def with_results(state: TurnState) -> TurnState:
    """Give open calls the results of their jobs that have come, without the end of their waits."""
    for position, open_call in state.open_step.unfinished:
        job, key = open_call.job, ToolKey(state.step_count + 1, position)
        if job is not None and job.output is not None:
            state = effects.returned(state, ToolReturned(key, result_of(job, job.output)))
    return state


def result_of(job: CallJob, output: ToolOutput) -> ToolOutput:
    """Return the result of a job, with what the worker knew of its effect when it began."""
    if job.begun is None:
        return output
    begun = {"effect_key": job.begun.effect_key, "same_as": job.begun.same_as}
    if job.begun.content:  # a note; the handle is not in it
        begun["content"] = output.content + job.begun.content
    return output.model_copy(update=begun)


def check(state: TurnState | None, finish: FinishCall, run: str) -> None:
    """Refuse a result that nobody waits for, or that is not proven to be that of the call.

    Args:
        state: The state of the turn; None while it is carried over from the run before.
        finish: What somebody sends.
        run: The end of the id of the first run of the turn.

    Raises:
        InvalidRequestError: It is not the token of an open call of this turn.
        CallFinishedError: The call has a result already.
        TooLargeError: The result is too large.
    """
    token = call_tokens.parse(finish.token)
    validation.check_by("the result of the call", finish.by)
    if (bytes_ := size(finish.content)) > limits.TOOL_RESULT_BYTES:
        raise TooLargeError(
            f"the result of the call is {bytes_} bytes, more than {limits.TOOL_RESULT_BYTES}; send"
            " the address of the rest",
            context={"bytes": bytes_, "limit": limits.TOOL_RESULT_BYTES},
        )
    if state is None:
        return
    secret = state.agent.call_secret if state.agent else ""
    if not token.is_made_with(secret):
        raise call_tokens.not_open()
    if not (_waits_for(state, recorded(finish)) or _runs(state, token, run)):
        raise too_late(state, token.key)


def recorded(finish: FinishCall) -> CallFinished:
    """Return the fact of a result that somebody sends."""
    output = ToolOutput(content=finish.content, is_error=finish.is_error)
    proof = call_tokens.proof_of(finish.token)
    return CallFinished(call_tokens.parse(finish.token).key, output, proof, finish.by)


def fits(state: TurnState, fact: CallFinished) -> bool:
    """Return whether a result that came while the state was carried over is that of an open call.

    While a tool runs, a turn does not go on in a new run.
    """
    return _waits_for(state, fact)


def _waits_for(state: TurnState, fact: CallFinished) -> bool:
    """Return whether a call waits for this result."""
    if not steps.is_open(state, fact.key):
        return False
    job = state.open_step.at(fact.key.call).job
    return job is not None and job.output is None and bool(job.proof) and job.proof == fact.proof


def _runs(state: TurnState, token: CallToken, run: str) -> bool:
    """Return whether the tool of a call still runs, or is to run again, and has no result yet."""
    key = token.key
    if not steps.is_open(state, key):
        return False
    open_call = state.open_step.at(key.call)
    if open_call.job is not None or token.call != call_tokens.digest_of(open_call.edited, run):
        return False
    tools = (key for key in state.in_flight if isinstance(key, ToolKey))
    is_running = any((tool.step, tool.call) == (key.step, key.call) for tool in tools)
    return is_running or state.attempts.has_lost(key)


def too_late(state: TurnState, key: ToolKey) -> errors.CallFinishedError:
    """Return the error of a result that nobody waits for any more."""
    open_call = state.open_step.find(key.call) if key.step == state.step_count + 1 else None
    job = open_call.job if open_call else None
    by = f" by {job.by}" if job is not None and job.by else ""
    return errors.CallFinishedError(
        f"the call has a result already{by}, or is not waited for any more; this one was not taken"
    )
