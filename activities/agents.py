"""The agents of a worker, as its activities need them: definitions for turns, and the functions behind their tools."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable

from temporalio import activity
from temporalio.client import Client

from perdure import errors
from perdure.activities.history import first_request
from perdure.activities.models import Models
from perdure.agents import Agent, AgentDefinition, define
from perdure.errors import PerdureError
from perdure.registry import Entry, Registry
from perdure.tools import AnyTool
from perdure.wire import AgentCall

_KEPT = 1000


class Agents:
    """Looks agents up. What a factory made is kept for its run, so that a factory is called once a turn in a process."""

    def __init__(self, registry: Registry, models: Models, activity_of: Callable[[AnyTool], str]) -> None:
        self._registry = registry
        self._models = models
        self._activity_of = activity_of
        self._made: OrderedDict[tuple[str, str], Agent] = OrderedDict()
        self._lock = threading.Lock()

    async def resolve_agent(self, call: AgentCall) -> AgentDefinition:
        """The definition that a turn is pinned to.

        Raises:
            UnknownAgentError: No agent of this name.
            DuplicateToolError: Two of its tools have one name.
            ConfigurationError: Its model or a tool is not set up.
        """
        info = activity.info()
        agent = await self._agent(activity.client(), info, call.agent)
        return define(agent, model=self._models.resolve(agent.model), activity_of=self._activity_of)

    async def prepare(self, client: Client, info: activity.Info, owner: str) -> None:
        """Have the agent at hand before one of its tools runs: a factory that was called in another process is called here."""
        with contextlib.suppress(PerdureError):  # the tool's own look-up says what is missing
            await self._agent(client, info, owner)

    def tool(self, run_id: str, owner: str, name: str) -> AnyTool | None:
        """The deployed tool of an agent; None where there is none any more."""
        with self._lock:
            made = self._made.get((run_id, owner))
        agent = made or self._entry(owner)
        return agent.toolset().get(name) if isinstance(agent, Agent) else None

    def _entry(self, name: str) -> Entry | None:
        try:
            return self._registry.entry(name)
        except errors.UnknownAgentError:
            return None

    async def _agent(self, client: Client, info: activity.Info, name: str) -> Agent:
        """The agent; from a factory at most once for a run."""
        assert info.workflow_id is not None
        assert info.workflow_run_id is not None
        entry = self._registry.entry(name)
        if isinstance(entry, Agent):
            return entry
        with self._lock:
            made = self._made.get((info.workflow_run_id, name))
        if made is not None:
            return made
        request = await first_request(client, info.workflow_id, info.workflow_run_id)
        agent = self._registry.make(request.info(info.workflow_id))
        with self._lock:
            self._made[info.workflow_run_id, name] = agent
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
        return agent
