"""The charge for a completed model call. Pure.

Usage that is missing, negative or contradicts the answer never counts as zero: the call is then
charged at its reservation, and so is an attempt with an unknown outcome. An error that the provider
reported with a status costs only the call itself.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from pydantic import ValidationError

from perdure import errors
from perdure.errors import ErrorInfo
from perdure.turn.facts import CallFailed
from perdure.turn.keys import ModelKey
from perdure.turn.ledger import Bill, Ledger
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import NOTHING, Spending, usd
from perdure.values.prices import Price
from perdure.values.reports import Usage

MOST_USD = Decimal(10**9)
"""The limit of a plausible cost of one call; a reported cost from here on is ignored."""

NO_MODEL = Bill(NOTHING, cost=Decimal(0), is_told=False)
"""The bill of a turn that takes an effect back, for an answer that no model has given."""
_NOT_SENT = (errors.ConfigurationError, errors.TranscriptMismatchError)


def of_answer(ledger: Ledger, key: ModelKey, answer: ModelAnswer, price: Price | None) -> Bill:
    """Return the bill for an answer of a model with this price.

    If the worker could not determine the cost, the upper bound is used.
    """
    reserved = ledger.held.get(str(key), NOTHING)
    if not _is_told(answer):
        return Bill(reserved, cost=reserved.usd if price else None, is_told=False)
    known = _known_cost(answer)
    cost = reserved.usd if known is None else usd(known)
    amount = Spending(
        usd=cost, tokens=answer.usage.input_tokens + answer.usage.output_tokens, model_calls=1
    )
    overrun = str(key) in ledger.held and ledger.settle(str(key), amount).overrun
    return Bill(
        amount, cost=cost if price or known is not None else None, is_told=True, overrun=overrun
    )


def _known_cost(answer: ModelAnswer) -> Decimal | None:
    """Return the cost that the worker has determined; None without a cost, or if it is absurd."""
    is_known = answer.cost is not None and Decimal(0) <= answer.cost < MOST_USD
    return answer.cost if is_known else None


def settle_failure(ledger: Ledger, fact: CallFailed, price: Price | None) -> Ledger:
    """Return the ledger after a failed call of a model with this price."""
    key = str(fact.key)
    billed = _told_in(fact.error, price)
    if billed is not None:
        return ledger.settle(key, billed)
    if _may_be_billed(fact):
        return ledger.charge(key)
    return ledger.settle(key, Spending(model_calls=1))


def _is_told(answer: ModelAnswer) -> bool:
    said_something = bool(answer.message.parts)
    return answer.usage.input_tokens > 0 and answer.usage.output_tokens >= said_something


def _may_be_billed(fact: CallFailed) -> bool:
    """Return whether the provider may have billed an attempt without an answer."""
    error = errors.from_info(fact.error)
    if fact.lost or fact.error.context.get("charged"):
        return True
    if isinstance(error, errors.LLMTimeoutError):
        return "status" not in fact.error.context and fact.error.context.get("charged") is not False
    return not isinstance(error, (errors.LLMError, *_NOT_SENT))


def _told_in(error: ErrorInfo, price: Price | None) -> Spending | None:
    """Return the spending that an error reports; None if it lacks the usage or the cost."""
    is_free = price is None or price.is_free
    try:
        usage = Usage.model_validate(error.context.get("usage"), extra="ignore")
        cost = Decimal(str(error.context.get("cost", 0 if is_free else "unknown")))
    except (ValidationError, InvalidOperation):
        return None
    if (
        usage.input_tokens <= 0
        or usage.output_tokens < 0
        or not cost.is_finite()
        or not Decimal(0) <= cost < MOST_USD
    ):
        return None
    return Spending(usd=usd(cost), tokens=usage.input_tokens + usage.output_tokens, model_calls=1)
