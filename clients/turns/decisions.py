"""What people have decided lately about the calls of turns, as the histories of the turns say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from datetime import datetime
from itertools import chain

from temporalio.client import Client

from perdure import errors, limits
from perdure.base import Value
from perdure.clients.reading.recorded import past
from perdure.clients.turns.entries import TurnEntry
from perdure.turn.facts import Decided
from perdure.turn.state import TurnState
from perdure.values.approvals import Decision, Settlement

_AT_ONCE = 8


class DecidedCall(Value):
    """A call that a person has decided about.

    Attributes:
        turn: The turn of the call.
        call_id: The id of the call.
        tool: The name of its tool.
        arguments: Its arguments as JSON, as the model wrote them.
        approve: Whether it may run, or was answered.
        settlement: What became of a call whose outcome was unknown; None for others.
        is_answer: Whether it was a question, which was answered.
        reason: The reason for the decision, or the result that a settled call has had.
        by: Who decided; None without a name.
        at: When.
    """

    turn: TurnEntry
    call_id: str
    tool: str
    arguments: str
    approve: bool
    settlement: Settlement | None = None
    is_answer: bool = False
    reason: str = ""
    by: str | None = None
    at: datetime


async def of_all(client: Client, entries: AsyncIterable[TurnEntry]) -> list[DecidedCall]:
    """Return the decisions about calls of these turns, the last first.

    Of a turn in several runs, only the last is read. A turn that cannot be read is left out.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def read(entry: TurnEntry) -> list[DecidedCall]:
        async with slots:
            try:
                return await _of_turn(client, entry)
            except (errors.PayloadDecodeError, errors.TurnNotFoundError):
                return []

    known: list[TurnEntry] = []
    async for entry in entries:
        known.append(entry)
        if len(known) == limits.DECISIONS_TURNS:
            break
    found = chain.from_iterable(await asyncio.gather(*map(read, known)))
    return sorted(found, key=lambda decided: decided.at, reverse=True)


async def _of_turn(client: Client, entry: TurnEntry) -> list[DecidedCall]:
    found: list[DecidedCall] = []
    state = TurnState()
    for event in (await past(client, entry.id, entry.run_id)).events:
        before, state = state, event.onto(state)
        if isinstance(event.fact, Decided):
            found.append(_decided(entry, before, event.fact.decision, event.at))
    return found


def _decided(entry: TurnEntry, state: TurnState, decision: Decision, at: datetime) -> DecidedCall:
    place = state.open_step.place_of(decision.call_id)
    call = None if place is None else state.open_step.at(place).call
    return DecidedCall(
        turn=entry,
        call_id=decision.call_id,
        tool=call.name if call else "",
        arguments=call.arguments if call else "",
        approve=decision.approve,
        settlement=decision.settlement,
        is_answer=decision.answer is not None,
        reason=decision.reason,
        by=decision.by,
        at=at,
    )
