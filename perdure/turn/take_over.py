"""What a run begins with when it takes over the state or the messages of another run. Pure.

`carry` is the other side: what the other run leaves, and the parts in which it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure import errors
from perdure.base import replace
from perdure.turn import steps
from perdure.turn.carry import Carried
from perdure.turn.facts import CallFailed
from perdure.turn.keys import parse_key
from perdure.turn.open_step import Attempts, OpenCall, OpenStep
from perdure.turn.snapshot import AttemptsRecord, OpenRecord, Snapshot, TokenRecord
from perdure.turn.state import Accounts, Handoffs, TurnState
from perdure.turn.token_estimate import Estimate
from perdure.turn.transcript import TokenCount, Transcript
from perdure.turn.wire import Origin
from perdure.values.messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.reports import Step
from perdure.values.tasks import opening


def apply(state: TurnState, carried: Carried) -> TurnState:
    """Return the state of a run after it has taken over the state of another run.

    Raises:
        TranscriptMismatchError: It is not what the origin says.
    """
    origin = state.origin
    assert origin is not None
    if carried.digest != origin.digest:
        raise errors.TranscriptMismatchError(
            f"the state carried over from {origin.turn_id!r} has the digest {carried.digest[:16]},"
            f" and not {origin.digest[:16]}, as its run {origin.run_id} recorded; nothing was sent"
        )
    if state.transcript.absent:
        return complete(state, carried.messages)
    if carried.snapshot is None:
        return _begin(state, carried, origin.say)
    return _restore(state, carried)


def _begin(state: TurnState, carried: Carried, say: str) -> TurnState:
    """Return the state of a fork with its messages, and what the user says after them.

    A turn of a session has its own task after them.
    """
    request, first = state.request, carried.opening
    added = (UserMessage.of(say),) if say else ()
    is_after_session = bool(request and request.origin and request.origin.is_session)
    if request is not None and is_after_session:
        added, first = (opening(request.task, request.context),), len(carried.messages)
    for message in (*carried.messages, *added):
        state = steps.append(state, message)
    transcript, tokens = state.transcript, state.tokens
    if is_after_session:
        transcript = _with_own_media(transcript, first)
    return replace(
        state,
        transcript=replace(transcript, opening=first),
        tokens=replace(tokens, asked_bound=tokens.bound),
    )


def _with_own_media(transcript: Transcript, first: int) -> Transcript:
    """Return the transcript of a turn of a session, which begins at place `first`.

    Only the images and files from there on keep a model from being asked: a message that no model
    of the agent takes would otherwise end every later turn of its session.
    """
    own = (
        message
        for message in transcript.messages[first:]
        if isinstance(message, UserMessage) and message.id is None
    )
    return replace(transcript, media=tuple(part for message in own for part in message.media))


def begin_after(state: TurnState, origin: Origin) -> TurnState:
    """Return the state of a turn that begins without the messages of its session before it.

    Any other turn has no messages until the messages of its origin are carried over.
    """
    before, request = origin.preceding, state.request
    if before is None or request is None:
        return state
    transcript = replace(
        state.transcript,
        absent=origin.steps,
        digest=origin.digest,
        size_bytes=before.size_bytes,
        opening=origin.steps,
        call_ids=frozenset(before.call_ids),
    )
    tokens = TokenCount(bound=before.token_bound, estimate=Estimate(messages=before.token_estimate))
    state = replace(state, transcript=transcript, tokens=tokens)
    state = steps.append(state, opening(request.task, request.context))
    return replace(state, tokens=replace(state.tokens, asked_bound=state.tokens.bound))


def complete(state: TurnState, preceding: tuple[Message, ...]) -> TurnState:
    """Return the state with the messages of the session before the turn, which it lacked."""
    transcript = replace(
        state.transcript, messages=(*preceding, *state.transcript.messages), absent=0
    )
    return replace(state, transcript=transcript)


def _restore(state: TurnState, carried: Carried) -> TurnState:
    """Return the state of a turn that continues in a new run. `state` has the request."""
    snapshot = carried.snapshot
    assert snapshot is not None
    messages = carried.messages
    results: tuple[ToolResult, ...] = ()
    if snapshot.open.gates and isinstance(messages[-1], ToolMessage):
        results = messages[-1].results
        messages = messages[:-1]
    for message in messages:
        state = steps.append(state, message)
    transcript = state.transcript
    if state.request is not None and state.request.session is not None:
        transcript = _with_own_media(transcript, snapshot.opening)
    return replace(
        state,
        agent=carried.agent,
        handoffs=Handoffs(snapshot.handed_by, snapshot.worked, snapshot.handed_at),
        transcript=replace(
            transcript,
            opening=snapshot.opening,
            left_before=snapshot.left_out,
            left_out=snapshot.left_out,
        ),
        tokens=_restored_tokens(snapshot.tokens, state.tokens),
        steps=tuple(_last_steps(messages, snapshot)),
        carried=replace(
            state.carried,
            steps=snapshot.steps - len(snapshot.last),
            recorded=snapshot.steps,
            messages=len(messages),
            warned_of_loop=snapshot.warned_of_loop,
            unsettled=snapshot.unsettled,
        ),
        open_step=_open_step(messages, results, snapshot.open),
        attempts=_attempts(snapshot.attempts),
        accounts=Accounts(
            ledger=snapshot.ledger,
            usage=snapshot.usage,
            model_calls=snapshot.model_calls,
            closed_calls=snapshot.closed_calls,
            more_iterations=snapshot.more_iterations,
            unpriced=snapshot.unpriced,
        ),
        children=carried.children,
        effects=snapshot.effects,
        inbox=snapshot.inbox,
        events=snapshot.events,
        last_events=snapshot.last_events,
        shared=snapshot.shared,
        waiting=snapshot.waiting,
        finishing=snapshot.finishing,
    )


def _restored_tokens(record: TokenRecord, counted: TokenCount) -> TokenCount:
    """Return the count for these messages, which `counted` has counted without a base."""
    return replace(
        counted,
        base=record.base,
        asked_bound=record.asked_bound,
        known=record.known,
        known_at=counted.bound - record.grown,
        known_by=record.known_by,
        estimate=replace(
            counted.estimate.on(record.base), told=record.told, told_of=record.told_of
        ),
    )


def _last_steps(messages: Sequence[Message], snapshot: Snapshot) -> Iterator[Step]:
    """Yield the last closed steps, with their messages and results."""
    answers = [
        position
        for position, message in enumerate(messages)
        if isinstance(message, AssistantMessage)
    ]
    if snapshot.open.gates:  # the last answer belongs to the open step
        answers.pop()
    if not snapshot.last:
        return
    for last, position in zip(snapshot.last, answers[-len(snapshot.last) :], strict=True):
        following = messages[position + 1] if last.ran else None
        message = messages[position]
        assert isinstance(message, AssistantMessage)
        results = following.results if isinstance(following, ToolMessage) else ()
        yield last.step.model_copy(update={"message": message, "results": results})


def _open_step(
    messages: Sequence[Message], results: Sequence[ToolResult], record: OpenRecord
) -> OpenStep:
    answer = record.answer
    calls: tuple[OpenCall, ...] = ()
    if answer is not None:
        message = next(each for each in reversed(messages) if isinstance(each, AssistantMessage))
        answer = answer.model_copy(update={"message": message})
        by_call = {result.call_id: result for result in results}
        none = (None,) * len(record.gates)
        of_calls = zip(
            message.calls,
            record.gates,
            record.doubts or none,
            record.losses or none,
            record.waits or none,
            record.jobs or none,
            record.inquiries or none,
            strict=False,
        )
        calls = tuple(
            OpenCall(call, gate, by_call.get(call.id), *more) for call, gate, *more in of_calls
        )
    return OpenStep(
        answer=answer,
        calls=calls,
        decisions=record.decisions,
        objections=record.objections,
        tried=record.tried,
        bill=record.bill,
        unpassed=record.unpassed,
        broken=record.broken,
    )


def _attempts(record: AttemptsRecord) -> Attempts:
    failures = []
    for failure in record.failures:
        key = parse_key(failure.key)
        if key is not None:
            failures.append(CallFailed(key, failure.error, failure.lost, failure.model))  # type: ignore[arg-type]  # its own key
    return Attempts(
        failures=tuple(failures),
        pardoned=record.pardoned,
        rounds=record.rounds,
        round_at=record.round_at,
        passed=record.passed,
        stopped=record.stopped,
    )
