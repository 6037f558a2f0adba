"""The small turn: two steps, a call that needs approval, a delegate, and a message.

Its models and tools say and do the same in each interleaving. Its people approve the call when it
waits, send one message at some moment, and go on with a turn that waits for them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure

from perdure.activities.provider import ModelRequest
from perdure.agents.agent import Agent
from perdure.agents.definitions import AgentDefinition
from perdure.agents.tools import tool
from perdure.temporal.names import ADD_BUDGET, DECIDE, RESUME, STEER
from perdure.temporal.payloads import pack
from perdure.testing.simulation.exhaustive.choices import OpenChoices, OpenClock
from perdure.testing.simulation.people import Empty, People, SentRequest
from perdure.testing.simulation.server.attempts import SimulatedAttempts, heartbeat
from perdure.testing.simulation.server.commands import ends_run
from perdure.testing.simulation.server.runs import Activity, SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.world import SimulatedWorld
from perdure.turn.wire import Steer
from perdure.values.approvals import Decision
from perdure.values.budgets import Budget, BudgetUpdate
from perdure.values.messages import AssistantMessage, Text, Thinking, ToolCall

TURN_ID = "turn"

Interference = Literal["message", "urgent message", "cancel"]
"""What the people do at some moment besides approving: they send a message that the turn reads with
its next step, one that interrupts the step, or cancel the turn."""


@tool(requires_approval=True)
def post(a: int = 0) -> str:
    """Change something, with approval, which may not happen twice."""
    return f"posted {a}"


def small_agents() -> list[Agent[Any]]:
    """Return the agent of the turn, and its delegate."""
    first = Agent(
        name="first",
        model="model:first",
        instructions="Do it.",
        tools=[post],
        budget=Budget(usd=60),
        parallel_tools=True,
        delegates=["second"],
    )
    second = Agent(name="second", model="model:second", description="it does a part")
    return [first, second]


class SmallWorld(SimulatedWorld):
    """Models that say the same each time: the first one asks for both calls, then it answers."""

    def _said(
        self, agent: AgentDefinition, request: ModelRequest, first_run: str
    ) -> tuple[Text | Thinking | ToolCall, ...]:
        has_asked = any(isinstance(message, AssistantMessage) for message in request.messages)
        if has_asked or not agent.delegates:
            return (Text(text="done"),)
        task = '{"agent": "second", "task": "a part"}'
        return (
            ToolCall(id="", name="post", arguments='{"a": 1}'),
            ToolCall(id="", name="delegate_to_agent", arguments=task),
        )


class SmallServer(SimulatedServer):
    """A server whose workers may be killed with a task, or before it with what they remember.

    What arrives while a task runs, waits for its end. So unless the task ends the run, or is lost,
    it is the same as if it had arrived just after the task, and the task ends at once.
    """

    choices: OpenChoices
    clock: OpenClock

    def _hand_out(self, run: SimulatedRun) -> None:
        self.clock.within(run, lambda: self._begin_task(run))

    def _forgets(self) -> bool:
        return self.choices.kill()

    def _finish(self, run: SimulatedRun, is_for_updates: bool) -> None:
        assert run.current is not None
        if self.choices.kill():
            self.counts["lost tasks"] += 1
            self.clock.within(run, lambda: self._fail_task(run, "TIMED_OUT"))
        elif ends_run(run.current[1]):
            self.clock.later(0, lambda: self._end_task(run, is_for_updates))
        else:
            self._end_task(run, is_for_updates)


class SmallAttempts(SimulatedAttempts):
    """Attempts that may be lost before their effect, or after it.

    They begin as soon as they are scheduled. That an attempt is lost has an effect only when the
    server notices. So one that is lost after its effect is lost when its result would arrive.
    """

    _server: SmallServer

    def _queue(self, activity: Activity) -> None:
        self._begin(activity)

    def _begin(self, activity: Activity, number: int = 1) -> None:
        if not self._is_open(activity) or activity.is_cancelled:
            return
        activity.is_started = True
        run, within = activity.run, self._server.clock.within
        if self._server.choices.kill():
            self._server.counts["lost before its effect"] += 1
            within(run, lambda: self._lose(activity, number, heartbeat()))
        else:
            result = self._work(activity)
            within(run, lambda: self._end_of(activity, number, result))

    def _end_of(self, activity: Activity, number: int, result: Payload | Failure) -> None:
        is_heard_of = activity.handed_out == number and self._is_open(activity)
        if is_heard_of and self._server.choices.kill():
            self._server.counts["lost after its effect"] += 1
            self._lose(activity, number, heartbeat())
        else:
            self._return(activity, number, result)


class SmallPeople(People):
    """The people of the small turn."""

    def __init__(self, server: SmallServer, interference: Interference) -> None:
        self._interference = interference
        self._decided: set[tuple[str, str]] = set()
        super().__init__(server, TURN_ID)
        [server.clock.free] = server.clock.pending  # the first look

    def look(self) -> None:
        """Send the message, or cancel the turn."""
        root = self._server.run_of(TURN_ID)
        if root is None:
            return
        if self._interference == "cancel":
            self.cancelled = self._server.cancel(root, "enough")
        else:
            steer = Steer(text="a message", now=self._interference == "urgent message")
            self._send(root, STEER, steer)

    def _watch(self, run: SimulatedRun) -> None:
        """Approve what begins to wait for that."""
        waiting = run.read.waiting
        for one in waiting.pending if waiting else ():
            if (one.call_id, one.digest) not in self._decided:
                self._decided.add((one.call_id, one.digest))
                self._decide_later(
                    run, Decision(call_id=one.call_id, digest=one.digest, approve=True)
                )

    def _decide_later(self, run: SimulatedRun, decision: Decision) -> None:
        self._server.clock.later(0, lambda: self._decide_now(run, decision))

    def _decide_now(self, run: SimulatedRun, decision: Decision) -> None:
        if not run.closed:
            self._send(run, DECIDE, decision)

    def _send(self, run: SimulatedRun, name: str, content: BaseModel) -> None:
        """Send an update, whose id does not depend on the order."""
        number = sum(one.name == name for one in self.sent)
        update = self._server.update(run, f"{name}-{number}", name, pack(content))
        self.sent.append(SentRequest(run.id, update.id, name, content, update))

    def help(self) -> bool:
        """Do what the turn waits for, if nothing else is pending; return whether it waits."""
        for run in self._runs:
            waiting = run.read.waiting
            if waiting is not None and waiting.kind == "budget":
                self._send(run, ADD_BUDGET, BudgetUpdate(usd=60))
                return True
            if waiting is not None and waiting.kind in ("resume", "provider"):
                self._send(run, RESUME, Empty())
                return True
        return False
