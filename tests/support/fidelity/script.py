"""What happens in the turn of a seed: what its models, its tools and the people around it do.

Each is a function of the seed and of the place in the tree of turns, and of nothing else. So it is
the same in the simulator and on a real server, whose orders and times differ.
"""

from __future__ import annotations

import json
import random
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from temporalio import activity

from perdure import Agent, Delegate, ModelRetryPolicy, Tool, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.errors import PerdureError
from perdure.session.wire import SessionRequest
from perdure.temporal.names import ADD_BUDGET, DECIDE, RESUME, STEER
from perdure.testing.simulation.agents import some_agents, some_budget
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.world import PRICE
from perdure.turn.state import TurnState
from perdure.turn.wire import Steer, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision
from perdure.values.budgets import Budget, BudgetUpdate
from perdure.values.messages import AssistantMessage, Text, ToolCall
from perdure.values.reports import StopReason, Usage
from perdure.values.tasks import Task

from .acts import CANCEL, RESET, Act, Scene

ROOT = "turn"
"""The id of the turn or session at the root, as the script names it."""

_SECOND_ID = re.compile(r"(?<=\d-)[0-9a-f]{4}(?=/|$)")
_SOON = ModelRetryPolicy(
    initial_interval=timedelta(milliseconds=20),
    backoff_coefficient=1,
    maximum_elapsed=timedelta(hours=1),
)
_ARGUMENTS = ("{}", '{"a": 1}', '{"a": 2}', '{"a": 3}', '{"a": 4}', "[", "null")
_FAILURES = (
    errors.LLMRateLimitError("busy", context={"status": 429}),
    errors.LLMUnavailableError("down"),
    errors.LLMAuthError("no"),
    errors.LLMInvalidRequestError("odd"),
)
_MOST_STEPS = 6
_MOST_ORDERS = 9


@dataclass(frozen=True)
class Said:
    """What a model says at one place: its answer or its failure.

    Attributes:
        acts: What people do while it is asked, one after another.
    """

    answer: ModelAnswer | None
    failure: PerdureError | None
    acts: Sequence[Act]


def new_root() -> str:
    """A new id for the turn or the session at the root."""
    return f"fidelity-{secrets.token_hex(6)}"


class Script:
    """The script of a seed, to be played once.

    Attributes:
        root: The id of the turn or the session at the root. It may be in what models are told, so
            it is the same in the simulator and on a real server.
        agents: The agents; the first has the turn.
        request: The input of the turn or the session.
        first: What it is sent with its start; None if nothing is.
        billed: What the models have billed, in tokens, by turn and call.
    """

    first: Act | None = None

    def __init__(self, seed: int, root: str, *, resets: int = 0) -> None:
        """Make the script of a seed, in which so many resets happen at most."""
        self.root = root
        self._resets = resets
        self._looks = 0
        self._seed = seed
        choices = Choices(seed)
        self.agents = [self._timeless(agent) for agent in some_agents(choices)]
        self.request = self._request(choices)
        self.billed: dict[tuple[str, str], int] = {}
        self._orders: dict[str, int] = {}

    def _request(self, choices: Choices) -> TurnRequest | SessionRequest:
        return TurnRequest(
            agent=self.agents[0].name,
            task=Task(content="go", requires_human_approval=choices.happens(8)),
            budget=without_time(some_budget(choices)),
        )

    def _timeless(self, agent: Agent[Any]) -> Agent[Any]:
        """Return an agent whose turns do not depend on the time that something takes."""
        return replace(
            agent,
            model=f"model:{agent.name}",
            tools=self._tools(),
            budget=without_time(agent.budget),
            model_retry=_SOON,
            max_iterations=min(int(agent.max_iterations), _MOST_STEPS),
        )

    def _tools(self) -> list[Tool]:
        @tool
        def write(a: int = 0) -> str:
            """Change something, which may not happen twice."""
            return self._result("written")

        @tool(read_only=True)
        def look(a: int = 0) -> str:
            """Change nothing."""
            return self._result("seen")

        @tool(requires_approval=True, idempotent=True)
        def send(a: int = 0) -> str:
            """Change something with approval."""
            return self._result("sent")

        return [write, look, send]

    def _draw(self, *place: object) -> random.Random:
        return random.Random(f"{self._seed} {place}")

    def _result(self, done: str) -> str:
        """Return what a tool returns, or fail as it does."""
        info = activity.info()
        turn = relative(info.workflow_id or "")
        if self._draw("tool", turn, info.activity_id).random() < 0.15:
            raise RuntimeError("the tool failed")
        return f"{done} by {info.activity_id}"

    def said(self, turn: str, key: str, request: ModelRequest) -> Said:
        """Return what a model says and what people do meanwhile, and bill it."""
        name = relative(turn)
        draw = self._draw("model", name, key)
        agent = next(one for one in self.agents if request.model.endswith(one.name))
        fails = draw.random() < 0.1
        usage = Usage(input_tokens=draw.choice((20, 300)), output_tokens=draw.choice((5, 50)))
        acts = self._meanwhile(draw, turn, key)
        if fails:
            return Said(None, draw.choice(_FAILURES), acts)
        self.billed[name, key] = usage.input_tokens + usage.output_tokens
        parts = self._parts(draw, agent)
        asks = any(isinstance(part, ToolCall) for part in parts)
        answer = ModelAnswer(
            message=AssistantMessage(parts=parts),
            usage=usage,
            cost=PRICE.of(usage),
            model=request.model,
            stop=StopReason.TOOL_CALLS if asks else StopReason.END,
        )
        return Said(answer, None, acts)

    def _meanwhile(self, draw: random.Random, turn: str, key: str) -> list[Act]:
        """Return what people do while a model is asked."""
        steers, cancels = draw.random() < 0.12, draw.random() < 0.03
        said = f"message at {key}"
        acts = [Act(turn, STEER, said, Steer(text=said))] if steers else []
        return [*acts, Act(self.root, CANCEL)] if cancels else acts

    def _parts(self, draw: random.Random, agent: Agent[Any]) -> tuple[Text | ToolCall, ...]:
        names = [one.name for one in agent.delegates if isinstance(one, Delegate)]
        kind = draw.choice(("ends", "calls", "calls", "calls", "delegates"))
        if kind == "ends" or (kind == "delegates" and not names):
            return (Text(text=_final(agent)),)
        if kind == "calls":
            calls = [self._call(draw) for _ in range(draw.choice((1, 1, 2, 3)))]
        elif agent.handoffs and draw.random() < 0.4:
            other = draw.choice(agent.handoffs).name
            arguments = json.dumps({"agent": other, "message": "go on"})
            calls = [ToolCall(id="", name="hand_over", arguments=arguments)]
        else:
            calls = [self._delegation(draw, names)]
        return _in_form(agent, calls)

    def _call(self, draw: random.Random) -> ToolCall:
        name = draw.choice(("look", "look", "write", "write", "send", "gone"))
        return ToolCall(id="", name=name, arguments=draw.choice(_ARGUMENTS))

    def _delegation(self, draw: random.Random, names: Sequence[str]) -> ToolCall:
        tasks = [{"agent": draw.choice(names), "task": part} for part in ("a part", "another")]
        if draw.random() < 0.4:
            return ToolCall(id="", name="spawn_agents", arguments=json.dumps({"tasks": tasks}))
        return ToolCall(id="", name="delegate_to_agent", arguments=json.dumps(tasks[0]))

    def next_act(self, scene: Scene) -> Act | None:
        """Return what people do when nothing else happens; None if they do nothing any more."""
        return self._reset(scene) or (self._order(scene.waiting) if scene.waiting else None)

    def _reset(self, scene: Scene) -> Act | None:
        """Return a reset of one of the open runs; None if nobody resets one now."""
        self._looks += 1
        draw = self._draw("reset", self._looks)
        workflows = sorted((id_ for id_, points in scene.points.items() if points), key=relative)
        if not self._resets or not workflows or draw.random() > 0.4:
            return None
        self._resets -= 1
        workflow = draw.choice(workflows)
        return Act(workflow, RESET, point=draw.choice(sorted(scene.points[workflow])))

    def _order(self, waiting: Mapping[str, TurnState]) -> Act:
        """Return what people do about a turn that waits for them."""
        turn = min(waiting, key=relative)
        state, done = waiting[turn], self._orders.get(turn, 0) + 1
        self._orders[turn] = done
        order_id = f"order {done} to {relative(turn)}"
        assert state.waiting is not None
        if done > _MOST_ORDERS:  # one that a reset has left is not cancelled with the others
            return Act(self.root if done == _MOST_ORDERS + 1 else turn, CANCEL)
        if state.waiting.kind == "approval":
            return Act(turn, DECIDE, order_id, self._decision(turn, state))
        if state.waiting.kind in ("budget", "iterations"):
            return Act(turn, ADD_BUDGET, order_id, self._addition(state, state.waiting.kind))
        return Act(turn, RESUME, order_id)

    def _decision(self, turn: str, state: TurnState) -> Decision:
        assert state.waiting is not None
        approval = state.waiting.pending[0]
        says = self._draw("decision", relative(turn), approval.call_id).choice(
            ("approve", "approve", "deny", "edit")
        )
        return Decision(
            call_id=approval.call_id,
            digest=approval.digest,
            approve=says != "deny",
            arguments="{}" if says == "edit" else None,
        )

    def _addition(self, state: TurnState, kind: str) -> BudgetUpdate:
        limits: dict[str, object] = {
            name: 5000 for name, value in state.accounts.ledger.budget or () if value is not None
        }
        if kind == "iterations" or not limits:
            limits = {"iterations": 2}
        return BudgetUpdate.model_validate(limits)


def relative(turn_id: str) -> str:
    """Return the id of a turn as the script names it, whatever the root is and second ids are."""
    return _SECOND_ID.sub("again", "/".join((ROOT, *turn_id.split("/")[1:])))


def without_time(budget: Budget | None) -> Budget | None:
    """Return a budget without its limit of time; None if it has no other."""
    limits = {name: value for name, value in budget or () if value is not None and name != "time"}
    return Budget.model_validate(limits) if limits else None


def _final(agent: Agent[Any]) -> str:
    """Return a final answer in the form of the agent's protocol and type."""
    said = "done" if agent.output is None else '{"n": 1}'
    match agent.protocol:
        case "react_text":
            return f"Thought: I know\nFinal Answer: {said}"
        case "json":
            return json.dumps({"answer": json.loads(said) if said.startswith("{") else said})
        case _:
            return said


def _in_form(agent: Agent[Any], calls: Sequence[ToolCall]) -> tuple[Text | ToolCall, ...]:
    """Return calls in the form of the agent's protocol."""
    name, arguments = calls[0].name, calls[0].arguments
    match agent.protocol:
        case "react_text":
            return (Text(text=f"Thought: hm\nAction: {name}\nAction Input: {arguments}"),)
        case "json":
            return (Text(text=f'{{"name": "{name}", "arguments": {arguments}}}'),)
        case _:
            return tuple(calls)
