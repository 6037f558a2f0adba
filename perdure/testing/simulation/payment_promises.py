"""What Perdure promises about effects that have keys, as checks of a simulated run."""

from __future__ import annotations

from collections import Counter

from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.payments import TOOLS
from perdure.testing.simulation.server.server import BrokenError
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


AT_THE_END = (effects_once, results_are_true)
