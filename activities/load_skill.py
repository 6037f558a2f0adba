"""The skills that `load_skill` reads, as they were when the turn resolved its agent.

A turn's definition in its history pins each skill by digest. The process that resolved the agent
keeps the texts by digest, so turns share them, and a folder may change meanwhile. A process without
them (it started later, or evicted them) reads the pins from history and the skills of the deployed
agent again. Texts with another digest are refused with an error result that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from temporalio import activity
from temporalio.client import Client

from perdure.activities import skill_folders
from perdure.agents.agent import Agent
from perdure.agents.definitions import AgentDefinition
from perdure.agents.skills import Skill, loader, unknown
from perdure.agents.tools import Tool
from perdure.agents.versions import address_of
from perdure.temporal.histories.fetching import recorded
from perdure.temporal.recent import Recent
from perdure.text import size
from perdure.turn.facts import AgentResolved, HandedOver, PartCarried, Recorded

_RUNS = 10_000
_KEPT_BYTES = 64 * 1024 * 1024
_PAGE = 20
"""The page size of history events; the definition is among the first ten."""

Pins = Mapping[str, str]


class PinnedSkills:
    """The skills that running turns may read, up to `max_bytes` of text. It is thread-safe."""

    def __init__(self, max_bytes: int = _KEPT_BYTES) -> None:
        self._pins = Recent[tuple[str, str], Pins](_RUNS)
        self._texts = Recent[str, Skill](max_bytes, _weight, keeps_newest=True)
        self._lock = threading.Lock()

    async def read(self, agent: Agent) -> Agent:
        """Return the agent with its skill folders read.

        Raises:
            ConfigurationError: A folder cannot be read, or two skills have the same name.
        """
        return (
            replace(agent, skills=await asyncio.to_thread(skill_folders.read, agent))
            if agent.skills
            else agent
        )

    def pin(self, run_id: str, definition: AgentDefinition, skills: Sequence[Skill | Path]) -> None:
        """Keep the pins and the skills that a turn starts with."""
        pins = _pins(definition)
        if pins:
            self._remember(run_id, address_of(definition), pins)
            self._keep([skill for skill in skills if isinstance(skill, Skill)])

    def loader(
        self, client: Client, info: activity.Info, owner: str, deployed: Agent | None
    ) -> Tool:
        """Return the tool of the agent `owner` for a call.

        `deployed` is the agent as this worker has it.
        """
        turn_id, run_id = info.workflow_id or "", info.workflow_run_id or ""

        async def find(name: str) -> Skill:
            pins = self._known(run_id, owner)
            pins = pins or await self._from_history(client, turn_id, run_id, owner)
            if name not in pins:
                raise unknown(name, pins)
            return self._text(pins[name]) or await self._anew(name, pins[name], deployed)

        return loader(find)

    async def _from_history(self, client: Client, turn_id: str, run_id: str, owner: str) -> Pins:
        """Return the last pins of an agent of the turn from its history."""
        pins: Pins = {}
        async with contextlib.aclosing(
            recorded(client, turn_id, run_id, is_worker=True, page_size=_PAGE)
        ) as events:
            async for _, fact in events:
                agent = _agent_in(fact)
                if agent is None:
                    continue
                pins = _pins(agent) if address_of(agent) == owner else pins
                if not agent.handoffs:
                    break  # no other agent follows
        self._remember(run_id, owner, pins)
        return pins

    async def _anew(self, name: str, digest: str, deployed: Agent | None) -> Skill:
        """Return the deployed agent's skill, if it still is the pinned skill."""
        if deployed is not None:
            self._keep(await asyncio.to_thread(skill_folders.read, deployed))
        text = self._text(digest)
        if text is None:
            raise ValueError(
                f"the skill {name!r} was changed or removed since this turn began; it was not read"
            )
        return text

    def _known(self, run_id: str, owner: str) -> Pins | None:
        with self._lock:
            return self._pins.get((run_id, owner))

    def _remember(self, run_id: str, owner: str, pins: Pins) -> None:
        with self._lock:
            self._pins.put((run_id, owner), pins)

    def _text(self, digest: str) -> Skill | None:
        with self._lock:
            return self._texts.get(digest)

    def _keep(self, skills: Sequence[Skill]) -> None:
        with self._lock:
            for skill in skills:
                if skill.on_demand:
                    self._texts.put(skill.digest, skill)


def _agent_in(fact: Recorded | None) -> AgentDefinition | None:
    """Return the definition in a fact; None for a fact without a definition."""
    match fact:
        case AgentResolved(_, agent) | HandedOver(_, agent):
            return agent
        case PartCarried(_, part):
            return part.agent
        case _:
            return None


def _pins(definition: AgentDefinition) -> Pins:
    return {skill.name: skill.digest for skill in definition.skills if skill.on_demand}


def _weight(skill: Skill) -> int:
    return size(skill.instructions) + sum(
        size(path) + size(text) for path, text in skill.files.items()
    )
