"""The input of a later run of a turn, after a continue-as-new."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import Field

from perdure.base import Wire
from perdure.turn.circuit_breaker import Record
from perdure.turn.ledger import Ledger
from perdure.turn.wire import Origin, TurnRequest


class Continuation(Wire):
    """What a run passes to the next run of its turn, besides the state that is carried over.

    A release without it rejects it as the input of a turn, because it has no agent and no task at
    the top: a turn that such a worker takes fails, and does not begin again.

    Attributes:
        continues: The end of the run before.
        request: The input of the turn, without its history, which is carried over.
        request_digest: The digest of the whole input.
        first_run: Temporal's id of the first run.
        ledger: The spending so far, in case the state cannot be carried over.
        began: The time when the turn began.
        waited: The time that the turn has waited for people.
        waits_since: The beginning of the current wait for people; None without a wait.
        failing_since: The time of the first of the model's failures that count; None without such
            failures.
        health: The health of the models, by model.
        observed: The number of steps that observers were notified of.
        notified: The number of notifications of observers.
        entered: When the turn entered each middleware, the outermost first.
        updates: The ids of the last updates: the server repeats them in a later run.
        followers: The workflows that are told the news of the turn.
    """

    continues: Origin
    request: TurnRequest
    request_digest: str
    first_run: str
    ledger: Ledger
    began: datetime
    waited: timedelta = timedelta()
    waits_since: datetime | None = None
    failing_since: datetime | None = None
    health: dict[str, Record] = {}
    observed: int = Field(default=0, ge=0)
    notified: int = Field(default=0, ge=0)
    entered: tuple[datetime, ...] = ()
    updates: tuple[str, ...] = ()
    followers: tuple[str, ...] = ()


class CarryCall(Wire):
    """Input of the activity that carries a part over from another run.

    `part` counts from 1. `whole` takes over the whole state, for a later run of the same turn;
    otherwise the messages are taken over, for a fork.
    """

    origin: Origin
    part: int = Field(ge=1)
    whole: bool = False
