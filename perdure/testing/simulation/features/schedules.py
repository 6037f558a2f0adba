"""Schedules of all kinds for simulations: what they start, when, and their limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from temporalio.api.schedule.v1 import Schedule
from temporalio.client import Client, ScheduleActionStartWorkflow

from perdure.agents.agent import Agent
from perdure.clients.schedules.definition import Definition, OnFailure, parsed
from perdure.clients.schedules.stored import schedule_of
from perdure.clients.turns.starting import packed
from perdure.testing.simulation.agents import some_request
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.features.schedule_people import CHAT, PLAN
from perdure.testing.simulation.server.clock import START
from perdure.testing.simulation.server.schedules import ABOUT_SCHEDULES
from perdure.testing.simulation.server.sdk import TASK_QUEUE, stored_as
from perdure.turn.slot import IfRunning
from perdure.turn.wire import TurnRequest
from perdure.values.budgets import Budget

_MINUTES = 5
_OF_TURN: dict[str, object] = {"client_tools": (), "delay": None}

MESSAGES = "scheduled messages"
"""The feature of schedules that send messages to a session."""

_TOTALS = (
    None,
    Budget(usd=14),
    Budget(tokens=12_000),
    Budget(model_calls=4, tool_calls=3),
    Budget(usd=24, tokens=30_000),
)


@dataclass(frozen=True)
class SimulatedSchedule:
    """A schedule to simulate.

    Attributes:
        definition: What it starts.
        times: When it does, from the beginning of the simulation on.
    """

    definition: Definition
    times: tuple[datetime, ...]

    async def stored(self, client: object) -> Schedule:
        """Return the schedule as a client stores it at the beginning of the simulation."""
        real = cast("Client", client)
        made = schedule_of(real, self.definition, None)
        assert isinstance(made.action, ScheduleActionStartWorkflow)
        made.action.args = [packed(real, self.definition.input(START))]
        return await stored_as(made, real)


def some_schedule(choices: Choices, agents: Sequence[Agent[Any]]) -> SimulatedSchedule:
    """Return a schedule of turns of the first agent."""
    request = some_request(choices, agents)
    sends_messages = choices.has(MESSAGES)
    total = None if sends_messages else choices.pick(_TOTALS, beside=ABOUT_SCHEDULES)
    policies: Sequence[IfRunning] = ("skip", "queue", "cancel", "allow")
    count = 3 if total or sends_messages else 4
    if_running: IfRunning = choices.pick(policies[:count], beside=ABOUT_SCHEDULES)
    on_failure: OnFailure = "go on"
    if if_running != "allow" and not sends_messages:
        on_failure = choices.pick(("go on", "go on", "pause"), beside=ABOUT_SCHEDULES)
    definition = Definition(
        id=PLAN,
        task_queue=TASK_QUEUE,
        request=_of_session(request) if sends_messages else request.model_copy(update=_OF_TURN),
        cron=parsed(f"*/{_MINUTES} * * * *"),
        timezone="UTC",
        if_running=if_running,
        on_failure=on_failure,
        total=total,
    )
    slots = choices.pick((1, 2, 3, 4), beside=ABOUT_SCHEDULES)
    times = (START + timedelta(minutes=_MINUTES * number) for number in range(1, slots + 1))
    return SimulatedSchedule(definition, tuple(times))


def _of_session(request: TurnRequest) -> TurnRequest:
    """Return the input of messages to a session, without what these do not have."""
    task = request.task.model_copy(update={"requires_human_approval": False})
    limits = {name: value for name, value in request.budget or () if value is not None}
    limits.pop("time", None)
    fields = {
        **_OF_TURN,
        "budget": Budget.model_validate(limits) if limits else None,
        "deadline": None,
        "session": CHAT,
        "task": task,
    }
    return request.model_copy(update=fields)
