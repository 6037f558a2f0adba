"""Approvals: which calls wait for a person, what a person may say, and what becomes of the call.

Pure.

An approval is bound to one call and to its arguments by a digest. The first answer counts, it is
used once, and silence is a no.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from perdure import limits, validation
from perdure.agents.turn_rules import Approval
from perdure.base import Value
from perdure.validation import Given

if TYPE_CHECKING:
    from perdure.agents.definitions import AgentDefinition, ToolDefinition


class Allow(Given):
    """The call may run, unless its tool, the agent or the task wants an approval anyway."""

    kind: Literal["allow"] = "allow"


class Deny(Given):
    """The call does not run; the model is told why."""

    in_order: ClassVar[tuple[str, ...]] = ("reason",)

    kind: Literal["deny"] = "deny"
    reason: str = ""

    if TYPE_CHECKING:

        def __init__(self, reason: str = "") -> None: ...


class RequireApproval(Given):
    """The call waits for a person, for so long.

    Longer than zero, at most 3650 days; 24 hours where nothing is said.
    """

    in_order: ClassVar[tuple[str, ...]] = ("expires",)

    kind: Literal["require_approval"] = "require_approval"
    expires: Annotated[timedelta | None, validation.built(validation.Time)] = None

    if TYPE_CHECKING:

        def __init__(self, expires: timedelta | None = None) -> None: ...


Verdict = Annotated[Allow | Deny | RequireApproval, Field(discriminator="kind")]


class ProposedCall(Value):
    """What a policy is asked about.

    Attributes:
        turn_id: The turn that wants the call.
        agent: The agent whose policy is asked.
        tool: The tool's name.
        call_id: The call, as the model knows it.
        arguments: What the tool will get, as JSON text: `{"count": 5}` also where the model wrote
            `"5"`. What the model left out is left out here too.
        values: The same as the tool's own types, by parameter, defaults included. For a tool of an
            MCP server, whose types are not known, these are JSON values.
        read_only: Whether the tool says that it changes nothing.
        labels: The labels that the turn was started with.
    """

    turn_id: str
    agent: str
    tool: str
    call_id: str
    arguments: str
    values: dict[str, Any] = {}
    read_only: bool = False
    labels: dict[str, str] = {}


Policy = Callable[
    [ProposedCall], Allow | Deny | RequireApproval | Awaitable[Allow | Deny | RequireApproval]
]
"""A function of yours that runs in the worker, sync or async, before a call does.

One that raises denies.
"""


def strictest(verdicts: Sequence[Allow | Deny | RequireApproval]) -> Allow | Deny | RequireApproval:
    """What several policies say together: a denial wins, then an approval, which expires first."""
    denied = next((one for one in verdicts if isinstance(one, Deny)), None)
    asked = [one for one in verdicts if isinstance(one, RequireApproval)]
    if denied is not None or not asked:
        return denied or Allow()
    return min(
        asked, key=lambda one: limits.APPROVAL_EXPIRY if one.expires is None else one.expires
    )


def policies_of(agent: AgentDefinition, tool: ToolDefinition | None) -> tuple[str, ...]:
    """The agents whose policies a tool is under, the owner first and this agent last.

    Each turn that a tool was handed down through has its say about it. A definition of an earlier
    release names none of them; then the owner's policy is the one.
    """
    above = () if tool is None else tool.policies or ((tool.owner,) if tool.has_policy else ())
    return tuple(dict.fromkeys((*above, *((agent.name,) if agent.has_policy else ()))))


def is_wanted(rule: Approval, *, is_marked: bool, changes: bool) -> bool:
    """Whether a call waits for a person, by the rule of the agent and what its tool says of itself."""
    return is_marked or rule == "all" or (rule == "changes" and changes)
