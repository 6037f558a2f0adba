"""Agents, as users declare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Literal

from pydantic import SkipValidation

from perdure import errors, limits, validation
from perdure.agents.delegates import NAMES as DELEGATION_TOOLS
from perdure.agents.delegates import Delegate
from perdure.agents.handoffs import HAND_OVER, Handoff
from perdure.agents.mcp_servers import MCPServer
from perdure.agents.middleware import Middleware
from perdure.agents.observers import Observer
from perdure.agents.policy import Policy
from perdure.agents.skills import LOAD_SKILL, Skill, among, loader, refuse_same_names
from perdure.agents.tools import NAME, Tool, Toolbox, ToolResolver, as_tools
from perdure.agents.turn_rules import (
    Approval,
    OnChildError,
    OnExhausted,
    OnFailure,
    OnLoop,
    Protocol,
    Unmarked,
)
from perdure.agents.versions import check_name
from perdure.base import T_co
from perdure.schemas import output_type
from perdure.validation import Converted, Must
from perdure.values.budgets import ABudget
from perdure.values.model_retry import APolicy
from perdure.values.options import NO_OPTIONS, RequestOptions

_Resolver = Annotated[
    ToolResolver,
    Must(
        "an object with a method resolve(name)",
        lambda value: not isinstance(value, type) and callable(getattr(value, "resolve", None)),
    ),
]


def _who(agent: Agent[Any]) -> str:
    return f"agent {agent.name}"


def _list(field: str, description: str, *types: type) -> Converted[Iterable[Any], tuple[Any, ...]]:
    """Return a field whose items are instances of these types."""
    item = Annotated[Any, validation.instance(description, *types)]
    return Converted(lambda agent, value: validation.listed(_who(agent), field, value, item), ())


@dataclass(frozen=True, kw_only=True)
class Agent(Generic[T_co]):
    """An agent: its instructions, models, tools and limits.

    Attributes:
        name: 1 to 64 characters of A-Z, a-z, 0-9, _ and -.
        model: `provider:model`, or an alias that the worker resolves; or several of them, a chain:
            each is a fallback for the model before it.
        description: The purpose of the agent, in one line.
        instructions: The system prompt.
        takes_instructions: Whether the caller of a turn may add instructions, which are placed
            after the agent's own.
        version: The name of this version of the agent, of the same characters. Several versions of
            one agent need a `Rollout` in the worker. Empty for an agent without versions.
        takes_tools: Whether the caller of a turn may bring tools that its client runs, which are
            offered after the agent's own.
        tools: Tools or plain functions, offered in this order.
        toolboxes: Named sets of tools, and MCP servers, offered after `tools`. The tools of a
            server are listed when a turn begins.
        skills: Instructions with tools, appended to the prompt in this order: values, or folders
            that are a skill or contain skills. Folders are read when a turn begins.
        resolver: Finds tools that a turn allows by name and that the agent does not have.
        max_iterations: The largest number of steps of one turn, at least 1, or `"unlimited"`. The
            option of a turn overrides it.
        budget: The budget of a turn. Each limit that a turn is started with overrides it.
        on_exhausted: The action when the budget is spent: `fail` with the report, `finish` with a
            last answer that is paid from a reserve kept for it, or `pause` until a person adds to
            the budget. `pause` also applies to `max_iterations`.
        output: The type of the answer: any type that pydantic supports and that can be enforced on
            a model; the default is text.
        options: Temperature, output limit and the like, for every request. The options of a turn
            override them.
        model_retry: The retries while a provider is unavailable; the default is the worker's.
        parallel_tools: Whether to run the calls of one answer in parallel; their results keep the
            order of the calls.
        approval: The calls that wait for a person: calls of `marked` tools, also of tools that are
            not read-only (`changes`), or `all`.
        policy: A function that allows, denies or requires approval for each call, in the worker.
        middleware: Checks, timeouts and log lines around the turn; the first is the outermost.
        delegates: Agents to which it may delegate, by name, as `Delegate` or as agents; `"all"` for
            every other agent of the worker. They must be registered with the same worker.
        handoffs: Agents to which it may hand its turn over, by name, as `Handoff` or as agents.
            They must be registered with the same worker.
        max_depth: The largest depth of the tree of agents below it: 1 for delegates that may not
            delegate, 0 for no delegates.
        max_children: The number of delegates' turns that one turn may start.
        children_at_once: The number of them that one call may start.
        max_descendants: The number of delegates' turns in the whole tree below it.
        on_child_error: The action when one of several delegates fails: `cancel` the others, or
            `collect` the results of all of them.
        on_failure: What becomes of the effects of a turn that ends without an answer: `keep` them,
            or `undo` them, the last first, as far as their tools have `undo=`.
        observers: Objects that see every step, every wait and the end, in the worker.
        on_loop: The action when the model repeats itself: `fail`, `warn` the model, or `ignore` it.
        protocol: The form in which a model requests tools: `native` calls, or, for models without
            them, text (`react_text`) or `json`.
        unmarked: In the other two protocols, the meaning of text that neither requests a tool nor
            is marked as the answer: the `answer`, or a mistake for the model to `correct`.

    Raises:
        ConfigurationError: A value is not valid; it is raised when the agent is created.
    """

    name: str
    model: Annotated[
        str | Sequence[str], validation.instance("a string, or a list of strings", str, Iterable)
    ]
    description: validation.Text = ""
    instructions: validation.Text = ""
    tools: Converted[Iterable[Tool | Callable[..., Any]], tuple[Tool, ...]] = Converted(
        lambda agent, given: as_tools(given, _who(agent)), ()
    )
    toolboxes: Converted[Iterable[Toolbox | MCPServer], tuple[Toolbox | MCPServer, ...]] = _list(
        "toolboxes", "a Toolbox or an MCPServer", Toolbox, MCPServer
    )
    skills: Converted[Iterable[Skill | Path], tuple[Skill | Path, ...]] = _list(
        "skills", "a Skill, or the Path of a folder", Skill, Path
    )
    resolver: _Resolver | None = None
    max_iterations: Annotated[
        validation.Count | Literal["unlimited"],
        Must(f"a whole number from 1 to {validation.MOST}, or 'unlimited'"),
    ] = limits.MAX_ITERATIONS
    budget: ABudget | None = None
    on_exhausted: OnExhausted = "fail"
    output: Annotated[type[T_co] | None, SkipValidation] = None
    options: Annotated[
        RequestOptions,
        validation.instance(
            "RequestOptions, such as RequestOptions(temperature=0)", RequestOptions
        ),
    ] = NO_OPTIONS
    model_retry: APolicy | None = None
    on_loop: OnLoop = "fail"
    protocol: Protocol = "native"
    unmarked: Unmarked = "correct"
    parallel_tools: bool = False
    approval: Approval = "marked"
    policy: Annotated[Policy, validation.FUNCTION] | None = None
    middleware: Converted[Iterable[Middleware], tuple[Middleware, ...]] = _list(
        "middleware", "an instance of Middleware", Middleware
    )
    observers: Converted[Iterable[Observer], tuple[Observer, ...]] = _list(
        "observers", "an instance of Observer", Observer
    )
    delegates: Converted[
        Iterable[str | Delegate | Agent[Any]] | Literal["all"],
        tuple[Delegate, ...] | Literal["all"],
    ] = Converted(lambda agent, given: _as_delegates(_who(agent), given), ())
    handoffs: Converted[Iterable[str | Handoff | Agent[Any]], tuple[Handoff, ...]] = Converted(
        lambda agent, given: _as_handoffs(agent.name, given), ()
    )
    max_depth: validation.CountOrZero = limits.DEPTH
    max_children: validation.Count = limits.CHILDREN
    children_at_once: validation.Count = limits.CHILDREN_AT_ONCE
    max_descendants: validation.Count = limits.DESCENDANTS
    on_child_error: OnChildError = "cancel"
    on_failure: OnFailure = "keep"
    takes_instructions: validation.Flag = False
    takes_tools: validation.Flag = False
    version: validation.Text = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise errors.ConfigurationError(
                f"agent name {self.name!r}: use 1 to 64 of A-Z, a-z, 0-9, _ and -"
            )
        who = _who(self)
        validation.check_fields(Agent, who, self)
        check_name(self.name, self.version)
        object.__setattr__(self, "model", _as_models(who, self.model))
        output_type.schema_of(self.output, f"{who}: ")
        _refuse_same_servers(who, self.servers)
        refuse_same_names(
            self.name,
            (
                (f"skills[{index}]", item)
                for index, item in enumerate(self.skills)
                if isinstance(item, Skill)
            ),
        )

    @property
    def models(self) -> tuple[str, ...]:
        """The models or aliases, in the order in which they are asked."""
        return (self.model,) if isinstance(self.model, str) else tuple(self.model)

    def with_toolboxes(self, *toolboxes: Toolbox | MCPServer) -> Agent[T_co]:
        """Return the same agent with more toolboxes.

        After it is registered again with `replace=True`, new turns have them; running ones do not.
        """
        return replace(self, toolboxes=(*self.toolboxes, *toolboxes))

    def with_skills(self, *skills: Skill | Path) -> Agent[T_co]:
        """Return the same agent with more skills.

        After it is registered again with `replace=True`, new turns have them; running ones do not.
        """
        return replace(self, skills=(*self.skills, *skills))

    def toolset(self) -> dict[str, Tool]:
        """Return every tool by name, in the order offered, except the tools of MCP servers.

        Those are not known here. The last tool is `load_skill`, if there are skills on demand, or
        folders, which may contain some.

        Raises:
            DuplicateToolError: Two tools have the same name; the message names both sources.
        """
        tools: dict[str, Tool] = {}
        sources = dict.fromkeys((LOAD_SKILL, HAND_OVER, *DELEGATION_TOOLS), "Perdure itself")
        for source, item in self._sources():
            if item.name in sources:
                raise errors.DuplicateToolError(
                    f"agent {self.name}: the tool {item.name!r} comes from {sources[item.name]} and"
                    f" from {source}; rename one with @tool(name=…), or take toolbox.prefixed(…)",
                    context={
                        "agent": self.name,
                        "tool": item.name,
                        "sources": [sources[item.name], source],
                    },
                )
            tools[item.name], sources[item.name] = item, source
        values = [skill for skill in self.skills if isinstance(skill, Skill)]
        if len(values) < len(self.skills) or any(skill.on_demand for skill in values):
            tools[LOAD_SKILL] = loader(among(values))
        return tools

    @property
    def servers(self) -> tuple[MCPServer, ...]:
        """Its MCP servers."""
        return tuple(box for box in self.toolboxes if isinstance(box, MCPServer))

    def _sources(self) -> Iterator[tuple[str, Tool]]:
        yield from (("the agent's tools", item) for item in self.tools)
        for box in self.toolboxes:
            if isinstance(box, Toolbox):
                yield from ((f"toolbox {box.name!r}", item) for item in box.tools)
        for skill in self.skills:
            if isinstance(skill, Skill):
                yield from ((f"skill {skill.name!r}", item) for item in skill.tools)


_A_DELEGATE = Annotated[
    Any, validation.instance("a name, a Delegate or an Agent", str, Delegate, Agent)
]
_A_HANDOFF = Annotated[
    Any, validation.instance("a name, a Handoff or an Agent", str, Handoff, Agent)
]


def _as_models(who: str, value: str | Sequence[str]) -> str | tuple[str, ...]:
    models = (
        (value,)
        if isinstance(value, str)
        else validation.listed(who, "model", value, validation.Text)
    )
    if not models or not all(model.strip() for model in models):
        raise errors.ConfigurationError(f"{who}: name a model, such as model='openai:gpt-5-mini'")
    if len(models) > limits.CHAIN:
        raise errors.ConfigurationError(
            f"{who}: a chain has at most {limits.CHAIN} models, not {len(models)}"
        )
    return value if isinstance(value, str) else models


def _refuse_same_servers(who: str, servers: Sequence[MCPServer]) -> None:
    names = [server.name for server in servers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise errors.ConfigurationError(
            f"{who}: two of its MCP servers are called {twice!r}; rename one"
        )


def _as_delegates(
    who: str, value: Iterable[str | Delegate | Agent[Any]] | Literal["all"]
) -> tuple[Delegate, ...] | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, str):
        raise errors.ConfigurationError(
            f"{who}: delegates is a list of names, or 'all', not {value!r}"
        )
    items = validation.listed(who, "delegates", value, _A_DELEGATE)
    delegates = tuple(map(_delegate, items))
    twice = _twice(delegates)
    if twice is not None:
        raise errors.ConfigurationError(f"{who}: it delegates to {twice!r} twice")
    return delegates


def _as_handoffs(agent: str, value: Iterable[str | Handoff | Agent[Any]]) -> tuple[Handoff, ...]:
    who = f"agent {agent}"
    items = validation.listed(who, "handoffs", value, _A_HANDOFF)
    handoffs = tuple(map(_handoff, items))
    twice = _twice(handoffs)
    if twice is not None:
        raise errors.ConfigurationError(f"{who}: it hands over to {twice!r} twice")
    if any(item.name == agent for item in handoffs):
        raise errors.ConfigurationError(f"{who}: it cannot hand over to itself")
    return handoffs


def _twice(items: Sequence[Delegate | Handoff]) -> str | None:
    names = [item.name for item in items]
    return next((name for name in names if names.count(name) > 1), None)


def _handoff(item: Handoff | Agent[Any] | str) -> Handoff:
    if isinstance(item, Handoff):
        return item
    return Handoff(item.name if isinstance(item, Agent) else item)


def _delegate(item: Delegate | Agent[Any] | str) -> Delegate:
    if isinstance(item, Delegate):
        return item
    return Delegate(item.name if isinstance(item, Agent) else item)
