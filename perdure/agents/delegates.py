"""Delegates: to whom an agent may give work, with what, and the tools by which it does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from perdure import errors, validation
from perdure.base import Wire
from perdure.validation import Converted
from perdure.values.budgets import ABudget, Budget

LIST_AGENTS = "list_agents"
DELEGATE = "delegate_to_agent"
SPAWN = "spawn_agents"
NAMES = (LIST_AGENTS, DELEGATE, SPAWN)
"""No other tool may be called so."""


@dataclass(frozen=True)
class Delegate:
    """An agent that another may give work to, where more than its name is to be said.

    Attributes:
        name: The agent's name.
        budget: What each turn of it may spend, taken from what its parent has left; without it, a
            fair share of that.
        allowed_tools: Only these tools of its own and of its parent's are offered to it; None for
            every tool.
        inherit: Give it the tools of its parent after its own.

    Raises:
        ConfigurationError: A value that cannot work.
    """

    name: validation.Text
    budget: ABudget | None = None
    allowed_tools: Converted[Iterable[str] | None, tuple[str, ...] | None] = Converted(
        lambda delegate, given: (
            None
            if given is None
            else validation.listed(
                f"delegate {delegate.name}", "allowed_tools", given, validation.Text
            )
        ),
        None,
    )
    inherit: bool = True

    def __post_init__(self) -> None:
        validation.check("delegate", {"name": self.name}, {"name": validation.Text})
        validation.check_fields(Delegate, f"delegate {self.name}", self)


class PinnedDelegate(Wire):
    """A delegate as a turn is pinned to it.

    The `description` of one that a factory makes is that of the factory.
    """

    name: str
    description: str = ""
    budget: Budget | None = None
    allowed_tools: tuple[str, ...] | None = None
    inherits: bool = True


class InheritedTool(Wire):
    """A tool that a delegate is given.

    Whose it is, and what the turns above want asked before it runs.

    `policies` are the agents whose policies are asked. `has_policy` says that there are some: a
    worker of an earlier release looks at that alone, and asks the owner's.
    """

    owner: str
    name: str
    needs_approval: bool = False
    has_policy: bool = False
    policies: tuple[str, ...] = ()


class Ancestor(Wire):
    """A turn above another, and the key by which it knows the one below it."""

    turn_id: str
    key: str


class Lineage(Wire):
    """Where a turn comes from that another delegated to.

    The turns above it, the root first, and what they let it do.

    `descendants_left` is its part of the turns that the tree may still have: so many may be below
    it. None from an earlier release.
    """

    ancestors: Annotated[tuple[Ancestor, ...], Field(min_length=1)]
    depth_left: int = 0
    descendants_left: int | None = None
    tools: tuple[InheritedTool, ...] = ()


def declared(
    items: Sequence[object] | Literal["all"], agent: str, known: Iterable[str]
) -> tuple[Delegate, ...]:
    """The delegates of an agent, sorted by name, without itself.

    `known` are the names of all agents.

    Raises:
        UnknownAgentError: One of them is not known.
    """
    names = set(known)
    given = (
        {name: Delegate(name) for name in names}
        if items == "all"
        else {item.name: item for item in items if isinstance(item, Delegate)}
    )
    for name in given:
        if name not in names:
            raise errors.UnknownAgentError(
                f"agent {agent} delegates to {name!r}, which this worker does not know; it knows"
                f" {', '.join(sorted(names))}",
                context={"agent": name},
            )
    return tuple(given[name] for name in sorted(given) if name != agent)


def tools(
    delegates: Sequence[PinnedDelegate], at_once: int
) -> tuple[tuple[str, str, dict[str, JsonValue]], ...]:
    """Name, description and schema of the tools that delegation adds."""
    name: dict[str, JsonValue] = {"type": "string", "description": "The agent's name."}
    if delegates:
        name["enum"] = [item.name for item in delegates]
    task: dict[str, JsonValue] = {
        "type": "string",
        "description": "What is asked of it. It sees nothing else, so say all it has to know.",
    }
    errand = _object(agent=name, task=task)
    errands: dict[str, JsonValue] = {
        "type": "array",
        "items": errand,
        "description": f"At most {at_once} tasks.",
    }
    return (
        (
            LIST_AGENTS,
            "List the agents that you can give work to: name and description of each.",
            _object(),
        ),
        (DELEGATE, "Give a task to another agent and wait for its answer.", errand),
        (
            SPAWN,
            (
                "Give tasks to several agents at once and wait for all of their answers, in the"
                " order of the tasks."
            ),
            _object(tasks=errands),
        ),
    )


def _object(**properties: JsonValue) -> dict[str, JsonValue]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
