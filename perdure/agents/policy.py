"""Policies and approvals: the calls that wait for a person, and the verdicts about them. Pure.

An approval is bound to one call and its arguments by a digest. The first answer counts, it is used
once, and a call without an answer is denied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from perdure import limits, validation
from perdure.agents.turn_rules import Approval
from perdure.agents.versions import address_of
from perdure.base import Value
from perdure.validation import Given

if TYPE_CHECKING:
    from perdure.agents.definitions import AgentDefinition, ToolDefinition


class Allow(Given):
    """The call may run, unless its tool, the agent or the task requires approval anyway."""

    kind: Literal["allow"] = "allow"


class Deny(Given):
    """The call does not run; the model sees the reason."""

    in_order: ClassVar[tuple[str, ...]] = ("reason",)

    kind: Literal["deny"] = "deny"
    reason: str = ""

    if TYPE_CHECKING:

        def __init__(self, reason: str = "") -> None: ...


class RequireApproval(Given):
    """The call waits for a person until it expires.

    `expires` is longer than zero and at most 3650 days; the default is 24 hours.
    """

    in_order: ClassVar[tuple[str, ...]] = ("expires",)

    kind: Literal["require_approval"] = "require_approval"
    expires: Annotated[validation.Duration | None, validation.built(validation.Time)] = None

    if TYPE_CHECKING:

        def __init__(self, expires: timedelta | None = None) -> None: ...


Verdict = Annotated[Allow | Deny | RequireApproval, Field(discriminator="kind")]


class ProposedCall(Value):
    """A call that a policy decides about.

    Attributes:
        turn_id: The turn of the call.
        agent: The agent whose policy is called.
        tool: The tool's name.
        call_id: The id of the call that the model knows.
        arguments: The arguments that the tool will get, as JSON text: `{"count": 5}` even if the
            model wrote `"5"`. Arguments that the model omitted are omitted.
        values: The same as the tool's own types, by parameter, defaults included. For a tool of an
            MCP server, whose types are not known, these are JSON values.
        read_only: Whether the tool is declared to change nothing.
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
"""A user-defined function, sync or async, that runs in the worker before a call does.

If it raises, the call is denied.
"""


def strictest(verdicts: Sequence[Allow | Deny | RequireApproval]) -> Allow | Deny | RequireApproval:
    """Return the strictest verdict: a denial, then the approval that expires first."""
    denied = next((verdict for verdict in verdicts if isinstance(verdict, Deny)), None)
    approvals = [verdict for verdict in verdicts if isinstance(verdict, RequireApproval)]
    if denied is not None or not approvals:
        return denied or Allow()
    return min(
        approvals,
        key=lambda verdict: limits.APPROVAL_EXPIRY if verdict.expires is None else verdict.expires,
    )


def policies_of(agent: AgentDefinition, tool: ToolDefinition | None) -> tuple[str, ...]:
    """Return the agents whose policies apply to a tool, the owner first and this agent last.

    The policies of all turns through which a tool was inherited apply to it. A definition of an
    earlier release has no list of them; then only the owner's policy applies.
    """
    above = () if tool is None else tool.policies or ((tool.owner,) if tool.has_policy else ())
    return tuple(dict.fromkeys((*above, *((address_of(agent),) if agent.has_policy else ()))))


def is_wanted(rule: Approval, *, is_marked: bool, changes: bool) -> bool:
    """Whether a call waits for a person, by the agent's rule and the tool's options."""
    return is_marked or rule == "all" or (rule == "changes" and changes)
