"""Agents with two versions, and what Perdure promises about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio.common import RawValue

from perdure.agents.agent import Agent
from perdure.agents.versions import Rollout, parts_of
from perdure.base import replace
from perdure.temporal.names import TURN
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.wire import ToolRun

FEATURE, PROMISE = "versions", "turns keep their versions"

_ROLLOUT = Rollout({"v2": 0.5}, default="v1")


def both_versions(agents: Sequence[Agent[Any]]) -> tuple[list[Agent[Any]], dict[str, Rollout]]:
    """Return two versions of each agent, and their rollouts."""
    second = [replace(agent, version="v2", instructions="Do it well.") for agent in agents]
    first = [replace(agent, version="v1") for agent in agents]
    return [*first, *second], dict.fromkeys((agent.name for agent in agents), _ROLLOUT)


def turns_keep_their_versions(simulated: Simulated) -> None:
    """An agent has the same version in a session, a tree, and a chain of forks, in all runs.

    That is also so after a handoff, a reset and a deploy, and each call of a tool names a version.
    """
    if not simulated.server.choices.has(FEATURE):
        return
    for run in simulated.server.runs:
        if run.begun.type == TURN:
            _check(run)
    for effect in simulated.world.effects:
        called = unpack(RawValue(effect.activity.input), ToolRun)
        if not parts_of(called.owner)[1]:
            message = f"{called.owner} has no version in the call of {effect.tool}"
            raise BrokenError(PROMISE, message, effect.activity.run)


def _check(run: SimulatedRun) -> None:
    agent, request = run.read.agent, run.read.request
    if agent is None or request is None:
        return
    subject = request.subject_of(run.id) if request.lineage is None else _root_of(run)
    named = request.version if agent.name == request.agent else None
    expected = named or _ROLLOUT.choice(agent.name, subject)
    started = request.version or _ROLLOUT.choice(request.agent, subject)
    if (agent.version.name, agent.version.started) != (expected, started):
        message = f"{agent.name} is {agent.version}, and not {expected}, {started} by {subject}"
        raise BrokenError(PROMISE, message, run)


def _root_of(run: SimulatedRun) -> str:
    """Return the id of the turn at the root of the tree of a delegate."""
    request = run.read.request
    is_delegate = request is not None and request.lineage is not None
    return _root_of(run.parent[0]) if is_delegate and run.parent is not None else run.id
