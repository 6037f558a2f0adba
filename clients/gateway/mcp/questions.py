"""Questions to the user of an MCP client, before actions that need a person's consent.

Such actions are approving a call or raising a budget. The caller of these tools is a model. If the
client supports elicitation, the user is asked, with the details of the action. Otherwise the
client's own confirmation before each tool call has to suffice; the annotations of the tool request
one.
"""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.session import ServerSession
from mcp_types import ClientCapabilities
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import to_json

from perdure import errors, limits, validation
from perdure.clients.gateway.mcp.forms import Filled, form_of
from perdure.clients.gateway.mcp.served import Permission, Served
from perdure.temporal.acts.sources import through
from perdure.text import arguments_exactly, arguments_in_brief, money, one_line, quoted, word
from perdure.turn.approvals import check_kind
from perdure.values.approvals import PendingApproval, Settlement
from perdure.values.budgets import Budget
from perdure.values.moments import in_words

Ctx = Context[Served, Any]

_SHOWN_CHARACTERS = 4_000
_MCP = " (MCP)"
_SETTLED: dict[Settlement, str] = {
    "done": "Record that it has taken effect",
    "absent": "Record that it has not taken effect",
    "again": "Make it again",
}
_LONGEST_MINUTES = validation.LONGEST / timedelta(minutes=1)


class Amounts(BaseModel):
    """A budget, or what is added to one. What is not named is not limited."""

    model_config = ConfigDict(extra="forbid")

    usd: str | None = Field(None, description="Money in US dollars, such as 0.50.")
    minutes: float | None = Field(
        None, gt=0, le=_LONGEST_MINUTES, description="Wall clock; waits for people are not counted."
    )
    tokens: int | None = Field(
        None, gt=0, description="Input and output of all model calls together."
    )
    model_calls: int | None = Field(None, gt=0, description="Requests to models.")
    tool_calls: int | None = Field(None, gt=0, description="Tool calls that are started.")

    @property
    def budget(self) -> Budget:
        """The amounts as a budget.

        Raises:
            InvalidRequestError: No amount is given, or the money is not valid.
        """
        amounts = self.model_dump(exclude_none=True, exclude={"minutes", "iterations"})
        if self.minutes is not None:
            amounts["time"] = timedelta(minutes=self.minutes)
        try:
            return Budget.model_validate(amounts)
        except ValueError as error:
            raise errors.InvalidRequestError(str(error)) from None


class More(Amounts):
    """What is added to the budget of a turn, or to its iterations.

    Other limits stay as they are.
    """

    iterations: int | None = Field(
        None,
        strict=True,
        gt=0,
        le=validation.MOST,
        description="Steps of the turn itself, delegates not included.",
    )

    @property
    def added(self) -> Budget | None:
        """The addition to the budget; None if only iterations are added.

        Raises:
            InvalidRequestError: No amount is given, or the money is not valid.
        """
        return None if self.model_dump(exclude_none=True).keys() == {"iterations"} else self.budget


class Consent(BaseModel):
    """The user's answer."""

    approve: bool = Field(title="Yes", description="Off: nothing is done.")


_NOT_ASKED = Filled()


async def ask_to_run(turn: str, call_id: str, digest: str, ctx: Ctx) -> Consent | Elicit[Consent]:
    """Ask the user whether a call may run."""
    with serving(ctx, "decide") as served:
        pending = await served.waiting(turn, call_id, digest)
        check_kind(pending, "approval")
    return _ask(ctx, question_of(served.own(turn), pending))


async def ask_to_settle(
    turn: str, call_id: str, digest: str, settlement: Settlement, result: str, ctx: Ctx
) -> Consent | Elicit[Consent]:
    """Ask the user whether this is what became of a call whose outcome is unknown."""
    with serving(ctx, "decide") as served:
        pending = await served.waiting(turn, call_id, digest, to_settle=True)
        check_kind(pending, "outcome")
    said = f", with the result {quoted(result)}" if result else ""
    return _ask(ctx, f"{question_of(served.own(turn), pending)} {_SETTLED[settlement]}{said}?")


def question_of(turn: str, pending: PendingApproval) -> str:
    """Return the question whether a call of a turn may run, or what became of it."""
    arguments = arguments_exactly(pending.arguments)
    more = ""
    if len(arguments) > _SHOWN_CHARACTERS:
        arguments = arguments_in_brief(pending.arguments)
        more = " (cut; `perdure approvals` with the turn's id shows all)"
    why = f" {quoted(pending.reason)}." if pending.reason else ""
    if pending.question is not None:
        return f"{_asks(turn, pending)} {quoted(pending.question.text)}"
    if pending.is_unknown:
        return (
            f"Turn {quoted(turn)} has called {word(pending.tool)} with {arguments}{more}, and the"
            f" outcome is unknown.{why} What became of it?"
        )
    return (
        f"Turn {quoted(turn)} wants to call {word(pending.tool)} with {arguments}{more}.{why} Let"
        " it run?"
    )


async def ask_to_answer(turn: str, call_id: str, digest: str, ctx: Ctx) -> Filled | Elicit[Filled]:
    """Ask the user what the model of a turn asks, unless the client cannot ask its user."""
    with serving(ctx, "decide") as served:
        pending = await served.waiting(turn, call_id, digest)
        check_kind(pending, "question")
    if not can_ask(ctx.client_capabilities):
        return _NOT_ASKED
    return Elicit(question_of(served.own(turn), pending), form_of(pending).model)


async def ask_to_add(turn: str, more: More, ctx: Ctx) -> Consent | Elicit[Consent]:
    """Ask the user whether a turn may spend more."""
    with serving(ctx, "budget") as served:
        more.added  # noqa: B018 - report a mistake before the user is asked
        _, seen = await served.turn(turn)
    spent = "" if seen.cost_usd is None else f", which has spent {money(seen.cost_usd)}"
    amounts = ", ".join(
        f"{name} {word(str(value))}" for name, value in more.model_dump(exclude_none=True).items()
    )
    return _ask(ctx, f"Add to the budget of turn {quoted(seen.turn)}{spent}: {amounts}?")


async def ask_to_resume(turn: str, ctx: Ctx) -> Consent | Elicit[Consent]:
    """Ask the user whether a turn may ask its model again."""
    with serving(ctx, "start") as served:
        _, seen = await served.turn(turn)
    return _ask(ctx, f"Have turn {quoted(seen.turn)} ask its model again?")


LetsResume = Annotated[ElicitationResult[Consent], Resolve(ask_to_resume)]
Answers = Annotated[ElicitationResult[Filled], Resolve(ask_to_answer)]
LetsRun = Annotated[ElicitationResult[Consent], Resolve(ask_to_run)]
LetsSettle = Annotated[ElicitationResult[Consent], Resolve(ask_to_settle)]
LetsSpend = Annotated[ElicitationResult[Consent], Resolve(ask_to_add)]


def require(consent: ElicitationResult[Consent], otherwise: str) -> None:
    """Require the user's consent.

    Raises:
        ToolError: The user did not consent; `otherwise` is the message.
    """
    if not (isinstance(consent, AcceptedElicitation) and consent.data.approve):
        raise ToolError(otherwise)


def _asks(turn: str, pending: PendingApproval) -> str:
    """Return who asks, and what holds if nobody answers. The question itself follows."""
    server = pending.question.server if pending.question else ""
    who = f"An MCP server, {word(server)}," if server else "The model"
    asks = f"{who} of turn {quoted(turn)} asks you, by the tool {word(pending.tool)}."
    if pending.question is None or pending.question.default is None:
        return asks
    default = arguments_exactly(to_json(pending.question.default).decode())
    return f"{asks} Without an answer by {in_words(pending.expires_at)}, it takes {default}."


def answer_in(
    filled: ElicitationResult[Filled], pending: PendingApproval, otherwise: JsonValue
) -> JsonValue:
    """Return the answer of the user, or `otherwise` if the client cannot ask its user.

    Raises:
        ToolError: The user did not answer, or the client gave no answer.
    """
    if not isinstance(filled, AcceptedElicitation):
        raise ToolError("the user did not answer; the question waits on. deny_call declines it")
    if filled.data is not _NOT_ASKED:
        return form_of(pending).answer_in(filled.data.content)
    if otherwise is None:
        raise ToolError("ask the user, and give the answer in `answer`")
    return otherwise


@contextlib.contextmanager
def serving(ctx: Ctx, permission: Permission) -> Iterator[Served]:
    """Yield the turns that the caller is offered, if it has this permission.

    It also needs `read`, because tools return the status of the turn. Errors become error results,
    which the model reads, instead of failures of the server.
    """
    served = ctx.request_context.lifespan_context
    try:
        served.require("read")
        served.require(permission)
        with through("mcp"):
            yield served
    except Exception as error:
        if (message := served.in_words(error)) is None:
            raise
        raise ToolError(message) from None


def who(served: Served, session: ServerSession) -> str:
    """Return the name of who decides, which is recorded as `by`."""
    params = session.client_params
    name = one_line(params.client_info.name, limits.BY_CHARACTERS - len(_MCP)) if params else ""
    return served.name_of(f"{name or 'a client'}{_MCP}")


def can_ask(client: ClientCapabilities | None) -> bool:
    """Whether a client can show its user a form.

    One that declares no mode of elicitation can.
    """
    elicitation = client.elicitation if client else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _ask(ctx: Ctx, question: str) -> Consent | Elicit[Consent]:
    """Ask the user, or take the tool call as consent if the client cannot ask."""
    if can_ask(ctx.client_capabilities):
        return Elicit(question, Consent)
    return Consent(approve=True)
