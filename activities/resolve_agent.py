"""Resolves agents for activities: the definitions of turns and the functions of their tools."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

from temporalio import activity
from temporalio.client import Client

from perdure import errors, limits
from perdure.activities.error_log import log_cause
from perdure.activities.load_skill import PinnedSkills
from perdure.activities.mcp.toolboxes import Servers, with_logins
from perdure.activities.pricing import Prices
from perdure.activities.profiles import Profiles
from perdure.activities.provider import Models
from perdure.activities.rollouts import Rollouts
from perdure.activities.user_code import called
from perdure.activities.webhooks import Webhooks
from perdure.agents.agent import Agent
from perdure.agents.definitions import AgentDefinition, Target, define, define_undo, resolved
from perdure.agents.delegates import Delegate, InheritedTool, PinnedDelegate, declared
from perdure.agents.handoffs import Handoff, PinnedHandoff, check_known
from perdure.agents.mcp_logins import LOG_IN
from perdure.agents.registry import Entry, Registry, described_in
from perdure.agents.skills import LOAD_SKILL
from perdure.agents.tools import Tool
from perdure.agents.turn_rules import Approval
from perdure.agents.versions import PinnedVersion, address, parts_of
from perdure.errors import PerdureError
from perdure.temporal.histories.fetching import first_request
from perdure.temporal.names import GENERATE, provider_queue
from perdure.temporal.namespace_check import Index
from perdure.temporal.recent import Recent
from perdure.turn import handoffs
from perdure.turn.agent_call import AgentCall
from perdure.values.model_retry import ModelRetryPolicy

_KEPT = 1000


class Agents:
    """Looks up agents.

    An agent made by a factory is kept for its run, so that a factory is called once per turn in
    each process.
    """

    def __init__(
        self,
        registry: Registry,
        models: Models,
        prices: Prices,
        profiles: Profiles,
        queues: Collection[str],
        servers: Servers,
        activity_of: Callable[[Tool], str],
        model_retry: ModelRetryPolicy,
        webhooks: Webhooks,
    ) -> None:
        self._registry = registry
        self._rollouts = Rollouts(registry)
        self._models = models
        self._prices = prices
        self._profiles = profiles
        self._queues = queues
        self._servers = servers
        self._activity_of = activity_of
        self._model_retry = model_retry
        self._webhooks = webhooks
        self._index = Index()
        self._skills = PinnedSkills()
        self._made = Recent[tuple[str, str], Agent](_KEPT)
        self._lock = threading.Lock()
        self._making = WeakValueDictionary[tuple[str, str], asyncio.Lock]()

    async def resolve_agent(self, call: AgentCall) -> AgentDefinition:
        """Return the definition that a turn is pinned to.

        Raises:
            WebhookRefusedError: This worker sends no webhooks to a URL of the turn.
            InvalidRequestError: The caller gives instructions or tools, and the agent takes none,
                or a tool of the caller has the name of one of the agent.
            UnknownAgentError: There is no agent of this name, or of a delegate's or handoff's.
            DuplicateToolError: Two of its tools have the same name.
            ToolResolverError: Its tool resolver failed.
            ConfigurationError: Its model, a tool or a skill is not set up, or an MCP server is
                down.
        """
        for option, url in (("on_done", call.on_done), ("on_wait", call.on_wait)):
            if url is not None:
                self._check_url(option, url)
        definition = await self._defined(call)
        if call.handed_to is None:
            return definition
        other = call.model_copy(
            update={
                "agent": call.handed_to,
                "handed_to": None,
                "version": "",
                "instructions": None,
                "client_tools": (),
            }
        )
        return handoffs.taken_over(await self._defined(other), definition)

    def _check_url(self, option: str, url: str) -> None:
        """Refuse a URL that this worker does not send to. The error names the option.

        Raises:
            WebhookRefusedError: It is.
        """
        try:
            self._webhooks.check(url)
        except errors.WebhookRefusedError as error:
            error.context["option"] = option
            raise

    async def _defined(self, call: AgentCall) -> AgentDefinition:
        client, info = activity.client(), activity.info()
        if call.undoes:
            return await self._undoing(client, info, call)
        version = (
            PinnedVersion()
            if call.agent == GENERATE
            else await self._rollouts.choice(client, call, info.workflow_id or "")
        )
        asked = await self._skills.read(await self._asked(client, info, call, version.name))
        allowed = with_logins(call.allowed, asked.servers)
        agent = await self._servers.read(asked, allowed)
        check_known(agent.handoffs, agent.name, self._registry.list())
        chain = self._models.resolve(agent.models)
        targets = await asyncio.to_thread(
            self._targets, chain, {**agent.options.extra, **call.extra}, info.task_queue
        )
        definition = define(
            agent,
            chain=targets,
            activity_of=self._activity_of,
            allowed=allowed,
            delegates=[
                self._pinned(item)
                for item in declared(agent.delegates, agent.name, self._registry.list())
            ],
            handoffs=[self._handoff(item) for item in agent.handoffs],
            inherited=[
                (item, inherited)
                for item in call.inherited
                if (inherited := await self._inherited(client, info, item)) is not None
            ],
            model_retry=call.model_retry or agent.model_retry or self._model_retry,
            in_session=call.in_session,
            more_instructions=call.instructions,
            client_tools=call.client_tools,
        )
        definition = _with_call_secret(definition).model_copy(
            update={
                "name": call.agent,
                "indexed": await self._index.is_ready(client),
                "version": _of(agent, version),
            }
        )
        self._skills.pin(info.workflow_run_id or "", definition, agent.skills)
        return definition

    async def _undoing(
        self, client: Client, info: activity.Info, call: AgentCall
    ) -> AgentDefinition:
        """Return the definition of an agent that takes back the effect of a call of its tool.

        Raises:
            ConfigurationError: Nothing takes back what the deployed tool does.
        """
        agent = await self._skills.read(
            await self._agent(client, info, address(call.agent, call.version))
        )
        tool = (
            agent.toolset().get(call.undoes)
            or await self._servers.find(agent, call.undoes)
            or resolved(agent, call.undoes)
        )
        if tool is None or tool.undo is None:
            raise errors.ConfigurationError(
                f"the deployed worker does not have undo= of tool {call.undoes} of agent"
                f" {call.agent} any more"
            )
        definition = define_undo(agent, tool, tool.undo, self._activity_of(tool.undo))
        return _with_call_secret(definition).model_copy(
            update={
                "indexed": await self._index.is_ready(client),
                "version": _of(agent, PinnedVersion()),
            }
        )

    def is_at_hand(self, call: AgentCall) -> bool:
        """Return whether resolving the agent needs nothing but this process.

        It needs more for the code of a factory or a resolver, the folder of a skill, an MCP server,
        or to ask the server about its search attributes, or whether a version is stopped.
        """
        if not all(map(self._rollouts.is_at_hand, filter(None, (call.agent, call.handed_to)))):
            return False
        owners = {item.owner for item in call.inherited}
        if call.agent != GENERATE:
            owners.update(filter(None, (call.agent, call.handed_to)))
        entries = [entry for owner in owners for entry in self._versions(owner)]
        return self._index.is_known and all(map(_is_static, entries))

    async def warm(self, client: Client) -> None:
        """Ask the server now what every turn needs to know."""
        await self._index.found(client)

    async def of_this_activity(self, name: str) -> Agent:
        """Return the agent of the turn that this activity belongs to."""
        return await self._agent(activity.client(), activity.info(), name)

    async def prepare(self, client: Client, info: activity.Info, owner: str) -> None:
        """Make the agent available before one of its tools runs.

        If its factory was called in another process, it is called here as well.
        """
        try:
            await self._agent(client, info, owner)
        except PerdureError as error:  # the lookup of the tool reports what is missing
            log_cause(error)

    def tool(self, run_id: str, owner: str, name: str, pinned: str) -> Tool | None:
        """Return the deployed tool of an agent; None if it no longer exists.

        A tool of an MCP server compares itself with the digest `pinned` when it is called.
        """
        agent = self._kept(run_id, owner) or self._entry(owner)
        if name == LOAD_SKILL:
            return self._skills.loader(
                activity.client(),
                activity.info(),
                owner,
                agent if isinstance(agent, Agent) else None,
            )
        if not isinstance(agent, Agent):
            return None
        return (
            agent.toolset().get(name)
            or self._servers.tool(agent, name, pinned)
            or resolved(agent, name)
        )

    def approval(self, run_id: str, owner: str) -> Approval:
        """Return which calls of its tools require approval, according to this worker's agent."""
        agent = self._kept(run_id, owner) or self._entry(owner)
        return agent.approval if isinstance(agent, Agent) else "marked"

    async def deployed(self, owner: str, name: str, pinned: str) -> Tool:
        """Return a tool of an agent as deployed on this worker.

        Raises:
            ConfigurationError: This worker does not have the tool.
            PerdureError: The agent's factory or its resolver failed.
        """
        client, info = activity.client(), activity.info()
        await self.prepare(client, info, owner)
        run_id = info.workflow_run_id or ""
        agent = self._kept(run_id, owner) or self._entry(owner)
        if isinstance(agent, Agent) and agent.resolver is not None:
            item = await called(self.tool, run_id, owner, name, pinned, limit=limits.USER_CODE)
        else:  # nothing that may block: no thread is needed
            item = self.tool(run_id, owner, name, pinned)
        if not isinstance(item, Tool):
            raise errors.ConfigurationError(
                f"{name}: the deployed worker does not have this tool of agent {owner} any more"
            )
        return item

    def _targets(
        self, chain: Sequence[str], extra: Mapping[str, object], queue: str
    ) -> list[Target]:
        """Return the models of a chain with their price, window, media and queue."""
        return [self._target(model, extra, queue) for model in chain]

    def _target(self, model: str, extra: Mapping[str, object], queue: str) -> Target:
        provider, profile = model.partition(":")[0], self._profiles.of(model)
        return Target(
            model=model,
            price=self._prices.price(model, extra),
            window=profile.window,
            media=profile.media,
            queue=provider_queue(queue, provider) if provider in self._queues else "",
        )

    def _pinned(self, delegate: Delegate) -> PinnedDelegate:
        entry = self._registry.entry(delegate.name)
        return PinnedDelegate(
            name=delegate.name,
            description=described_in(entry),
            budget=delegate.budget,
            allowed_tools=None if delegate.allowed_tools is None else tuple(delegate.allowed_tools),
            inherits=delegate.inherit,
        )

    def _handoff(self, item: Handoff) -> PinnedHandoff:
        return PinnedHandoff(
            name=item.name,
            description=described_in(self._registry.entry(item.name)),
            keep=item.keep,
        )

    async def _inherited(
        self, client: Client, info: activity.Info, item: InheritedTool
    ) -> Tool | None:
        """Return a tool of an ancestor turn; None if its owner no longer has it."""
        with contextlib.suppress(errors.UnknownAgentError):
            agent = await self._skills.read(await self._agent(client, info, item.owner))
            return (
                agent.toolset().get(item.name)
                or await self._servers.find(agent, item.name)
                or resolved(agent, item.name)
            )
        return None

    def _entry(self, name: str) -> Entry | None:
        try:
            return self._registry.entry(name)
        except errors.UnknownAgentError:
            return None

    def _versions(self, owner: str) -> list[Entry | None]:
        """Return what may have the name or the address of an agent."""
        versions = () if parts_of(owner)[1] else self._registry.versions(owner)
        return [self._entry(address(owner, version)) for version in versions or ("",)]

    async def _asked(
        self, client: Client, info: activity.Info, call: AgentCall, version: str
    ) -> Agent:
        """Return the agent for a turn: with a different model, or the agent behind `generate`."""
        if call.agent == GENERATE:
            return Agent(name="generate", model=call.model or "")
        agent = await self._agent(client, info, address(call.agent, version))
        if call.handed_to is not None:  # the model is for that agent
            return agent
        return replace(agent, model=call.model) if call.model else agent

    async def _agent(self, client: Client, info: activity.Info, name: str) -> Agent:
        """Return the agent by its name or address; a factory is called at most once per run."""
        assert info.workflow_id is not None
        assert info.workflow_run_id is not None
        entry = self._registry.entry(name)
        if isinstance(entry, Agent):
            return entry
        name, _ = parts_of(name)
        # a lock of its own, because a factory may block
        lock = self._making.setdefault((info.workflow_run_id, name), asyncio.Lock())
        async with lock:
            return self._kept(info.workflow_run_id, name) or await self._make(
                client, info.workflow_id, info.workflow_run_id, name
            )

    def _kept(self, run_id: str, name: str) -> Agent | None:
        """Return the agent that a factory has made for a run."""
        with self._lock:
            return self._made.get((run_id, parts_of(name)[0]))

    async def _make(self, client: Client, turn_id: str, run_id: str, name: str) -> Agent:
        """Call the factory, which may block."""
        request, _ = await first_request(client, turn_id, run_id)
        about = request.info(turn_id).model_copy(update={"agent": name})
        try:
            agent: Agent = await called(self._registry.make, about, limit=limits.USER_CODE)
        except (errors.UnknownAgentError, errors.ConfigurationError):
            raise
        except PerdureError as error:
            raise errors.ConfigurationError(
                f"the factory of agent {name!r} failed: {error.message}"
            ) from None
        with self._lock:
            self._made.put((run_id, name), agent)
        return agent


def _is_static(entry: Entry | None) -> bool:
    """Return whether an agent is known without running code, reading files or asking a server."""
    return (
        isinstance(entry, Agent)
        and entry.resolver is None
        and not entry.servers
        and not any(isinstance(skill, Path) for skill in entry.skills)
    )


def _of(agent: Agent, chosen: PinnedVersion) -> PinnedVersion:
    """Return what a turn is pinned to that begins with a version of an agent."""
    return chosen.model_copy(update={"name": agent.version, "started": agent.version})


def _with_call_secret(definition: AgentDefinition) -> AgentDefinition:
    """Return a definition with a new secret for tokens, if the result of a tool may come later."""
    if all(tool.job is None and tool.schema_digest != LOG_IN for tool in definition.tools):
        return definition
    return definition.model_copy(update={"call_secret": secrets.token_hex(16)})
