"""What Perdure promises of messages that input guardrails refuse, as a check at the end."""

from __future__ import annotations

import re

from perdure.temporal.names import TURN
from perdure.testing.simulation.choices import UNWELCOME
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError

PROMISE = "refused messages reach no model"
_MESSAGES = re.compile(rf"{UNWELCOME} \d+(?: of \w+)?")


def refused_messages_reach_no_model(simulated: Simulated) -> None:
    """A message that the input guardrail of an agent refuses is sent to no model of its turns.

    That is so whatever way it comes: to a running turn, to a session, after a handoff, to a fork,
    or with the record of a session.
    """
    runs = [run for run in simulated.server.runs if run.begun.type == TURN]
    guarded = {run.begun.first_run_id for run in runs if _is_guarded(run)}
    for request in simulated.world.requests if guarded else ():
        texts = _MESSAGES.findall(request.text) if request.turn in guarded else ()
        if texts:
            raise BrokenError(PROMISE, f"the model of {request.turn} is sent {texts[0]}")


def _is_guarded(run: SimulatedRun) -> bool:
    """Return whether the agent of a turn checks what comes in."""
    agent = run.read.agent
    return agent is not None and any(stage.has_before for stage in agent.middleware)
