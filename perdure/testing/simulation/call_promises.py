"""What Perdure promises about calls whose effects have keys, and about calls that wait."""

from __future__ import annotations

from collections import Counter

from perdure.testing.simulation.observations import Simulated, chain, last_runs
from perdure.testing.simulation.payments import TOOLS
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.facts import Emitted, WaitBegan, WaitEnded
from perdure.turn.wait_values import CallWait, Woken
from perdure.values.messages import ToolOutcome


def effects_once(simulated: Simulated) -> None:
    """An effect with a key is brought about at most once in a turn."""
    made = Counter(
        (payment.activity.run.begun.first_run_id, payment.key)
        for payment in simulated.world.payments.ledger
    )
    for (_, key), count in made.items():
        if count > 1:
            raise BrokenError("effects once", f"the effect {key} was brought about {count} times")


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
        _Waits().see(chain(simulated.server, last))


class _Waits:
    """The waits of a turn, in all of its runs."""

    def __init__(self) -> None:
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
        if end.by == "time" and (wait is None or _is_early(wait, end)):
            raise BrokenError("waits end once", f"{end.key} ends before its time", run)
        if end.by == "event":
            if end.event_id not in self._sent or end.event_id in self._given:
                raise BrokenError("waits end once", f"{end.key} has another's event", run)
            self._given.add(end.event_id)


def _is_early(wait: CallWait, end: Woken) -> bool:
    planned = (wait.until - wait.since).total_seconds()
    return end.waited_s < planned - 0.001  # it is recorded in milliseconds


AT_THE_END = (effects_once, results_are_true, waits_end_once)
