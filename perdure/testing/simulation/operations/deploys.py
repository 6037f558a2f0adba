"""Deploys of other agents while their turns run: first to one process of the worker, then to both.

The new agents have other instructions, another model, another policy, a tool less, or are gone. A
turn is pinned to the definition that it was resolved with; the functions of tools and policies are
those of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from perdure.agents.agent import Agent
from perdure.agents.policy import Deny, ProposedCall
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.worker import SimulatedWorker

_PAUSES_S = (3, 1, 10, 0.2)


async def refuse_changes(call: ProposedCall) -> Deny:
    """Deny every call."""
    return Deny(reason="not any more")


def _without_others(agent: Agent[Any]) -> Agent[Any]:
    return replace(agent, delegates=(), handoffs=())


_CHANGES: tuple[Callable[[Agent[Any]], Agent[Any]], ...] = (
    lambda agent: replace(agent, instructions="Do it in another way."),
    lambda agent: replace(agent, tools=agent.tools[1:]),
    lambda agent: replace(agent, model="model:second"),
    lambda agent: replace(agent, policy=refuse_changes),
    lambda agent: replace(agent, policy=None),
    lambda agent: replace(agent, middleware=[]),
    _without_others,
)


class Deploys:
    """Deploys other agents some times, in most simulations never."""

    def __init__(
        self, server: SimulatedServer, worker: SimulatedWorker, agents: Sequence[Agent[Any]]
    ) -> None:
        self._server = server
        self._worker = worker
        self._agents = list(agents)
        self._left = server.choices.pick((0, 0, 0, 1, 2))
        self._later(self._begin)

    def _later(self, does: Callable[[], None]) -> None:
        if self._left:
            self._server.clock.later(self._server.choices.pick(_PAUSES_S), does)

    def _begin(self) -> None:
        """Deploy other agents to one process; the other one follows."""
        self._server.counts["deploys"] += 1
        self._agents = _changed(self._server.choices, self._agents)
        agents = self._agents
        self._worker.deploy(1, agents)
        self._later(lambda: self._finish(agents))

    def _finish(self, agents: Sequence[Agent[Any]]) -> None:
        self._worker.deploy(0, agents)
        self._left -= 1
        self._later(self._begin)


def _changed(choices: Choices, agents: Sequence[Agent[Any]]) -> list[Agent[Any]]:
    """Return the agents, one of them changed or gone."""
    place = choices.below(len(agents))
    if len(agents) > 1 and choices.happens(5):
        return [_without_others(agent) for agent in agents if agent is not agents[place]]
    change = choices.pick(_CHANGES)
    return [change(agent) if at == place else agent for at, agent in enumerate(agents)]
