"""What Perdure promises about the webhooks that tell of waits, as a check of a simulated run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from temporalio.api.history.v1 import HistoryEvent

from perdure.delivery.webhook import WaitMessage
from perdure.temporal.names import MEMO_WAIT, WEBHOOK
from perdure.testing.simulation.delivery_promises import call_of, check_attempts
from perdure.testing.simulation.observations import Simulated, chain, effects_of, last_runs
from perdure.testing.simulation.server.history import attributes, name_of, tasks
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.facts import CancelRequested, TaskBegan, WaitBegan, WaitEnded
from perdure.turn.waiting import DELAY, PEOPLE, PROVIDER
from perdure.values.reports import Outcome

PROMISE = "waits are told once"

_TOLD = (*PEOPLE, PROVIDER)
_OF_WAITS = (WaitBegan, WaitEnded, CancelRequested, TaskBegan)


_TELLS_OF_WAITS = 6
"""The first rules of turns that tell of their waits."""


def waits_are_told_once(simulated: Simulated) -> None:
    """A turn that was started with `on_wait` tells each wait once, in their order, and no other.

    They are the waits for a person, for budget and for a provider, also of its delegates. The
    message says what is waited for, and each attempt has the same id. A wait that a cancel, a
    deadline or a message ends as it begins may not be told, nor one that a cancel ends while a
    delegate tells its parent of it.
    """
    runs = simulated.server.runs
    told = [
        (run, *run.parent)
        for run in runs
        if run.begun.type == WEBHOOK and run.parent is not None and call_of(run).message
    ]
    ids = [call_of(run).id for run, *_ in told]
    if len(set(ids)) != len(ids):
        raise BrokenError(PROMISE, f"several messages have the ids {sorted(ids)}")
    for delivery, turn, _ in told:
        received = check_attempts(simulated, delivery, turn)
        if any(one.message != call_of(delivery).message for one in received):
            raise BrokenError(PROMISE, "an attempt has another message", delivery)
    for turn in last_runs(simulated.server):
        if _is_of_earlier(simulated, turn):
            continue
        events = effects_of(simulated.server, turn)
        mine = [run for run, parent, number in told if number < events.get(parent, 0)]
        _check_order(turn, [call_of(run).message for run in mine], list(told_waits(events, turn)))


def _is_of_earlier(simulated: Simulated, turn: SimulatedRun) -> bool:
    """Return whether an earlier release has begun a turn, which told of no waits.

    Its last run may not have come to know its agent.
    """
    agents = (run.read.agent for run in chain(simulated.server, turn))
    return any(agent is not None and agent.rules < _TELLS_OF_WAITS for agent in agents)


def told_waits(
    runs: dict[SimulatedRun, int], turn: SimulatedRun
) -> Iterator[tuple[WaitBegan, bool]]:
    """Yield the waits of a turn, in all of its runs, and whether each outlived its first task.

    A run that was reset has them up to there. A cancel that came before a wait has ended it, which
    is recorded with the end of the turn. A provider that is busy again is the same wait until it
    has answered.
    """
    before: WaitBegan | WaitEnded | None = None
    for run in runs:
        if run.begun.run_id == turn.begun.run_id or not run.is_replaced:
            kept = [one for one in run.facts if isinstance(one, _OF_WAITS)]
            is_cancelled = False
            for fact, after in zip_longest(kept, kept[1:]):
                is_cancelled = is_cancelled or isinstance(fact, CancelRequested)
                if (
                    isinstance(fact, WaitBegan)
                    and fact.kind in _TOLD
                    and not _goes_on(before, fact)
                ):
                    yield fact, not (is_cancelled or isinstance(after, WaitEnded))
                if isinstance(fact, WaitBegan | WaitEnded):
                    before = fact


def _goes_on(before: WaitBegan | WaitEnded | None, wait: WaitBegan) -> bool:
    """Return whether a wait goes on, for a provider that was not back meanwhile."""
    is_same = isinstance(before, WaitBegan) and before.kind == wait.kind == PROVIDER
    return is_same and not wait.limit


def _came_with_its_deadline(turn: SimulatedRun) -> bool:
    """Return whether a turn has timed out in the task in which its last wait began.

    The wait goes on as long as the turn takes to end.
    """
    if turn.read.ended is None or turn.read.ended.outcome is not Outcome.TIMED_OUT:
        return False
    began = [task for task in tasks(turn.history.events) if any(map(_tells, task.written))]
    return bool(began) and any(name_of(event) == "TIMER_FIRED" for event in began[-1].news)


def _tells(event: HistoryEvent) -> bool:
    """Return whether an event begins a wait that is told."""
    if name_of(event) != "WORKFLOW_PROPERTIES_MODIFIED":
        return False
    memo = attributes(event).upserted_memo.fields
    shown = json.loads(memo[MEMO_WAIT].data or "null") if MEMO_WAIT in memo else None
    return shown is not None and shown.get("kind") in _TOLD


def _check_order(
    turn: SimulatedRun,
    told: Sequence[WaitMessage | None],
    waits: Sequence[tuple[WaitBegan, bool]],
) -> None:
    """Check that the messages of a turn are those of its waits."""
    url = turn.read.request.on_wait if turn.read.request else None
    kinds = [message.data.kind for message in told if message is not None]
    if DELAY in kinds:
        raise BrokenError(PROMISE, "it tells that it has not begun yet", turn)
    left = list(kinds)
    last_is_over = (turn.is_delegate and turn.is_cancelled) or _came_with_its_deadline(turn)
    for wait, has_lasted in waits if url is not None else ():
        if left and left[0] == wait.kind:
            left.pop(0)
        elif has_lasted and not (last_is_over and wait is waits[-1][0]):
            raise BrokenError(PROMISE, f"it has told of {kinds}, and not of {wait.kind}", turn)
    if left:
        raise BrokenError(PROMISE, f"it has told of {kinds}, and {left} are no waits", turn)
