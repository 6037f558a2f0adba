"""What Perdure promises about calls whose effects have keys, and about calls that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perdure.temporal.names import TURN
from perdure.testing.simulation.calls.payments import TOOLS, amount_of
from perdure.testing.simulation.observations import Simulated, chain, last_runs
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError, SimulatedServer
from perdure.turn import effects, undo
from perdure.turn.facts import Emitted, WaitBegan, WaitEnded
from perdure.turn.keys import ToolKey, parse_key
from perdure.turn.wait_values import CallWait, Woken
from perdure.values.messages import ToolOutcome
from perdure.values.reports import Outcome

BACK = "effects are taken back once"


def effects_once(simulated: Simulated) -> None:
    """An effect with a key is brought about at most once in a turn.

    After it was taken back, it may be brought about once more.
    """
    outstanding = Counter[tuple[str, str, str]]()
    for payment in simulated.world.payments.ledger:
        record = payment.undoes
        if record is not None:
            outstanding[record.turn_id, record.tool, str(amount_of(record.arguments))] -= 1
            continue
        effect = payment.turn_id, payment.tool, str(payment.amount)
        outstanding[effect] += 1
        if outstanding[effect] > 1:
            count = outstanding[effect]
            raise BrokenError("effects once", f"{effect} was brought about {count} times")


def effects_are_taken_back_once(simulated: Simulated) -> None:
    """An effect is taken back at most once, and only if it is there.

    A turn says that it has taken an effect back if, and only if, it has; if it may have, it says
    that this is unknown.
    """
    ledger = simulated.world.payments.ledger
    made = {(payment.turn_id, payment.step, payment.call_id) for payment in ledger}
    taken_back = Counter[tuple[str, int, str, str]]()
    for payment in ledger:
        record = payment.undoes
        if record is None:
            continue
        place = record.turn_id, record.step, record.call_id
        taken_back[*place, record.arguments] += 1
        if taken_back[*place, record.arguments] > 1:
            raise BrokenError(BACK, f"{record.tool} of {place} was taken back twice")
        if place not in made:
            raise BrokenError(BACK, f"{record.tool} of {place} was taken back, and never made")
    for run in simulated.server.runs:
        if run.begun.type == TURN and run.takes_back and run.read.ended is not None:
            is_done = any(payment.turn_id == run.id for payment in ledger)
            if undo.progress(run.read) == "undone" and not is_done:
                raise BrokenError(BACK, "it says that it has taken an effect back", run)


def effects_are_taken_back_in_order(simulated: Simulated) -> None:
    """What a turn takes back at its end is taken back one after another, the last effect first.

    Each effect that is known then has a turn that takes it back, also after another one has failed.
    """
    server = simulated.server
    started = {run.id for run in server.runs}
    for run in server.runs:
        if not _takes_effects_back(run):
            continue
        records = [record.in_turn(run.id) for record in effects.gathered(run.read)]
        ids = [
            undo.turn_id_of(undo.place_of(record))
            for record in reversed(records)
            if record.undo and record.status == "done"
        ]
        if missing := [turn_id for turn_id in ids if turn_id not in started]:
            raise BrokenError(BACK, f"no turn takes these effects back: {missing}", run)
        chain = [one.id for one in _chain(server, run)]
        if chain != [turn_id for turn_id in ids if turn_id in chain]:
            raise BrokenError(BACK, f"taken back in this order: {chain}, after {ids}", run)


def _takes_effects_back(run: SimulatedRun) -> bool:
    """Return whether a turn has ended without an answer, and takes back what it did then."""
    ended, agent = run.read.ended, run.read.agent
    if run.begun.type != TURN or run.is_replaced or run.takes_back or not ended or not agent:
        return False
    has_answer = ended.outcome in (Outcome.COMPLETED, Outcome.TRUNCATED)
    return agent.on_failure == "undo" and not has_answer


def _chain(server: SimulatedServer, run: SimulatedRun) -> Iterator[SimulatedRun]:
    """Yield the turns that take back what a turn has done, each started by the one before."""
    started = next(
        (one for one in server.runs if one.takes_back and _is_started_by(one, run)), None
    )
    while started is not None:
        yield started
        last = started
        started = next((one for one in server.runs if _is_started_by(one, last)), None)
        if started is not None and _calls_after(last):
            raise BrokenError(BACK, "it makes a call after it has begun the next turn", last)


def _is_started_by(one: SimulatedRun, other: SimulatedRun) -> bool:
    """Return whether a turn was started by another; after a reset, two turns may have its id."""
    if not one.takes_back or one.parent is None or one.parent[0].is_replaced:
        return False
    return one.parent[0].begun.first_run_id == other.begun.first_run_id


def _calls_after(run: SimulatedRun) -> bool:
    """Return whether a turn schedules a call after it has started another turn."""
    has_started = False
    for event in run.history.events:
        if name_of(event) == "START_CHILD_WORKFLOW_EXECUTION_INITIATED":
            has_started |= attributes(event).workflow_type.name == TURN
        is_call = name_of(event) == "ACTIVITY_TASK_SCHEDULED" and isinstance(
            parse_key(attributes(event).activity_id), ToolKey
        )
        if has_started and is_call:
            return True
    return False


def results_are_true(simulated: Simulated) -> None:
    """No result says that an effect is there, or is not, if it is the other way round."""
    keys = {payment.key for payment in simulated.world.payments.ledger}
    names = {item.name for item in TOOLS}
    for run in simulated.server.runs:
        for record in run.read.effects:
            if record.key and (record.status == "done") and record.key not in keys:
                message = f"{record.tool} in step {record.step} is known as done, and is not"
                raise BrokenError("results are true", message, run)
        for step in run.read.steps:
            for result in step.results:
                if result.name in names and result.outcome is ToolOutcome.VERIFIED and not keys:
                    raise BrokenError("results are true", f"{result.call_id} was found", run)


def waits_end_once(simulated: Simulated) -> None:
    """A wait ends once: by its time, by an event that was sent and is given once, or a message."""
    for last in last_runs(simulated.server):
        _Waits(simulated.server.clock.differ_s).see(chain(simulated.server, last))


class _Waits:
    """The waits of a turn, in all of its runs."""

    def __init__(self, differ_s: float) -> None:
        self._differ_s = differ_s
        self._began: dict[str, CallWait] = {}
        self._ended: set[str] = set()
        self._sent: dict[str, str] = {}
        self._given: set[str] = set()

    def see(self, runs: list[SimulatedRun]) -> None:
        for run in runs:
            for fact in run.facts:
                match fact:
                    case Emitted(event):
                        self._sent.setdefault(event.id, event.name)
                    case WaitBegan(calls=waits):
                        for wait in waits:
                            self._begin(run, wait)
                    case WaitEnded(woken=ends):
                        for end in ends:
                            self._end(run, end)

    def _begin(self, run: SimulatedRun, wait: CallWait) -> None:
        if self._began.setdefault(wait.key, wait) != wait or wait.key in self._ended:
            raise BrokenError("waits end once", f"{wait.key} begins to wait again", run)

    def _end(self, run: SimulatedRun, end: Woken) -> None:
        wait = self._began.get(end.key)
        if end.key in self._ended:
            raise BrokenError("waits end once", f"{end.key} ends twice", run)
        self._ended.add(end.key)
        if end.by == "refused" and wait is not None:
            raise BrokenError("waits end once", f"{end.key} has begun, and is refused", run)
        if end.by == "time" and (wait is None or self._is_early(wait, end)):
            raise BrokenError("waits end once", f"{end.key} ends before its time", run)
        if end.by == "event":
            is_again = end.event_id in self._given and not end.event_key
            if end.event_id not in self._sent or is_again:
                raise BrokenError("waits end once", f"{end.key} has another's event", run)
            self._given.add(end.event_id)

    def _is_early(self, wait: CallWait, end: Woken) -> bool:
        planned = (wait.until - wait.since).total_seconds()
        return end.waited_s < planned - self._differ_s - 0.001  # it is recorded in milliseconds


AT_THE_END = (
    effects_once,
    effects_are_taken_back_once,
    effects_are_taken_back_in_order,
    results_are_true,
    waits_end_once,
)
