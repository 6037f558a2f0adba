"""Carries the state of a turn over to another run: a later run of the same turn, or a fork. Pure.

Both runs compute the same digest of what is carried over: the old run from its state, the new run
from the parts that it received. What the models were not sent any more, because the transcript is
too long for them, stays behind; a report reads it in the history of the old run.

`take_over` is the other side: what the new run begins with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain as joined
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition
from perdure.base import replace
from perdure.turn import guards, handoffs, reservations, steps, unsettled
from perdure.turn.child import Child
from perdure.turn.context_window import NO_CUT, kept
from perdure.turn.effect_values import EffectScopes
from perdure.turn.keys import PollKey
from perdure.turn.open_step import Attempts, OpenStep
from perdure.turn.snapshot import (
    VERSION,
    AttemptsRecord,
    CarriedPart,
    FailureRecord,
    LastStep,
    OpenRecord,
    Snapshot,
    TokenRecord,
)
from perdure.turn.state import TurnState
from perdure.turn.wire import Origin, Preceding
from perdure.values.messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    ToolResult,
    closed,
    digest_of,
)
from perdure.values.reports import Step

_Item = Message | Child | AgentDefinition | Snapshot

T = TypeVar("T")

_NOT_IN_DIGEST: Mapping[str, bool | Mapping[str, bool]] = {
    "unsettled": True,
    "shared": True,
    "open": {"losses": True},
}
"""What earlier releases did not carry over. No message follows from it."""
_NO_MESSAGE = AssistantMessage(parts=())
_CHILDREN: TypeAdapter[tuple[Child, ...]] = TypeAdapter(tuple[Child, ...])


@dataclass(frozen=True, slots=True)
class Carried:
    """What is carried over. A fork has only messages, and the place of its task."""

    messages: tuple[Message, ...]
    opening: int
    children: tuple[Child, ...] = ()
    agent: AgentDefinition | None = None
    snapshot: Snapshot | None = None

    @property
    def digest(self) -> str:
        """The SHA-256 of all of it, in hex; for a fork, the running digest of its messages."""
        digest = digest_of(self.messages)
        if self.snapshot is None or self.agent is None:
            return digest
        lines = (
            digest.encode(),
            _CHILDREN.dump_json(self.children, exclude_defaults=True),
            self.agent.model_dump_json(exclude_defaults=True).encode(),
            self.snapshot.model_dump_json(exclude_defaults=True, exclude=_NOT_IN_DIGEST).encode(),
        )
        return hashlib.sha256(b"\n".join(lines)).hexdigest()


def messages_of(state: TurnState) -> Carried:
    """Return the messages for a fork, as the first model of the turn's agent would be sent them.

    The message that announces the end of the budget is left out if it is the last message: a fork
    has a budget of its own. Calls in a last answer that was cut off get a result that says so.
    Thoughts from before a handoff are left out, because the agent of the fork does not get them
    either.
    """
    carried = _sent(replace(state, transcript=handoffs.without_earlier_thoughts(state)))
    messages = carried.messages
    if state.finishing and messages[-1] == reservations.LAST_WORDS:
        messages = messages[:-1]
    if isinstance(messages[-1], AssistantMessage):
        messages = (*messages[:-1], *closed(messages[-1:]))
    return replace(carried, messages=messages)


def may_be_asked(carried: Carried) -> bool:
    """Return whether a model can be asked after these messages: the last is not an answer."""
    return not isinstance(carried.messages[-1], AssistantMessage)


def _sent(state: TurnState) -> Carried:
    transcript = state.transcript
    cut = transcript.cut(state.agent.model) if state.agent else NO_CUT
    messages, opening = kept(transcript.messages, cut, transcript.opening)
    return Carried(messages, opening)


def state_of(state: TurnState) -> Carried:
    """Return the whole state of a turn. Nothing of the turn may be running, except for polls.

    A poll only reads. It may be about to end when its call has got its result in another way.
    """
    assert state.agent is not None
    assert all(isinstance(key, PollKey) for key in state.in_flight)
    carried = _sent(state)
    results = state.open_step.results
    since = len(state.transcript.messages) - state.handoffs.place
    handed_at = max(len(carried.messages) - since, 0) if state.handoffs.by else 0
    return replace(
        carried,
        messages=(*carried.messages, ToolMessage(results=results)) if results else carried.messages,
        children=tuple(map(_brief, state.children)),
        agent=state.agent,
        snapshot=_snapshot(state, carried, handed_at),
    )


def _brief(child: Child) -> Child:
    """Return a delegate's turn without what its parent does not need any more."""
    lineage = child.request.lineage
    lineage = lineage and lineage.model_copy(update={"tools": ()})
    changes: dict[str, Any] = {
        "lineage": lineage,
        "labels": {},
        "effects": (),
        "effect_scopes": EffectScopes(),
    }
    return replace(child, request=child.request.model_copy(update=changes))


def _snapshot(state: TurnState, carried: Carried, handed_at: int) -> Snapshot:
    assert state.agent is not None
    last = _last_carried(state, carried)
    accounts = state.accounts
    return Snapshot(
        steps=state.step_count,
        last=tuple(
            LastStep(
                step=step.model_copy(update={"message": _NO_MESSAGE, "results": ()}),
                ran=bool(step.results),
            )
            for step in last
        ),
        warned_of_loop=guards.warned_of_loop(state, state.agent),
        opening=carried.opening,
        left_out=state.transcript.left_out_for(state.agent.model),
        tokens=_tokens(state),
        open=_open_record(state.open_step),
        attempts=_attempts_record(state.attempts),
        ledger=accounts.ledger,
        usage=accounts.usage,
        model_calls=accounts.model_calls,
        closed_calls=accounts.closed_calls,
        more_iterations=accounts.more_iterations,
        unpriced=accounts.unpriced,
        waiting=state.waiting,
        inbox=state.inbox,
        finishing=state.finishing,
        handed_by=state.handoffs.by,
        worked=state.handoffs.worked,
        handed_at=handed_at,
        effects=state.effects,
        unsettled=unsettled.places(state)[-limits.KNOWN_EFFECTS :],
        events=state.events,
        last_events=state.last_events,
        shared=state.shared,
    )


def _last_carried(state: TurnState, carried: Carried) -> tuple[Step, ...]:
    """Return the last closed steps whose answers are carried: a handoff may leave out some."""
    answers = sum(isinstance(message, AssistantMessage) for message in carried.messages)
    closed_ = answers - bool(state.open_step.calls)
    return state.steps[max(len(state.steps) - min(limits.SAME_CALLS, closed_), 0) :]


def _tokens(state: TurnState) -> TokenRecord:
    """Return what is known of the tokens. A report for other messages than these is dropped."""
    assert state.agent is not None
    tokens, model = state.tokens, state.agent.model
    record = TokenRecord(
        base=tokens.base,
        asked_bound=tokens.asked_bound,
        told=tokens.estimate.told,
        told_of=tokens.estimate.told_of,
    )
    if (tokens.known_by, tokens.known_cut) != (model, state.transcript.cut(model)):
        return record
    known = {
        "known": tokens.known,
        "grown": tokens.bound - tokens.known_at,
        "known_by": tokens.known_by,
    }
    return record.model_copy(update=known)


def _open_record(step: OpenStep) -> OpenRecord:
    return OpenRecord(
        answer=step.answer and step.answer.model_copy(update={"message": _NO_MESSAGE}),
        gates=tuple(call.gate for call in step.calls),
        doubts=_if_any(tuple(call.doubt for call in step.calls)),
        losses=_if_any(tuple(call.loss for call in step.calls)),
        waits=_if_any(tuple(call.wait for call in step.calls)),
        jobs=_if_any(tuple(call.job for call in step.calls)),
        inquiries=_if_any(tuple(call.inquiry for call in step.calls)),
        decisions=step.decisions,
        objections=step.objections,
        tried=step.tried,
        bill=step.bill,
        unpassed=step.unpassed,
        broken=step.broken,
    )


def _if_any(values: tuple[T, ...]) -> tuple[T, ...]:
    return values if any(values) else ()


def _attempts_record(attempts: Attempts) -> AttemptsRecord:
    return AttemptsRecord(
        failures=tuple(
            FailureRecord(
                key=str(failure.key), error=failure.error, lost=failure.lost, model=failure.model
            )
            for failure in attempts.failures
        ),
        pardoned=attempts.pardoned,
        rounds=attempts.rounds,
        round_at=attempts.round_at,
        passed=attempts.passed,
        stopped=attempts.stopped,
    )


def split(carried: Carried, most_bytes: int = limits.PART_BYTES) -> tuple[CarriedPart, ...]:
    """Return the parts, each of at most `most_bytes` of JSON unless one item is larger.

    An item is a message, the results of a call, a turn of a delegate, the agent, or the snapshot.
    """
    parts, room = [_Draft()], most_bytes
    for item, size in _items(carried):
        if size > room and room < most_bytes:
            parts.append(_Draft())
            room = most_bytes
        parts[-1].add(item)
        room -= size
    return tuple(
        CarriedPart(
            version=VERSION,
            number=number,
            count=len(parts),
            messages=_merged(part.messages),
            children=tuple(part.children),
            agent=part.agent,
            snapshot=part.snapshot,
            opening=carried.opening,
        )
        for number, part in enumerate(parts, 1)
    )


@dataclass(slots=True)
class _Draft:
    """The content of a part."""

    messages: list[Message] = field(default_factory=list)
    children: list[Child] = field(default_factory=list)
    agent: AgentDefinition | None = None
    snapshot: Snapshot | None = None

    def add(self, item: _Item) -> None:
        match item:
            case Child():
                self.children.append(item)
            case AgentDefinition():
                self.agent = item
            case Snapshot():
                self.snapshot = item
            case _:
                self.messages.append(item)


def _items(carried: Carried) -> Iterator[tuple[_Item, int]]:
    """Yield everything in small pieces, each with its bytes of JSON."""
    for message in carried.messages:
        if isinstance(message, ToolMessage):
            for result in message.results:
                yield ToolMessage(results=(result,)), len(to_json(result))
        else:
            yield message, len(to_json(message))
    for child in carried.children:
        yield child, len(_CHILDREN.dump_json((child,)))
    for item in (carried.agent, carried.snapshot):
        if item is not None:
            yield item, len(to_json(item))


def _merged(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Join the results of tool messages in a row: only a split message has several."""
    out: list[Message] = []
    results: list[ToolResult] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            results += message.results
            continue
        if results:
            out.append(ToolMessage(results=tuple(results)))
            results = []
        out.append(message)
    return (*out, ToolMessage(results=tuple(results))) if results else tuple(out)


def join(parts: Sequence[CarriedPart]) -> Carried:
    """Return what `split` was given.

    Raises:
        TranscriptMismatchError: Parts are missing.
    """
    if [part.number for part in parts] != list(range(1, parts[0].count + 1)):
        raise errors.TranscriptMismatchError(
            f"parts {[part.number for part in parts]} of {parts[0].count} were carried over"
        )
    return Carried(
        messages=_merged(tuple(joined.from_iterable(part.messages for part in parts))),
        opening=parts[0].opening,
        children=tuple(joined.from_iterable(part.children for part in parts)),
        agent=next((part.agent for part in parts if part.agent), None),
        snapshot=next((part.snapshot for part in parts if part.snapshot), None),
    )


def after_session(session_id: str, run_id: str, messages: Sequence[Message]) -> Origin | None:
    """Return the origin of a turn that follows these messages of a session; None without any."""
    if not messages:
        return None
    state = TurnState()
    for message in messages:
        state = steps.append(state, message)
    preceding = Preceding(
        size_bytes=state.transcript.size_bytes,
        token_bound=state.tokens.bound,
        token_estimate=state.tokens.estimate.messages,
        call_ids=tuple(sorted(state.transcript.call_ids)),
    )
    return Origin(
        turn_id=session_id,
        run_id=run_id,
        steps=len(messages),
        digest=state.transcript.digest,
        is_session=True,
        preceding=preceding,
    )
