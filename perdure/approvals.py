"""Approvals: which calls wait for a person, what a person may say, and what becomes of the call. Pure.

An approval is bound to one call and to its arguments by a digest. The first answer counts, it is used once, and silence is a no.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from perdure import errors, kinds, limits
from perdure.messages import ToolCall
from perdure.tasks import Task
from perdure.text import harmless
from perdure.values import Given, Value, Wire

if TYPE_CHECKING:
    from perdure.definitions import AgentDefinition, ToolDefinition


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
    """The call waits for a person, for so long: longer than zero, at most 3650 days; 24 hours where nothing is said."""

    in_order: ClassVar[tuple[str, ...]] = ("expires",)

    kind: Literal["require_approval"] = "require_approval"
    expires: Annotated[timedelta | None, kinds.built(kinds.TIME)] = None

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


Policy = Callable[[ProposedCall], "Allow | Deny | RequireApproval | Awaitable[Allow | Deny | RequireApproval]"]
"""A function of yours that runs in the worker, sync or async, before a call does. One that raises denies."""


class PolicyCall(Wire):
    """Input of asking the policies about a call.

    `policies` are the agents whose policies are asked; an earlier release names one, as `agent`.
    `owner` is the agent whose tool it is and `schema_digest` what the turn is pinned to of it; both
    are empty where an earlier release asks, and for the tools of delegation.
    """

    turn_id: str
    agent: str
    tool: str
    call_id: str
    arguments: str
    read_only: bool = False
    labels: dict[str, str] = {}
    policies: tuple[str, ...] = ()
    owner: str = ""
    schema_digest: str = ""


class Ruling(Wire):
    """What the policies said, on its way through history."""

    verdict: Verdict


class Decision(Wire):
    """What a person says about a call. `digest` names the arguments that were looked at; `arguments` replaces them, as JSON text.

    `by` is who decided, as the caller named them; None where it named nobody, and in an earlier release.
    """

    call_id: str
    digest: str
    approve: bool
    reason: str = ""
    arguments: str | None = None
    by: str | None = None

    @property
    def in_words(self) -> str:
        """`approved by anna`, in one line."""
        return ("approved" if self.approve else "denied") + (f" by {harmless(self.by)}" if self.by else "")


def decision_about(call_id: str, decisions: Sequence[Decision]) -> Decision | None:
    """The decision about a call that holds: the last one, because a person may be asked again after a deploy."""
    return next((one for one in reversed(decisions) if one.call_id == call_id), None)


class PendingApproval(Wire):
    """A call that waits for a person.

    `token` names the run, the call and its arguments, for who is to approve it later, in another
    process. History does not hold it: `pending_approvals` fills it in. `reason` is set where a
    deploy has changed the tool since the call was let run: it says what changed.
    """

    call_id: str
    tool: str
    arguments: str
    digest: str
    expires_at: datetime
    token: str = ""
    reason: str = ""

    def of_run(self, run_id: str, arguments: str, reason: str = "") -> PendingApproval:
        """The same with its token, and with its arguments and its reason whole."""
        named = "\n".join((run_id, self.call_id, self.digest)).encode("utf-8", "replace")
        token = hashlib.sha256(named).hexdigest()[:_TOKEN_DIGITS]
        return self.model_copy(update={"token": token, "arguments": arguments, "reason": reason})


_TOKEN_DIGITS = 12

NOT_RUN = "This call was not run:"
"""How the result of a call begins that a person or a policy did not let run. It is no failure of a tool."""


class Gate(Value):
    """Where a call stands: `open`, or before a policy (`policy`) or a person (`asked`). `arguments` is set where a person changed them.

    `approved` says that a person let it run. Where a deploy has changed its tool and a person is asked because of that, `reason` says
    why, and the digest is that of the tool's schema now.
    """

    status: Literal["open", "policy", "asked"] = "open"
    expires: timedelta | None = None
    arguments: str | None = None
    approved: bool = False
    reason: str = ""
    schema_digest: str = ""

    def edited(self, call: ToolCall) -> ToolCall:
        """The call, with the arguments that a person gave it."""
        return call if self.arguments is None else call.model_copy(update={"arguments": self.arguments})


OPEN = Gate()


def digest_of(call: ToolCall, reason: str = "") -> str:
    """What an approval is bound to: 16 hexadecimal digits over tool and arguments, and why it is asked for once more."""
    said = f"{call.name}\n{call.arguments}" + (f"\n{reason}" if reason else "")
    return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]


def strictest(verdicts: Sequence[Allow | Deny | RequireApproval]) -> Allow | Deny | RequireApproval:
    """What several policies say together: a denial wins, then an approval, which expires first."""
    denied = next((one for one in verdicts if isinstance(one, Deny)), None)
    asked = [one for one in verdicts if isinstance(one, RequireApproval)]
    if denied is not None or not asked:
        return denied or Allow()
    return min(asked, key=lambda one: limits.APPROVAL_EXPIRY if one.expires is None else one.expires)


def policies_of(agent: AgentDefinition, tool: ToolDefinition | None) -> tuple[str, ...]:
    """The agents whose policies a tool is under, the owner first and this agent last.

    Each turn that a tool was handed down through has its say about it. A definition of an earlier
    release names none of them; then the owner's policy is the one.
    """
    above = () if tool is None else tool.policies or ((tool.owner,) if tool.has_policy else ())
    return tuple(dict.fromkeys((*above, *((agent.name,) if agent.has_policy else ()))))


def gate_of(agent: AgentDefinition, task: Task, call: ToolCall) -> Gate:
    """Where a new call stands."""
    if policies_of(agent, agent.tool(call.name)):
        return Gate(status="policy")
    return _asked(agent, task, call)


def after_policy(agent: AgentDefinition, task: Task, call: ToolCall, verdict: Allow | RequireApproval) -> Gate:
    """Where a call stands when the policy does not deny it. A policy cannot lift what tool, agent or task want."""
    if isinstance(verdict, RequireApproval):
        return Gate(status="asked", expires=verdict.expires)
    return _asked(agent, task, call)


def consent_of(agent: AgentDefinition, task: Task | None, tool: ToolDefinition, gate: Gate) -> tuple[str, bool]:
    """What lets a call run.

    The digest of the schema by which a person approved it, empty where nobody was asked; and whether
    it runs by rules for tools that change nothing.
    """
    approved = (gate.schema_digest or tool.schema_digest) if gate.approved else ""
    depends = agent.approval == "changes" or (task is not None and task.requires_human_approval) or bool(policies_of(agent, tool))
    return approved, tool.is_read_only and not gate.schema_digest and (gate.approved or depends)


def denied(reason: str) -> str:
    """What the model is told."""
    return f"{NOT_RUN} it was denied" + (f": {reason}" if reason else ".")


def expired(after: timedelta) -> str:
    """What the model is told when nobody answered."""
    return f"{NOT_RUN} nobody approved it within {after}."


@dataclass(frozen=True, slots=True)
class Asked:
    """The calls that a turn waits for, with their gates."""

    calls: tuple[tuple[ToolCall, Gate], ...]

    def pending(self, now: datetime, default: timedelta) -> tuple[PendingApproval, ...]:
        """As people see them."""
        return tuple(
            PendingApproval(
                call_id=call.id,
                tool=call.name,
                arguments=call.arguments,
                digest=digest_of(call, gate.reason),
                reason=gate.reason,
                expires_at=now + (default if gate.expires is None else gate.expires),
            )
            for call, gate in self.calls
        )


def check(pending: tuple[PendingApproval, ...], decision: Decision, now: datetime) -> None:
    """Refuse an answer that comes too late, twice, or for other arguments.

    Raises:
        ApprovalConflictError: The message says which.
        InvalidRequestError: `by` is not one line of visible characters, or is too long.
    """
    kinds.check("the decision", {"by": decision.by}, {"by": kinds.BY}, errors.InvalidRequestError)
    found = next((one for one in pending if one.call_id == decision.call_id), None)
    if found is None:
        raise errors.ApprovalConflictError(f"no approval is pending for the call {decision.call_id!r}: it was answered already, or never asked")
    if found.digest != decision.digest:
        raise errors.ApprovalConflictError(
            f"the approval names the arguments {decision.digest!r}, but the call {decision.call_id!r} of {found.tool} has {found.digest!r}"
        )
    if now >= found.expires_at:
        raise errors.ApprovalConflictError(f"the approval of {decision.call_id!r} expired at {found.expires_at:%Y-%m-%d %H:%M:%S} UTC")


def _asked(agent: AgentDefinition, task: Task, call: ToolCall) -> Gate:
    tool = agent.tool(call.name)
    if tool is None:
        return OPEN
    changes = not tool.is_read_only
    wanted = tool.needs_approval or agent.approval == "all" or (changes and (agent.approval == "changes" or task.requires_human_approval))
    return Gate(status="asked") if wanted else OPEN
