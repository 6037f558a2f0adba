"""Definitions of agents, to which running turns are pinned. A later deploy does not change them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from operator import not_
from typing import Any

from pydantic import Field, JsonValue

from perdure import errors, limits
from perdure.agents.agent import Agent
from perdure.agents.client_tools import taken_tools
from perdure.agents.delegates import LIST_AGENTS, InheritedTool, PinnedDelegate
from perdure.agents.delegates import NAMES as DELEGATION_TOOLS
from perdure.agents.delegates import tools as delegation_tools
from perdure.agents.effects import PinnedEffect
from perdure.agents.handoffs import HAND_OVER, PinnedHandoff
from perdure.agents.handoffs import tool as handoff_tool
from perdure.agents.jobs import PinnedJob
from perdure.agents.mcp_servers import MCPTool
from perdure.agents.middleware import Logger, Middleware, Timeout
from perdure.agents.questions import PinnedQuestion
from perdure.agents.skills import LOAD_SKILL, Skill, joined
from perdure.agents.tools import Tool
from perdure.agents.tracebacks import raised
from perdure.agents.turn_rules import (
    Approval,
    OnChildError,
    OnExhausted,
    OnFailure,
    OnLoop,
    Protocol,
    Unmarked,
)
from perdure.agents.versions import UNVERSIONED, PinnedVersion
from perdure.agents.waits import PinnedWait
from perdure.base import Wire
from perdure.schemas import output_type
from perdure.schemas.strict_schema import Schema
from perdure.values.budgets import Budget
from perdure.values.client_tools import ClientTool
from perdure.values.model_retry import ModelRetryPolicy, PinnedRetry, pinned
from perdure.values.options import NO_OPTIONS, RequestOptions
from perdure.values.prices import Price


class ToolDefinition(Wire):
    """A tool as a turn is pinned to it.

    `activity` is the activity type that runs it, see `runs_as`. `timeout_s` is in seconds.
    `schema_digest` is compared with the schema of the deployed tool. `is_read_only` means that the
    tool changes nothing; `needs_approval`, that each call waits for approval. `owner` is the agent
    from which a tool is inherited, empty for the agent's own tools; `policies` are the agents above
    whose policies apply to an inherited tool, and `has_policy` means that there are some;
    `has_context`, that the tool takes a `ToolContext`. `is_local` means that a quick call runs
    within the workflow task, and `is_async`, that the function is async. `effect` has what the tool
    says about its effect, None if it says nothing. `undoes` is the tool whose calls it takes back,
    and `undone_defaults` has the arguments that calls of that tool may leave out. `wait` has what
    the turn does for a tool that waits, `asks` what may be answered for one that asks a person, and
    `job` how the result of a tool is had that comes later. These tools, the tools of delegation and
    `hand_over` have no activity: the turn runs them itself, or its client does. With `may_ask`, the
    server of the tool may ask people something during a call.
    """

    name: str
    description: str
    parameters: dict[str, JsonValue]
    activity: str
    is_idempotent: bool
    timeout_s: float
    schema_digest: str
    is_read_only: bool = False
    needs_approval: bool = False
    owner: str = ""
    has_policy: bool = False
    has_context: bool = True
    policies: tuple[str, ...] = ()
    is_local: bool = False
    is_async: bool = False
    effect: PinnedEffect | None = None
    undoes: str = Field(default="", exclude_if=not_)
    undone_defaults: dict[str, JsonValue] = Field(default={}, exclude_if=not_)
    asks: PinnedQuestion | None = Field(default=None, exclude_if=not_)
    wait: PinnedWait | None = Field(default=None, exclude_if=not_)
    job: PinnedJob | None = Field(default=None, exclude_if=not_)
    may_ask: bool = Field(default=False, exclude_if=not_)

    @property
    def runs_as(self) -> str:
        """The activity type that runs it; empty for a tool that the turn runs itself."""
        return self.job.activity if self.job else self.activity

    @property
    def timeout(self) -> timedelta:
        """The time after which a call is stopped."""
        return timedelta(seconds=self.timeout_s)


UNDO_MODEL = "perdure:undo"
"""The name in the place of a model in a turn that takes an effect back."""
RULES = 9
"""The rules of new turns."""
_OF_THE_CALLER = "The caller of this turn adds, as far as it agrees with what is above:"


class Stage(Wire):
    """One middleware as a turn is pinned to it.

    `timeout_s` and `log_level` are set for the two that the turn interprets itself.
    """

    name: str
    has_before: bool = False
    has_after: bool = False
    timeout_s: float | None = None
    log_level: int | None = None


class PinnedSkill(Wire):
    """A skill as a turn is pinned to it, by the digest of its content.

    A skill that is not on demand is part of the instructions.
    """

    name: str
    digest: str
    on_demand: bool = False


class Target(Wire):
    """A model that a turn may ask, as `provider:model`.

    `window` is the number of tokens of input and output together; `media` has the most bytes of an
    image or a file by its MIME type. These and `price` are None if they are unknown. `queue` is the
    task queue of its calls, empty for that of the turn.
    """

    model: str
    price: Price | None = None
    window: int | None = None
    media: dict[str, int] | None = None
    queue: str = ""

    @property
    def name(self) -> str:
        """The provider's name of the model."""
        return self.model.partition(":")[2]


class AgentDefinition(Wire):
    """An agent as a turn is pinned to it: a later deploy changes nothing of a running turn.

    `max_iterations` is None for no limit.

    `targets` are the models, in the order in which they are asked. `model` and `price` are those of
    the first; a definition of an earlier release has nothing else. `tier` is the alias of the
    agent's model, empty if the agent names the model itself. `allowed` is None if every tool is
    allowed. `output_schema` is that of the answer, None for text. `max_descendants` is None in a
    definition of an earlier release: there is no limit. `rules` is the version of the rules of the
    turn, so that a release that changes them does not affect running turns. 1: an exception of a
    resolver when its tool is called ends the turn, and a loop is equal steps with equal results
    instead of equal calls. 2: an agent that pauses when its budget is spent also pauses at its
    limit of iterations. 3: results of tools may have images and files. 4: a pause before a model
    is asked again that would end after the deadline is not begun, and steps in which every tool
    failed warn the model instead of ending the turn. 5: the result of a call whose outcome is
    unknown says what that means. `model_retry` is None in a definition of an
    earlier release: then a model that fails is asked once more. `indexed` means that the namespace
    has Perdure's search attributes. A turn may neither find that out itself, nor set them if they
    are missing. `call_secret` is a random text for the tokens of calls whose result comes later,
    empty for an agent without such tools. `version` says which version of the agent it is, and why.
    """

    name: str
    instructions: str
    model: str
    targets: tuple[Target, ...] = ()
    tools: tuple[ToolDefinition, ...] = ()
    max_iterations: int | None = limits.MAX_ITERATIONS
    budget: Budget | None = None
    on_exhausted: OnExhausted = "fail"
    output_schema: Schema | None = None
    options: RequestOptions = NO_OPTIONS
    on_loop: OnLoop = "ignore"
    protocol: Protocol = "native"
    unmarked: Unmarked = "correct"
    price: Price | None = None
    tier: str = ""
    allowed: tuple[str, ...] | None = None
    parallel_tools: bool = False
    approval: Approval = "marked"
    has_policy: bool = False
    middleware: tuple[Stage, ...] = ()
    observes: bool = False
    indexed: bool = False
    rules: int = 0
    skills: tuple[PinnedSkill, ...] = ()
    delegates: tuple[PinnedDelegate, ...] = ()
    handoffs: tuple[PinnedHandoff, ...] = ()
    max_depth: int = limits.DEPTH
    max_children: int = limits.CHILDREN
    children_at_once: int = limits.CHILDREN_AT_ONCE
    max_descendants: int | None = None
    on_child_error: OnChildError = "cancel"
    on_failure: OnFailure = "keep"
    model_retry: PinnedRetry | None = None
    call_secret: str = Field(default="", exclude_if=not_, repr=False)
    version: PinnedVersion = Field(default=UNVERSIONED, exclude_if=lambda v: v == UNVERSIONED)

    @property
    def chain(self) -> tuple[Target, ...]:
        """The models, in the order in which they are asked."""
        return self.targets or (Target(model=self.model, price=self.price),)

    @property
    def answer_checks(self) -> int:
        """The number of middlewares that check the answer of a turn."""
        return sum(stage.has_after for stage in self.middleware)

    def target(self, model: str) -> Target:
        """Return the model of this name; the first for an empty name."""
        chain = self.chain
        return next((target for target in chain if target.model == model), chain[0])

    def tool(self, name: str) -> ToolDefinition | None:
        """Return the tool of this name, if it was offered."""
        return next((item for item in self.tools if item.name == name), None)


def define(
    agent: Agent[Any],
    *,
    chain: Sequence[Target],
    activity_of: Callable[[Tool], str],
    allowed: Sequence[str] | None = None,
    delegates: Sequence[PinnedDelegate] = (),
    handoffs: Sequence[PinnedHandoff] = (),
    inherited: Sequence[tuple[InheritedTool, Tool]] = (),
    model_retry: ModelRetryPolicy | None = None,
    in_session: bool = False,
    more_instructions: str | None = None,
    client_tools: Sequence[ClientTool] = (),
) -> AgentDefinition:
    """Return the definition of `agent` with its models resolved and priced.

    `activity_of` returns the activity type that runs a tool.

    Only skills that are values are included; folders are read before. `allowed` has the names of
    the tools that a turn may call: others are not offered, and names that the agent lacks are
    looked up with its resolver. `inherited` are the tools of the turns above it; the agent's own
    tools come first, and override inherited tools of the same name. `model_retry` is the policy of
    the turn, instead of the agent's own. `in_session` tells whether the turn belongs to a session,
    which some tools need. `more_instructions` and `client_tools` are those of the caller.

    Raises:
        InvalidRequestError: The caller gives instructions or tools, and the agent takes none, or a
            tool has the name of another one.
        DuplicateToolError: Two tools have the same name.
        ToolResolverError: The resolver failed.
        ConfigurationError: The signature of a tool cannot be described.
    """
    own_tools = tuple(
        define_tool(item, activity_of(item))
        for item in offered(agent, allowed)
        if in_session or not item.needs_session
    )
    tools = (
        *own_tools,
        *_delegation(agent, delegates, allowed),
        *_handing_over(agent, handoffs, allowed),
        *_inherited(inherited, activity_of, allowed, {tool.name for tool in own_tools}),
    )
    more = taken_tools(agent, client_tools, {tool.name for tool in tools}, allowed)
    tools = (*tools, *map(_of_client, more))
    skills = [item for item in agent.skills if isinstance(item, Skill)]
    return AgentDefinition(
        name=agent.name,
        instructions=_with_more(
            agent,
            joined(
                agent.instructions, skills, can_load=any(tool.name == LOAD_SKILL for tool in tools)
            ),
            more_instructions,
        ),
        model=chain[0].model,
        targets=tuple(chain),
        tools=tools,
        skills=tuple(
            PinnedSkill(name=skill.name, digest=skill.digest, on_demand=skill.on_demand)
            for skill in skills
        ),
        allowed=None if allowed is None else tuple(allowed),
        max_iterations=None if agent.max_iterations == "unlimited" else agent.max_iterations,
        budget=agent.budget,
        on_exhausted=agent.on_exhausted,
        output_schema=output_type.schema_of(agent.output),
        options=agent.options,
        on_loop=agent.on_loop,
        rules=RULES,
        protocol=agent.protocol,
        unmarked=agent.unmarked,
        parallel_tools=agent.parallel_tools,
        approval=agent.approval,
        has_policy=agent.policy is not None,
        middleware=tuple(map(_stage, agent.middleware)),
        observes=bool(agent.observers),
        delegates=tuple(delegates),
        handoffs=tuple(handoffs),
        max_depth=agent.max_depth,
        max_children=agent.max_children,
        children_at_once=agent.children_at_once,
        max_descendants=agent.max_descendants,
        on_child_error=agent.on_child_error,
        on_failure=agent.on_failure,
        model_retry=pinned(model_retry or agent.model_retry or ModelRetryPolicy(), limits.OUTAGE),
        price=chain[0].price,
        tier="" if len(agent.models) > 1 or ":" in agent.models[0] else agent.models[0],
    )


def _with_more(agent: Agent[Any], own: str, more: str | None) -> str:
    """Return the agent's instructions, and after them those of the caller.

    Raises:
        InvalidRequestError: There are some, and the agent takes none.
    """
    if not more:
        return own
    if not agent.takes_instructions:
        raise errors.InvalidRequestError(
            f"agent {agent.name} takes no instructions of its callers; put what is special into the"
            " task, or declare it with takes_instructions=True"
        )
    return "\n\n".join(filter(None, (own, f"{_OF_THE_CALLER}\n{more}")))


def _of_client(tool: ClientTool) -> ToolDefinition:
    """Return the definition of a tool that the client runs."""
    job = PinnedJob(longest_s=limits.LONGEST_JOB.total_seconds(), by_client=True)
    made = _of_the_turn(tool.name, tool.description, tool.parameters)
    return made.model_copy(update={"is_idempotent": False, "job": job})


def define_undo(agent: Agent[Any], tool: Tool, undo: Tool, activity: str) -> AgentDefinition:
    """Return the definition of an agent with one tool, `undo`, which takes back calls of `tool`.

    Its policy, approval and observers are the agent's own. There is no model. What it does is not
    taken back in turn.
    """
    target = Target(model=UNDO_MODEL, price=Price.free())
    bare = Agent(
        name=agent.name,
        model=UNDO_MODEL,
        tools=[undo],
        approval=agent.approval,
        policy=agent.policy,
        observers=agent.observers,
    )
    definition = define(bare, chain=[target], activity_of=lambda _: activity)
    effect = (undo.pinned_effect or PinnedEffect()).model_copy(update={"can_undo": False})
    if not effect.has_key:
        effect = effect.model_copy(update={"has_key": True, "scope": "call"})
    [offered] = definition.tools
    of_tool = {"undoes": tool.name, "undone_defaults": _defaults(tool), "effect": effect}
    return definition.model_copy(update={"tools": (offered.model_copy(update=of_tool),)})


def _defaults(tool: Tool) -> dict[str, JsonValue]:
    """Return the defaults in the schema of a tool, by argument."""
    properties: Any = tool.arguments.schema.get("properties", {})
    return {
        name: schema["default"]
        for name, schema in properties.items()
        if isinstance(schema, dict) and "default" in schema
    }


def _stage(item: Middleware) -> Stage:
    kind = type(item)
    return Stage(
        name=kind.__name__,
        has_before=kind.before is not Middleware.before,
        has_after=kind.after is not Middleware.after,
        timeout_s=item.limit.total_seconds() if isinstance(item, Timeout) else None,
        log_level=item.level if isinstance(item, Logger) else None,
    )


def _delegation(
    agent: Agent[Any], delegates: Sequence[PinnedDelegate], allowed: Sequence[str] | None
) -> Iterator[ToolDefinition]:
    """Yield the tools of an agent that has delegates."""
    if not agent.delegates:
        return
    for name, description, parameters in delegation_tools(delegates, agent.children_at_once):
        if allowed is None or name in allowed:
            yield _of_the_turn(name, description, parameters, is_read_only=name == LIST_AGENTS)


def _handing_over(
    agent: Agent[Any], handoffs: Sequence[PinnedHandoff], allowed: Sequence[str] | None
) -> Iterator[ToolDefinition]:
    """Yield the tool of an agent that has handoffs."""
    if agent.handoffs and (allowed is None or HAND_OVER in allowed):
        yield _of_the_turn(HAND_OVER, *handoff_tool(handoffs))


def _of_the_turn(
    name: str, description: str, parameters: dict[str, JsonValue], *, is_read_only: bool = False
) -> ToolDefinition:
    """Return the definition of a tool that the turn runs itself."""
    return ToolDefinition(
        name=name,
        description=description,
        parameters=parameters,
        activity="",
        is_idempotent=True,
        timeout_s=0,
        schema_digest="",
        is_read_only=is_read_only,
    )


def _inherited(
    items: Sequence[tuple[InheritedTool, Tool]],
    activity_of: Callable[[Tool], str],
    allowed: Sequence[str] | None,
    own_names: set[str],
) -> Iterator[ToolDefinition]:
    """Yield allowed tools of the turns above, nearest first, except those the agent overrides."""
    for item, source in items:
        if item.name not in own_names and (allowed is None or item.name in allowed):
            tool = define_tool(source, activity_of(source))
            needs = tool.needs_approval or item.needs_approval
            policy_fields = {"has_policy": item.has_policy, "policies": item.policies}
            yield tool.model_copy(
                update={"owner": item.owner, "needs_approval": needs, **policy_fields}
            )


def offered(agent: Agent[Any], allowed: Sequence[str] | None) -> Iterator[Tool]:
    """Yield the tools of a turn, in the order offered."""
    tools = agent.toolset()
    yield from (item for name, item in tools.items() if allowed is None or name in allowed)
    for name in dict.fromkeys(allowed or ()):
        item = None if name in tools else resolved(agent, name)
        if item is not None:
            yield item


def resolved(agent: Agent[Any], name: str) -> Tool | None:
    """Return the tool that the agent's resolver finds under a name.

    Raises:
        ToolResolverError: The resolver raised, or returned something else.
    """
    if agent.resolver is None or name in (LOAD_SKILL, HAND_OVER, *DELEGATION_TOOLS):
        return None
    try:
        tool = agent.resolver.resolve(name)
    except Exception as error:
        raise errors.ToolResolverError(
            f"agent {agent.name}: the resolver failed for {name!r}: {raised(error)}"
        ) from error
    if tool is not None and (not isinstance(tool, Tool) or tool.name != name):
        raise errors.ToolResolverError(
            f"agent {agent.name}: the resolver gave {tool!r} for the tool {name!r}; return a tool"
            " of that name, or None"
        )
    return tool


@functools.lru_cache(maxsize=256)  # a turn defines the same tools at each handoff
def define_tool(item: Tool, activity: str) -> ToolDefinition:
    """Return the definition of one tool."""
    if item.asks is not None:
        made = _of_the_turn(item.name, item.description, item.arguments.schema, is_read_only=True)
        return made.model_copy(update={"asks": item.asks})
    job = item.pinned_job
    return ToolDefinition(
        name=item.name,
        description=item.description,
        parameters=item.arguments.schema,
        activity="" if item.wait or job else activity,
        is_idempotent=item.idempotent,
        timeout_s=item.timeout.total_seconds(),
        schema_digest=item.digest,
        is_read_only=item.read_only,
        needs_approval=item.requires_approval,
        has_context=item.context_parameter is not None,
        is_local=item.local,
        is_async=item.is_async,
        effect=item.pinned_effect,
        wait=item.wait,
        job=job.model_copy(update={"activity": activity}) if job else None,
        may_ask=isinstance(item, MCPTool) and item.may_ask,
    )
