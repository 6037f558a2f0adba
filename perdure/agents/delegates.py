"""Delegates: the agents to which an agent may delegate, with limits, and the tools for it."""

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
"""Reserved names: no other tool may have them."""


@dataclass(frozen=True)
class Delegate:
    """An agent to which another agent may delegate, with options.

    Attributes:
        name: The agent's name.
        budget: The budget of each of its turns, taken from the rest of its parent's; the default is
            a fair share of that.
        allowed_tools: The only tools, of its own and of its parent's, that it is offered; None for
            every tool.
        inherit: Whether it gets the tools of its parent after its own.

    Raises:
        ConfigurationError: A value is not valid.
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

    If a factory makes the agent, `description` is that of the factory.
    """

    name: str
    description: str = ""
    budget: Budget | None = None
    allowed_tools: tuple[str, ...] | None = None
    inherits: bool = True


class InheritedTool(Wire):
    """A tool that a delegate inherits, with its owner and the checks that the turns above require.

    `policies` are the agents whose policies apply. `has_policy` means that there are some: a worker
    of an earlier release uses only that, and applies the owner's policy.
    """

    owner: str
    name: str
    needs_approval: bool = False
    has_policy: bool = False
    policies: tuple[str, ...] = ()


class Ancestor(Wire):
    """A turn above another one, with its key for the turn below it."""

    turn_id: str
    key: str


class Lineage(Wire):
    """The turns above a delegate's turn, the root first, and what they allow it to do.

    `descendants_left` is the number of turns that may still be below it, as its part of those of
    the tree. It is None from an earlier release.
    """

    ancestors: Annotated[tuple[Ancestor, ...], Field(min_length=1)]
    depth_left: int = 0
    descendants_left: int | None = None
    tools: tuple[InheritedTool, ...] = ()


def declared(
    items: Sequence[object] | Literal["all"], agent: str, known: Iterable[str]
) -> tuple[Delegate, ...]:
    """Return the delegates of an agent, sorted by name, without itself.

    `known` has the names of all agents.

    Raises:
        UnknownAgentError: A delegate is not known.
    """
    names = set(known)
    by_name = (
        {name: Delegate(name) for name in names}
        if items == "all"
        else {item.name: item for item in items if isinstance(item, Delegate)}
    )
    for name in by_name:
        if name not in names:
            raise errors.UnknownAgentError(
                f"agent {agent} delegates to {name!r}, which this worker does not know; it knows"
                f" {', '.join(sorted(names))}",
                context={"agent": name},
            )
    return tuple(by_name[name] for name in sorted(by_name) if name != agent)


def tools(
    delegates: Sequence[PinnedDelegate], at_once: int
) -> tuple[tuple[str, str, dict[str, JsonValue]], ...]:
    """Return name, description and schema of the tools that delegation adds."""
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
