"""Agents of all kinds, and tasks for them, for simulations without agents of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel

from perdure.agents.agent import Agent
from perdure.agents.delegates import Delegate
from perdure.agents.handoffs import Handoff
from perdure.agents.middleware import InputGuardrail, Middleware, OutputGuardrail, Timeout
from perdure.agents.observers import Observer
from perdure.agents.policy import Allow, Deny, ProposedCall, RequireApproval
from perdure.agents.questions import asking
from perdure.agents.tools import Tool, Toolbox, tool
from perdure.session.wire import SessionRequest
from perdure.testing.simulation.calls.client_tools import CLIENT_TOOLS
from perdure.testing.simulation.calls.jobs import JOBS
from perdure.testing.simulation.calls.keyed_events import KEYED
from perdure.testing.simulation.calls.local_tools import LOCAL_TOOLS
from perdure.testing.simulation.calls.logins import DIARY, LOG_IN, LOGINS, NOTE
from perdure.testing.simulation.calls.payments import TOOLS
from perdure.testing.simulation.calls.servers import DESK
from perdure.testing.simulation.calls.waits import WAITS
from perdure.testing.simulation.choices import (
    BESIDE,
    BUDGETS,
    DEADLINES,
    GUARDS,
    INPUTS,
    UNWELCOME,
    Choices,
)
from perdure.testing.simulation.world import CANARY, REFUSED_URL, URL
from perdure.turn.wire import TurnRequest
from perdure.values.budgets import Budget
from perdure.values.options import RequestOptions
from perdure.values.reports import AgentReport
from perdure.values.tasks import Task

NOTICES = "notices"
"""The sequence of who is told of waits."""

ASKS = "questions"
"""The sequence of which agents can ask."""

NAMES = ("first", "second", "third")

_TEAM = 8
"""So many times the budget of a single agent have agents that delegate to each other."""


@tool
def write(a: int = 0) -> str:
    """Change something, which may not happen twice."""
    return f"written {a}"


@tool(read_only=True)
def look(a: int = 0) -> str:
    """Change nothing."""
    return f"seen {a}"


@tool(requires_approval=True, idempotent=True)
def send(a: int = 0) -> str:
    """Change something with approval."""
    return f"sent {a}"


class Number(BaseModel):
    """A typed answer."""

    n: int


async def policy(call: ProposedCall) -> Allow | Deny | RequireApproval:
    """Decide by the arguments, so that each choice of the model meets another verdict."""
    match call.values.get("a", 0):
        case 2:
            return Deny(reason="not two")
        case 3:
            return RequireApproval(expires=timedelta(seconds=60))
        case _:
            return Allow()


def some_agents(choices: Choices) -> list[Agent[Any]]:
    """Return one agent, or three that delegate and hand over to each other."""
    counts = (1, 3, 3, 3, 3, 3) if choices.all_features else (1, 1, 3, 3)
    count = choices.pick(counts)
    names = NAMES if choices.has("cancels") else NAMES[:count]
    return [_agent(choices, name, [other for other in names if other != name]) for name in names]


def _agent(choices: Choices, name: str, others: Sequence[str]) -> Agent[Any]:
    delegates, handoffs = _others(choices, others) if others else ((), ())
    two = ("model:first", "model:second")
    on_exhausted: Literal["finish", "pause", "fail"] = choices.pick(("finish", "pause", "fail"))
    if choices.aims_at(DEADLINES):
        on_exhausted = "finish"
    on_loop: Literal["ignore", "warn", "fail"] = choices.pick(("ignore", "ignore", "warn", "fail"))
    approval: Literal["marked", "changes", "all"] = choices.pick(("marked", "changes", "all"))
    if choices.has("cancels"):  # of delegates that tell of a wait, of which there are enough then
        approval = "all"
    protocol: Literal["native", "react_text", "json"] = choices.pick(
        ("native", "native", "native", "react_text", "json")
    )
    on_child_error: Literal["cancel", "collect"] = choices.pick(("cancel", "collect"))
    return Agent(
        name=name,
        model=choices.pick(("model:first", "model:first", two)),
        description=f"the {name} one",
        instructions="Do it.",
        tools=[write, look, send, *_some_tools(choices)],
        toolboxes=_some_toolboxes(choices),
        takes_tools=choices.has("client tools"),
        max_iterations=choices.pick((25, 25, 3, 6)),
        budget=some_budget(choices, times=_times(choices, bool(others))),
        on_exhausted=on_exhausted,
        on_loop=on_loop,
        protocol=protocol,
        output=choices.pick((None, None, None, Number)),
        options=choices.pick((RequestOptions(), RequestOptions(max_output_tokens=400))),
        parallel_tools=choices.pick((False, True)),
        approval=approval,
        policy=choices.pick((None, None, policy)),
        delegates=delegates,
        handoffs=handoffs,
        on_child_error=on_child_error,
    )


def _some_tools(choices: Choices) -> tuple[Tool[..., Any], ...]:
    """Return tools whose effects have keys, that wait, or that start jobs; often none."""
    with_keys = TOOLS if choices.below(3, beside=BESIDE) == 2 or choices.pays_often else ()
    has_waits = choices.has_waits or choices.has(KEYED)
    waits, jobs = WAITS if has_waits else (), JOBS if choices.has_jobs else ()
    local = LOCAL_TOOLS if choices.has("local tools") else ()
    return (*with_keys, *waits, *jobs, *local)


def _some_toolboxes(choices: Choices) -> list[Toolbox]:
    """Return the toolbox with which an agent asks people, and the tools of servers; often none."""
    asks = [asking(expires=timedelta(seconds=60))] if choices.happens(4, beside=ASKS) else []
    desk = [DESK] if choices.has("servers") else []
    return [*asks, *desk, *([DIARY] if choices.has(LOGINS) else [])]


def _others(
    choices: Choices, others: Sequence[str]
) -> tuple[tuple[Delegate, ...], tuple[Handoff, ...]]:
    """Return the agents that an agent delegates and hands over to."""
    delegates = tuple(_delegate(choices, other) for other in others)
    hands_over = not choices.happens(6) if choices.all_features else choices.happens(3)
    return delegates, tuple(Handoff(other) for other in others) if hands_over else ()


def _times(choices: Choices, in_team: bool) -> int:
    """Return how many times the budget of a single agent one has."""
    if not in_team or not choices.all_features:
        return 1
    return choices.pick((_TEAM, _TEAM, 1), beside="bills")


def _delegate(choices: Choices, name: str) -> Delegate:
    """Return a delegate, which may have a budget of its own."""
    has_budget = (choices.all_features and choices.happens(3)) or choices.aims_at(BUDGETS)
    budget = some_budget(choices, times=2) if has_budget else None
    return Delegate(name, inherit=choices.happens(3), budget=budget)


def some_budget(choices: Choices, *, times: int = 1) -> Budget | None:
    """Return a budget of some dimensions, so many times as large; often none."""
    limits: dict[str, object] = {}
    amounts: dict[str, tuple[Any, ...]] = {
        "usd": (60, 12),
        "tokens": (60_000, 12_000),
        "model_calls": (9, 3),
        "tool_calls": (6, 1),
        "time": (timedelta(seconds=90), timedelta(seconds=9)),
    }
    for name, some in amounts.items():
        if choices.happens(4):
            limits[name] = choices.pick(some) * times
    if choices.aims_at(BUDGETS):
        limits["tokens"] = choices.pick((12_000, 30_000), beside=BUDGETS)
    if choices.aims_at(DEADLINES):
        # a tenth is kept for the last answer, in which there is time for some pauses
        limits["time"] = timedelta(seconds=choices.pick((60, 40), beside=DEADLINES))
    return Budget.model_validate(limits) if limits else None


def some_request(choices: Choices, agents: Sequence[Agent[Any]]) -> TurnRequest:
    """Return the input of a turn of the first agent."""
    times = _times(choices, len(agents) > 1)
    fields: dict[str, Any] = {"budget": some_budget(choices, times=times)}
    if choices.happens(6):
        fields["deadline"] = timedelta(seconds=choices.pick((100, 10, 3.05)))
    if choices.happens(12):
        fields["delay"] = timedelta(seconds=choices.pick((0.5, 2)))
    if choices.happens(8):
        fields["max_iterations"] = 4
    if choices.all_features and choices.happens(6):
        fields["allowed_tools"] = choices.pick((("look", "write"), ("look", "send")))
    if choices.has(LOGINS) and choices.happens(3, beside=LOGINS):
        fields["allowed_tools"] = ("look", "write", "send", NOTE, LOG_IN)
    if agents[0].takes_tools and choices.has("client tools"):
        fields["client_tools"] = CLIENT_TOOLS
    task = Task(content="go", requires_human_approval=choices.happens(8))
    return TurnRequest(
        agent=agents[0].name,
        task=task,
        on_done=some_url(choices),
        on_wait=some_notice_url(choices),
        live=choices.has("live"),
        **fields,
    )


def some_url(choices: Choices) -> str | None:
    """Return the URL of a webhook, which the worker may refuse; mostly none."""
    return (*(None,) * 9, URL, URL, REFUSED_URL)[choices.below(12, beside=BESIDE)]


def some_notice_url(choices: Choices) -> str | None:
    """Return the URL that is told of waits, which the worker may refuse; mostly none."""
    if not choices.has("notices"):
        return None
    return choices.pick((URL, *(URL,) * 6, REFUSED_URL), beside=NOTICES)


def has_no_canary(report: AgentReport) -> bool:
    """Refuse the answers that a simulation watches."""
    return CANARY not in str(report.output)


def is_welcome(task: Task) -> bool:
    """Refuse the messages that people send with the aim of inputs."""
    return UNWELCOME not in str(task.content)


def that_undo(choices: Choices, agents: Sequence[Agent[Any]]) -> list[Agent[Any]]:
    """Return agents of which some take back what they did, if they end without an answer."""
    return [
        replace(agent, on_failure="undo") if choices.happens(2, beside="undo") else agent
        for agent in agents
    ]


class Passing(Middleware):
    """A middleware of a user, which lets everything pass."""

    async def before(self, task: Task) -> None:
        """Let a task pass."""

    async def after(self, report: AgentReport) -> None:
        """Let an answer pass."""


def some_guarded_agents(choices: Choices) -> list[Agent[Any]]:
    """Return agents of all kinds, some of them with middleware."""
    guard = OutputGuardrail(has_no_canary)
    if choices.aims_at(INPUTS):
        refuses = InputGuardrail(is_welcome)
        return [replace(agent, middleware=[refuses]) for agent in some_agents(choices)]
    if choices.aims_at(GUARDS):
        return [replace(agent, middleware=[guard]) for agent in some_agents(choices)]
    if not choices.all_features:
        return [
            replace(agent, middleware=[guard]) if choices.happens(2) else agent
            for agent in some_agents(choices)
        ]
    stages: list[list[Middleware]] = [
        [],
        [],
        [guard],
        [Passing(), guard],
        [InputGuardrail(is_welcome)],
        [Timeout(timedelta(seconds=200)), guard, Passing()],
    ]
    observers = [[], [], [Observer()]]
    return [
        replace(
            agent,
            middleware=choices.pick(stages),
            observers=choices.pick(observers, beside="observers"),
        )
        for agent in some_agents(choices)
    ]


def some_session(choices: Choices, agents: Sequence[Agent[Any]]) -> SessionRequest:
    """Return the input of a session with the first agent."""
    budget = some_budget(choices, times=_times(choices, len(agents) > 1))
    limits = {name: value for name, value in budget or () if value is not None}
    limits.pop("time", None)
    return SessionRequest(
        agent=agents[0].name,
        budget=Budget.model_validate(limits) if limits else None,
        idle=choices.pick((timedelta(hours=1), timedelta(seconds=20))),
        max_iterations=choices.pick((None, None, 4)),
        allowed_tools=("look", "send") if choices.all_features and choices.happens(6) else None,
        on_done=some_url(choices),
        on_wait=some_notice_url(choices),
        live=choices.has("live"),
    )
