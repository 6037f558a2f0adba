"""The agents of a worker, as its activities need them: definitions for turns, and the functions behind their tools."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from perdure import errors
from perdure.activities.history import HistoryReader
from perdure.activities.models import Models
from perdure.agents import Agent, AgentDefinition, define
from perdure.facts import TurnStarted
from perdure.registry import Registry
from perdure.tasks import TurnInfo
from perdure.tools import AnyTool

_KEPT = 1000


class Agents:
    """Looks agents up. What a factory made is kept for its run, so that a factory is called once a turn in a process."""

    def __init__(self, registry: Registry, models: Models, activity_of: Callable[[AnyTool], str]) -> None:
        self._registry = registry
        self._models = models
        self._activity_of = activity_of
        self._made: OrderedDict[tuple[str, str], Agent] = OrderedDict()
        self._lock = threading.Lock()

    async def resolve_agent(self, info: TurnInfo) -> AgentDefinition:
        """The definition that a turn is pinned to.

        Raises:
            UnknownAgentError: No agent of this name.
            DuplicateToolError: Two of its tools have one name.
            ConfigurationError: Its model or a tool is not set up.
        """
        run_id = activity.info().workflow_run_id
        assert run_id is not None
        agent = self._make(run_id, info)
        return define(agent, model=self._models.resolve(agent.model), activity_of=self._activity_of)

    async def prepare(self, client: Client, run_id: str, turn_id: str, owner: str) -> None:
        """Have the agent at hand before one of its tools runs: a factory that was called in another process is called here."""
        if (run_id, owner) in self._made or isinstance(self._entry(owner), Agent | None):
            return
        events = client.get_workflow_handle(turn_id, run_id=run_id).fetch_history_events(page_size=1)
        async for event in events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                fact = await HistoryReader(client.data_converter).fact(event)
                if isinstance(fact, TurnStarted):
                    self._make(run_id, fact.request.info(turn_id))
            return

    def tool(self, run_id: str, owner: str, name: str) -> AnyTool | None:
        """The deployed tool of an agent; None where there is none any more."""
        with self._lock:
            made = self._made.get((run_id, owner))
        agent = made or self._entry(owner)
        return agent.toolset().get(name) if isinstance(agent, Agent) else None

    def _entry(self, name: str) -> object | None:
        try:
            return self._registry.entry(name)
        except errors.UnknownAgentError:
            return None

    def _make(self, run_id: str, info: TurnInfo) -> Agent:
        agent = self._registry.make(info)
        if self._entry(info.agent) is not agent:
            with self._lock:
                self._made[run_id, info.agent] = agent
                while len(self._made) > _KEPT:
                    self._made.popitem(last=False)
        return agent
