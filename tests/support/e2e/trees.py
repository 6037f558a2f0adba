"""Random trees of agents, made from a seed.

The stub provider has the plan of each agent; a task only names its place in the plan.
"""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from perdure import Agent, Price
from perdure.activities.providers import OpenAIChat
from perdure.testing.stub_provider import StubCall, StubProvider, StubReply, per_million
from perdure.worker import AgentWorker

from .app import fetch

AGENTS = ("a0", "a1", "a2", "a3")
PRICE = (100, 400)
"""US dollars for a million tokens of input and of output."""


def make() -> AgentWorker:
    """The worker of the trees: four agents that can all delegate to each other, with different
    policies for the end of the budget.
    """
    provider = OpenAIChat(base_url=os.environ["E2E_PROVIDER"], api_key_env=None, name="stub")
    agents = [
        Agent(
            name=name,
            model="stub:tree",
            instructions="Do as told.",
            tools=[fetch],
            delegates="all",
            max_children=100,
            max_descendants=10_000,
            on_child_error="collect" if number % 2 else "cancel",
            on_exhausted="finish" if number > 1 else "fail",
            parallel_tools=number == 3,
        )
        for number, name in enumerate(AGENTS)
    ]
    return AgentWorker(
        agents,
        providers={"stub": provider},
        prices={"stub:*": Price(input=str(PRICE[0]), output=str(PRICE[1]))},
    )


@dataclass
class Plan:
    """The plan of one agent of a tree: the calls of each answer, and then the final text."""

    task: str
    agent: str
    answers: list[list[StubCall]] = field(default_factory=list)
    below: list["Plan"] = field(default_factory=list)

    def all(self) -> list["Plan"]:
        """This plan and all plans below it."""
        return [self, *(one for plan in self.below for one in plan.all())]


def plan(seed: int, *, depth: int, fan_out: int, most: int) -> Plan:
    """The tree of a seed, with limits on depth, width and the number of agents."""
    rest = random.Random(seed)
    left = [most - 1]

    def grow(task: str, agent: str, levels: int) -> Plan:
        made = Plan(task, agent)
        for number in range(rest.randint(1, 3)):
            made.answers.append(_calls(made, number, levels))
        return made

    def _calls(made: Plan, number: int, levels: int) -> list[StubCall]:
        wanted = min(rest.randint(0, fan_out), left[0]) if levels else 0
        if not wanted:
            return [{"name": "fetch", "arguments": {"what": f"{made.task} looks {number}"}}]
        left[0] -= wanted
        others = [name for name in AGENTS if name != made.agent]
        new = [
            grow(f"{made.task}.{len(made.below) + place}", rest.choice(others), levels - 1)
            for place in range(wanted)
        ]
        made.below += new
        tasks = [{"agent": one.agent, "task": one.task} for one in new]
        if rest.random() < 0.6:
            return [{"name": "spawn_agents", "arguments": {"tasks": tasks}}]
        return [{"name": "delegate_to_agent", "arguments": task} for task in tasks]

    return grow(f"tree-{seed}", rest.choice(AGENTS), depth)


class Planned(StubProvider):
    """A provider whose model follows the plan of its task, with a bill for each tree."""

    def __init__(self, plans: list[Plan], log_path: Path) -> None:
        super().__init__([], log_path, delay_s=0.05, price=per_million(*PRICE))
        self._plans = {one.task: one for plan in plans for one in plan.all()}

    def reply(self, body: Mapping[str, Any]) -> StubReply | None:
        """The reply, by the task and the number of earlier answers."""
        answers = self._plans[task_of(body)].answers
        index = sum(message["role"] == "assistant" for message in body["messages"])
        if body.get("tools") and index < len(answers):
            return {"calls": answers[index]}
        return {"text": f"{task_of(body)} is done"}

    def billed(self) -> dict[str, Decimal]:
        """The bill of each tree, in US dollars."""
        bills: dict[str, Decimal] = {}
        for body, bill in list(zip(self.requests, self.bills, strict=False)):
            tree = task_of(body).partition(".")[0]
            bills[tree] = bills.get(tree, Decimal(0)) + bill.usd
        return bills


def task_of(body: Mapping[str, Any]) -> str:
    """The task of the turn that a request is of."""
    first = next(message for message in body["messages"] if message["role"] == "user")
    content = first["content"]
    return content if isinstance(content, str) else str(content[0]["text"])
