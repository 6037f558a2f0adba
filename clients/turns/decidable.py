"""What people decide about the calls of a turn: approve, deny, settle or answer them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import JsonValue
from pydantic_core import to_json
from temporalio.common import RawValue

from perdure import errors, validation
from perdure.base import T
from perdure.clients.turns import settling, updates, waiting
from perdure.clients.turns.readable import ReadableTurn
from perdure.temporal import access
from perdure.temporal.names import DECIDE
from perdure.temporal.payloads import pack
from perdure.turn.approvals import already, check_kind
from perdure.values.approvals import Decision, PendingApproval, Settlement
from perdure.values.reports import UnsettledCall

_Call = Annotated[
    PendingApproval | str,
    validation.instance("what pending_approvals gives, or its id", PendingApproval, str),
]
_Unsettled = Annotated[
    UnsettledCall | str,
    validation.instance("a call of report.unsettled, or its id", UnsettledCall, str),
]
_Arguments = Annotated[
    Mapping[str, JsonValue], validation.instance("a mapping, such as a dict", Mapping)
]


class DecidableTurn(ReadableTurn[T]):
    """The part of `Turn` that decides about its calls.

    Attributes:
        id: The turn's id, which is also the id of its workflow.
    """

    async def _ask(self, update: str, payload: RawValue) -> RawValue:
        return await updates.ask(
            self._client, access.TURN, (await self._feed()).runs, self.id, update, payload
        )

    async def approve(
        self,
        call: PendingApproval | str,
        *,
        token: str | None = None,
        reason: str = "",
        arguments: Mapping[str, JsonValue] | None = None,
        by: str | None = None,
    ) -> None:
        """Approve a call, with its own arguments or with `arguments`.

        Needs a worker that runs the turn.

        Args:
            call: The call, from `pending_approvals`, or its id.
            token: The call's token, from `pending_approvals`; a call itself has it. The call runs
                only if it is still the call that was reviewed, in the same run. A program that
                shows calls to people gives it. Without it, the call that waits now is approved,
                whichever call was reviewed; it is required for a turn that was restarted or reset,
                and for a call whose tool changed.
            reason: The reason for the decision.
            arguments: Arguments that replace the call's own.
            by: The person or program that approves it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked.

        Raises:
            ApprovalConflictError: No such call waits, it was already decided, has expired, has
                other arguments than the call that was reviewed, or has another token than `token`.
            InvalidRequestError: The turn is over, the arguments are not JSON, or `by` is not valid.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        await self._decide(call, token, True, reason, by, arguments)

    async def deny(
        self,
        call: PendingApproval | str,
        reason: str = "",
        *,
        token: str | None = None,
        by: str | None = None,
    ) -> None:
        """Refuse a call; the model sees the reason. The arguments are as for `approve`.

        Raises:
            PerdureError: As `approve` does.
        """
        await self._decide(call, token, False, reason, by)

    async def answer(
        self,
        call: PendingApproval | str,
        answer: object,
        *,
        token: str | None = None,
        by: str | None = None,
    ) -> None:
        """Answer a question that the model asks; `deny` declines to.

        Needs a worker that runs the turn. The answer is recorded in the history of the turn.

        Args:
            call: The call, from `pending_approvals`, or its id.
            answer: One of the options, or a text; for a form, a mapping or an instance of its type.
            token: The call's token, as for `approve`.
            by: The person or program that answers, as for `approve`.

        Raises:
            InvalidRequestError: The answer does not fit the question, or is no JSON.
            PerdureError: As `approve` does.
        """
        try:
            written = to_json(answer).decode()
        except ValueError as error:
            raise errors.InvalidRequestError(f"the answer is not JSON: {error}") from None
        await self._decide(call, token, True, "", by, answer=written)

    async def settle(
        self,
        call: PendingApproval | UnsettledCall | str,
        settlement: Settlement,
        result: str = "",
        *,
        token: str | None = None,
        by: str | None = None,
    ) -> None:
        """Say what became of a call whose outcome is unknown.

        If the turn waits for that, the call is among the `pending_approvals`, and this needs a
        worker that runs the turn. If it has gone on or is over, the call is in `report.unsettled`;
        this needs no worker, and is not in the events of the turn. Later calls with the same effect
        follow it, also those of the turns that [know the call](effects.md#where-is-it-one-effect).

        Args:
            call: The call, from `pending_approvals` or `report.unsettled`, or its id. A call of a
                delegate is settled at the delegate's turn.
            settlement: `done` if it has taken effect, `absent` if it has not, or, for a turn that
                waits, `again` to make it again, although nobody knows.
            result: What the model reads as the result, such as the number of a payment.
            token: The token of a call that waits, as for `approve`.
            by: The person or program that says so, as for `approve`.

        Raises:
            ApprovalConflictError: There is no such call of unknown outcome, or somebody has settled
                it already.
            InvalidRequestError: The turn does not wait, and the call shall be made again.
            PerdureError: As `approve` does.
        """
        if isinstance(call, PendingApproval) or (token is not None and isinstance(call, str)):
            approve = settlement == "again"
            await self._decide(call, token, approve, result, by, settlement=settlement)
            return
        await self._settle(call, settlement, result, by)

    @validation.arguments("the answer")
    async def _settle(
        self,
        call: _Unsettled,
        settlement: Settlement,
        result: validation.Text,
        by: validation.By | None,
    ) -> None:
        if isinstance(call, str):
            pending = await self.pending_approvals()
            if any(call in (approval.call_id, waiting.full(approval)) for approval in pending):
                is_again = settlement == "again"
                await self._decide(call, None, is_again, result, by, settlement=settlement)
                return
        made = await settling.find(self, call)
        said = settling.decision(made, settlement, result, by)
        await settling.record(self._client, self.id, await self._last_known(), made, said)

    @validation.arguments("the answer")
    async def _decide(
        self,
        call: _Call,
        token: validation.Text | None,
        approve: bool,
        reason: validation.Text,
        by: validation.By | None,
        arguments: _Arguments | None = None,
        settlement: Settlement | None = None,
        answer: str | None = None,
    ) -> None:
        edited = None if arguments is None else _written(arguments)
        if isinstance(call, str):
            name = call if token is None else f"{call}:{token}"
            [call] = await waiting.named(
                self._client, self, [name], to_run=approve or settlement is not None
            )
        elif token not in (None, call.token):
            raise errors.ApprovalConflictError(
                f"the token {token!r} is not that of the call {call.call_id!r} that was given with"
                " it; nothing was decided",
                context={"turn_id": self.id},
            )
        if answer is not None:  # a worker of an earlier release would take it for an approval
            check_kind(call, "question")
        if call.is_job:
            check_kind(call, "approval")
        decision = Decision(
            call_id=call.call_id,
            digest=call.digest,
            approve=approve,
            reason=reason,
            arguments=edited,
            by=by,
            settlement=settlement,
            answer=answer,
        )
        try:
            await self._ask(DECIDE, pack(decision))
        except errors.TurnOverError:
            earlier = await waiting.decision_about(self._client, self, call.call_id)
            if earlier is None:
                raise
            raise errors.ApprovalConflictError(
                f"{already(earlier)}, and turn {self.id!r} is over", context={"turn_id": self.id}
            ) from None


def _written(arguments: Mapping[str, JsonValue]) -> str:
    try:
        return to_json(dict(arguments)).decode()
    except ValueError as error:
        raise errors.InvalidRequestError(
            f"the arguments of an approval are not JSON: {error}"
        ) from None
