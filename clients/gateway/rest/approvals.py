"""Calls that wait for a person, over HTTP: list them, and decide about them."""

from __future__ import annotations

from datetime import datetime

from pydantic import JsonValue

from perdure.base import Value
from perdure.clients.gateway import connect
from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.operations import Call, operation
from perdure.clients.gateway.options import Labelled
from perdure.clients.turns.decisions import DecidedCall
from perdure.clients.turns.entries import TurnEntry
from perdure.values.approvals import PendingApproval, Settlement


class ApproveCall(Body):
    """A call to approve.

    Attributes:
        call_id: The call's id, from the `waits` of the status.
        token: The call's token, from there: the call runs only if it is still the one that was
            reviewed.
        reason: The reason for the decision.
        arguments: Arguments that replace the call's own.
    """

    call_id: str
    token: str
    reason: str = ""
    arguments: dict[str, JsonValue] | None = None


class DenyCall(Body):
    """A call to deny; the model sees the reason.

    The call is denied only if its token is still that of the call that was reviewed.
    """

    call_id: str
    token: str
    reason: str = ""


class SettleCall(Body):
    """What became of a call that was made, and whose outcome is unknown.

    Attributes:
        call_id: The call's id. In the `waits` of the status, `is_unknown` of the call is true; if
            the turn has gone on, the call is in `unsettled` of its result.
        token: The token of a call that waits, from there.
        settlement: `done` if it has taken effect, `absent` if it has not, or, for a call that
            waits, `again` to make it again, although nobody knows.
        result: What the model reads as the result, such as the number of a payment.
    """

    call_id: str
    token: str | None = None
    settlement: Settlement
    result: str = ""


class AnswerCall(Body):
    """The answer of a person to a question of a model.

    Attributes:
        call_id: The call's id. In the `waits` of the status, `is_question` of the call is true, and
            `question` has the text, the `options` or the JSON schema of a `form`, and the
            `default`.
        token: The call's token, from there: only the question that was shown is answered.
        answer: One of the options, a text, or an object that fits the schema.
    """

    call_id: str
    token: str
    answer: JsonValue


class WaitingCall(Value):
    """A call that waits for a person, or with `is_job` for what is done elsewhere, and its turn."""

    turn: TurnEntry
    call: PendingApproval


class WaitingCalls(Value):
    """The calls that wait for a person, and then those that wait for what is done elsewhere."""

    approvals: tuple[WaitingCall, ...]


@operation("GET", "/v1/approvals", may="read")
async def list_approvals(call: Call, query: Labelled) -> WaitingCalls:
    """List the calls that wait for a person, and after them those that are done elsewhere.

    A call with `is_job` waits for the result of a job since `since`; `note` names the job.
    """
    waiting: list[WaitingCall] = []
    jobs: list[WaitingCall] = []
    async for turn, approval in call.client.pending_approvals(
        query.agent, labels=query.labels, id_prefix=call.caller.prefix or None
    ):
        (jobs if approval.is_job else waiting).append(WaitingCall(turn=turn, call=approval))
        if len(waiting) == query.limit:
            break
    return WaitingCalls(approvals=tuple((waiting + jobs)[: query.limit]))


class Decisions(Value):
    """What people have decided about calls, the last first."""

    decisions: tuple[DecidedCall, ...]


@operation("GET", "/v1/decisions", may="read")
async def list_decisions(call: Call, query: Labelled) -> Decisions:
    """List what people have decided lately about calls, and who, the last first.

    The turns that are not over are looked at, and the last that ended, 50 together.
    """
    found = await call.client.decisions(
        query.agent, labels=query.labels, id_prefix=call.caller.prefix or None
    )
    return Decisions(decisions=found[: query.limit])


@operation("POST", "/v1/turns/{id:path}/approve", may="decide")
async def approve_call(call: Call, body: ApproveCall) -> None:
    """Approve a call that waits, with its own arguments or with others."""
    await call.client.turn(call.id).approve(
        body.call_id,
        token=body.token,
        reason=body.reason,
        arguments=body.arguments,
        by=call.caller.subject,
    )


@operation("POST", "/v1/turns/{id:path}/deny", may="decide")
async def deny_call(call: Call, body: DenyCall) -> None:
    """Deny a call that waits."""
    await call.client.turn(call.id).deny(
        body.call_id, body.reason, token=body.token, by=call.caller.subject
    )


@operation("POST", "/v1/turns/{id:path}/settle", may="decide")
async def settle_call(call: Call, body: SettleCall) -> None:
    """Say what became of a call whose outcome is unknown, also if its turn is over."""
    await call.client.turn(call.id).settle(
        body.call_id, body.settlement, body.result, token=body.token, by=call.caller.subject
    )


class AskForLogin(Body):
    """A call that waits for a login."""

    call_id: str


class LoginAddress(Value):
    """Where the data subject of a turn logs in at an MCP server.

    Attributes:
        url: The address, for the browser of that person alone.
        expires_at: Until when it is good.
        server: The name of the MCP server.
        subject: Who is to log in.
    """

    url: str
    expires_at: datetime
    server: str
    subject: str


@operation("POST", "/v1/turns/{id:path}/login", may="decide")
async def ask_for_login(call: Call, body: AskForLogin) -> LoginAddress:
    """Return where the data subject of a turn logs in, for a call that waits for that."""
    link = await call.client.login_link(call.id, body.call_id)
    url, expires_at = connect.link_to(call.gateway, call.request, link)
    return LoginAddress(url=url, expires_at=expires_at, server=link.server, subject=link.subject)


@operation("POST", "/v1/turns/{id:path}/answer", may="decide")
async def answer_call(call: Call, body: AnswerCall) -> None:
    """Answer a question that a model asks; to deny its call is to decline."""
    await call.client.turn(call.id).answer(
        body.call_id, body.answer, token=body.token, by=call.caller.subject
    )
