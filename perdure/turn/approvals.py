"""Approval of tool calls by people, and its effect on a call.

An approval is bound by a digest to one call and its arguments. The first decision counts and is
used once. A call without a decision does not run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import not_
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from perdure import errors, limits, validation
from perdure.agents import questions
from perdure.agents.policy import Allow, RequireApproval, Verdict, is_wanted, policies_of
from perdure.agents.turn_rules import Approval
from perdure.base import Value, Wire
from perdure.values.approvals import Decision, Kind, PendingApproval
from perdure.values.messages import ToolCall
from perdure.values.tasks import Task

if TYPE_CHECKING:
    from perdure.agents.definitions import AgentDefinition, ToolDefinition


class PolicyCall(Wire):
    """Input of the activity that asks the policies about a call.

    `policies` are the agents whose policies are asked; an earlier release names one, as `agent`.
    `owner` is the agent that owns the tool, and `schema_digest` the digest of its pinned schema;
    both are empty in calls from an earlier release and for delegation tools. With `undoes`, it is
    the tool that takes calls of this one back.
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
    undoes: str = Field(default="", exclude_if=not_)


class Ruling(Wire):
    """The verdict of the policies, as it is stored in history."""

    verdict: Verdict


def decision_about(call_id: str, decisions: Sequence[Decision]) -> Decision | None:
    """Return the effective decision about a call.

    It is the last decision, because a person may be asked again after a deploy.
    """
    return next((decision for decision in reversed(decisions) if decision.call_id == call_id), None)


NOT_RUN = "This call was not run:"
"""The beginning of the result of a call that a person or a policy did not allow.

Such a result does not count as a failure of the tool.
"""
NOT_ANSWERED = "This question was not answered:"
"""The same for a question that a person declined, or that nobody answered in time."""


class Gate(Value):
    """The approval status of a call.

    `status` is `open`, or `policy` or `asked` while the call waits for a policy or for a person.
    `arguments` is set if a person changed them. `approved` is set if a person approved the call.
    If a person is asked because a deploy has changed the tool, `reason` is the reason, and
    `schema_digest` is the digest of the tool's current schema. With `is_unknown`, the call was
    made, and `reason` says why its outcome is unknown. With `asks`, the call itself is a question,
    and waits for an answer; or a server asks during the call, and `reason` tells its questions
    apart. The wait for a person ends after `expires`, or at the moment `until`.
    """

    status: Literal["open", "policy", "asked"] = "open"
    expires: timedelta | None = None
    arguments: str | None = None
    approved: bool = False
    reason: str = ""
    schema_digest: str = ""
    is_unknown: bool = Field(default=False, exclude_if=not_)
    asks: bool = Field(default=False, exclude_if=not_)
    until: datetime | None = Field(default=None, exclude_if=not_)

    def edited(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that a person gave it, if any."""
        return (
            call
            if self.arguments is None
            else call.model_copy(update={"arguments": self.arguments})
        )


OPEN = Gate()
_WAITS_FOR: dict[Kind, str] = {
    "approval": "was not made yet: approve or deny it",
    "outcome": "was made, and its outcome is unknown: settle it as done, absent or again",
    "question": "is a question: answer or deny it",
    "elsewhere": "is done elsewhere: its result is sent with its token, as the job got it",
}


def digest_of(call: ToolCall, reason: str = "") -> str:
    """Return the digest that an approval is bound to, as 16 hexadecimal digits.

    It covers the tool, the arguments, and the reason why approval is required again, if any.
    """
    text = f"{call.name}\n{call.arguments}" + (f"\n{reason}" if reason else "")
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def gate_of(agent: AgentDefinition, task: Task, call: ToolCall) -> Gate:
    """Return the gate of a new call."""
    if policies_of(agent, agent.tool(call.name)):
        return Gate(status="policy")
    return _asked(agent, task, call)


def after_policy(
    agent: AgentDefinition, task: Task, call: ToolCall, verdict: Allow | RequireApproval
) -> Gate:
    """Return the gate of a call that the policy does not deny.

    A policy cannot lift an approval that the tool, the agent or the task requires. A person who
    answers a question also approves it, so an approval only limits its time.
    """
    gate = _asked(agent, task, call)
    if not isinstance(verdict, RequireApproval):
        return gate
    if gate.asks and gate.expires is not None:
        longest = limits.APPROVAL_EXPIRY if verdict.expires is None else verdict.expires
        return gate.model_copy(update={"expires": min(gate.expires, longest)})
    return Gate(status="asked", expires=verdict.expires)


def consent_of(
    agent: AgentDefinition, task: Task | None, tool: ToolDefinition, gate: Gate
) -> tuple[str, bool]:
    """Return the consent under which a call runs.

    This is the digest of the schema that a person approved, empty if no person was asked; and
    whether the call runs under rules for read-only tools.
    """
    approved = (gate.schema_digest or tool.schema_digest) if gate.approved else ""
    depends = (
        agent.approval == "changes"
        or (task is not None and task.requires_human_approval)
        or bool(policies_of(agent, tool))
    )
    return approved, tool.is_read_only and not gate.schema_digest and (gate.approved or depends)


def denied(reason: str) -> str:
    """Return the result of a denied call, for the model."""
    return f"{NOT_RUN} it was denied" + (f": {reason}" if reason else ".")


def expired(after: timedelta) -> str:
    """Return the result of a call whose approval expired, for the model."""
    return f"{NOT_RUN} nobody approved it within {after}."


@dataclass(frozen=True, slots=True)
class Asked:
    """The calls that a turn waits for, with their gates."""

    calls: tuple[tuple[ToolCall, Gate], ...]

    def pending(self, now: datetime, default: timedelta) -> tuple[PendingApproval, ...]:
        """Return the calls as pending approvals, the form shown to people."""
        return tuple(
            PendingApproval(
                call_id=call.id,
                tool=call.name,
                arguments=call.arguments,
                digest=digest_of(call, gate.reason),
                reason=gate.reason,
                is_unknown=gate.is_unknown,
                is_question=gate.asks,
                expires_at=gate.until or now + (default if gate.expires is None else gate.expires),
            )
            for call, gate in self.calls
        )

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """What people are asked: the ids of the calls, and the digests that decisions name."""
        return tuple((call.id, digest_of(call, gate.reason)) for call, gate in self.calls)


def check(
    pending: tuple[PendingApproval, ...],
    decision: Decision,
    now: datetime,
    earlier: Decision | None = None,
) -> None:
    """Refuse a decision that is late, repeated, or for other arguments.

    `earlier` is what was decided before, if anything: about what the decision names, or else about
    the call.

    Raises:
        ApprovalConflictError: The decision is one of these; the message says which.
        InvalidRequestError: `by` is not one line of visible characters, or is too long.
    """
    validation.check(
        "the decision",
        {"by": decision.by},
        {"by": validation.By | None},
        errors.InvalidRequestError,
    )
    known = next((approval for approval in pending if approval.call_id == decision.call_id), None)
    if known is None and earlier is not None:
        raise errors.ApprovalConflictError(already(earlier))
    if known is None:
        raise errors.ApprovalConflictError(
            f"no approval is pending for the call {decision.call_id!r}: it was answered already, or"
            " never asked"
        )
    is_other = known.digest != decision.digest
    asks = known.is_question or decision.kind == "question"
    if is_other and asks and earlier is not None and earlier.digest == decision.digest:
        raise errors.ApprovalConflictError(already(earlier))  # and something else is asked since
    if is_other:
        raise errors.ApprovalConflictError(
            f"the approval names the arguments {decision.digest!r}, but the call"
            f" {decision.call_id!r} of {known.tool} has {known.digest!r}"
        )
    if decision.approve or decision.kind != "approval":
        check_kind(known, decision.kind)
    if now >= known.expires_at:
        raise errors.ApprovalConflictError(
            f"the approval of {decision.call_id!r} expired at"
            f" {known.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        )


def check_kind(pending: PendingApproval, kind: Kind) -> None:
    """Refuse a decision of another kind than the call waits for.

    A call that was made already cannot be approved, one that was not made yet cannot be settled,
    and only a question can be answered. `kind` is that of the decision.

    Raises:
        ApprovalConflictError: The decision is one of these.
    """
    waits_for = "question" if pending.kind == "form" else pending.kind
    if waits_for != kind:
        raise errors.ApprovalConflictError(
            f"the call {pending.call_id!r} of {pending.tool} {_WAITS_FOR[waits_for]}"
        )


def already(earlier: Decision) -> str:
    """Return why a call that was decided about is not decided about again."""
    return f"the call {earlier.call_id!r} was already {earlier.in_words}"


def _asked(agent: AgentDefinition, task: Task, call: ToolCall) -> Gate:
    tool = agent.tool(call.name)
    if tool is None:
        return OPEN
    if tool.asks is not None:
        _, expires = questions.read(tool.asks, call.arguments)
        return Gate(status="asked", expires=expires, asks=True)
    if tool.job is not None and tool.job.by_client:
        return OPEN  # the client runs it, so it has the last word itself
    rule: Approval = (
        "changes" if task.requires_human_approval and agent.approval == "marked" else agent.approval
    )
    return (
        Gate(status="asked")
        if is_wanted(rule, is_marked=tool.needs_approval, changes=not tool.is_read_only)
        else OPEN
    )
