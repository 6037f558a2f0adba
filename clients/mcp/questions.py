"""What the user of an MCP client is asked before something is done that only a person may say.

A call approved, a budget raised.

Who calls those tools is a model. Where the client can put a question to its user (elicitation), the
user is asked, and sees what it is about. Where it cannot, its own question before each call of a
tool has to do; the annotations of the tool say that it needs one.
"""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, ConfigDict, Field

from perdure import errors, limits, validation
from perdure.clients.mcp.served import Served
from perdure.text import arguments_exactly, arguments_in_brief, one_line, quoted, word
from perdure.values.budgets import Budget

Ctx = Context[Served, Any]

_SHOWN_CHARACTERS = 4_000
_MCP = " (MCP)"
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
        """The same as a budget.

        Raises:
            InvalidRequestError: It names nothing, or no money.
        """
        given = self.model_dump(exclude_none=True, exclude={"minutes", "iterations"})
        if self.minutes is not None:
            given["time"] = timedelta(minutes=self.minutes)
        try:
            return Budget.model_validate(given)
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
        """What is added to the budget; None if only iterations are added.

        Raises:
            InvalidRequestError: It names nothing, or no money.
        """
        return None if self.model_dump(exclude_none=True).keys() == {"iterations"} else self.budget


class Consent(BaseModel):
    """What the user says."""

    approve: bool = Field(title="Yes", description="Off: nothing is done.")


async def ask_to_run(turn: str, call: str, digest: str, ctx: Ctx) -> Consent | Elicit[Consent]:
    """Whether a call may run."""
    with as_tool_errors():
        pending = await served_by(ctx).waiting(turn, call, digest)
    words, more = arguments_exactly(pending.arguments), ""
    if len(words) > _SHOWN_CHARACTERS:
        words, more = (
            arguments_in_brief(pending.arguments),
            " (cut; `perdure approvals` with the turn's id shows all)",
        )
    why = f" {quoted(pending.reason)}." if pending.reason else ""
    return _ask(
        ctx,
        f"Turn {quoted(turn)} wants to call {word(pending.tool)} with {words}{more}.{why} Let it"
        " run?",
    )


async def ask_to_add(turn: str, more: More, ctx: Ctx) -> Consent | Elicit[Consent]:
    """Whether a turn may spend more."""
    with as_tool_errors():
        more.added  # noqa: B018 - a mistake is reported before the user is asked
        _, seen = await served_by(ctx).turn(turn)
    spent = "" if seen.cost_usd is None else f", which has spent ${seen.cost_usd:f}"
    words = ", ".join(
        f"{name} {word(str(value))}" for name, value in more.model_dump(exclude_none=True).items()
    )
    return _ask(ctx, f"Add to the budget of turn {quoted(turn)}{spent}: {words}?")


async def ask_to_resume(turn: str, ctx: Ctx) -> Consent | Elicit[Consent]:
    """Whether a turn may ask its model again."""
    with as_tool_errors():
        await served_by(ctx).turn(turn)
    return _ask(ctx, f"Have turn {quoted(turn)} ask its model again?")


LetsResume = Annotated[ElicitationResult[Consent], Resolve(ask_to_resume)]
LetsRun = Annotated[ElicitationResult[Consent], Resolve(ask_to_run)]
LetsSpend = Annotated[ElicitationResult[Consent], Resolve(ask_to_add)]


def require(consent: ElicitationResult[Consent], otherwise: str) -> None:
    """Go on only where the user said yes.

    Raises:
        ToolError: The user did not; `otherwise` says what is true then.
    """
    if not (isinstance(consent, AcceptedElicitation) and consent.data.approve):
        raise ToolError(otherwise)


def served_by(ctx: Ctx) -> Served:
    """What the server of a request offers."""
    return ctx.request_context.lifespan_context


def client_of(ctx: Ctx) -> str:
    """The MCP client that decides, as it names itself: what is recorded as `by`."""
    params = ctx.session.client_params
    name = one_line(params.client_info.name, limits.BY_CHARACTERS - len(_MCP)) if params else ""
    return f"{name or 'a client'}{_MCP}"


@contextlib.contextmanager
def as_tool_errors() -> Iterator[None]:
    """What is wrong is an error result that the model reads, not a failure of the server."""
    try:
        yield
    except errors.PerdureError as error:
        raise ToolError(f"{error.code}: {error.message}") from None


def _ask(ctx: Ctx, question: str) -> Consent | Elicit[Consent]:
    """Of a client that cannot ask, the call of the tool is the answer.

    One that names no kind of question can show a form.
    """
    elicitation = ctx.client_capabilities.elicitation if ctx.client_capabilities else None
    can_ask = elicitation is not None and (elicitation.form is not None or elicitation.url is None)
    return Elicit(question, Consent) if can_ask else Consent(approve=True)
