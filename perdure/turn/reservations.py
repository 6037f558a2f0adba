"""Reservations: the upper bound of the cost of a call, within the rest of the budget. Pure.

The bound consists of the tokens last reported for this transcript, the bytes added since, and the
provider's own additions, all at the highest rate, plus the output limit. The output limit is
lowered until the call fits into the rest of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from pydantic_core import to_json

from perdure import errors, limits, protocols
from perdure.agents.definitions import AgentDefinition, Target
from perdure.protocols import Prompt
from perdure.schemas.strict_schema import Schema, strict
from perdure.turn.context_window import NO_CUT, Cut
from perdure.turn.ledger import Ledger, exceeded
from perdure.turn.state import TurnState
from perdure.turn.wire import ModelCall
from perdure.values.budgets import NOTHING, Spending
from perdure.values.messages import UserMessage
from perdure.values.prices import REQUEST_TOKENS, Price, bound

LAST_WORDS = UserMessage.of(
    "The budget of this task is spent: no tool can be called any more. Answer now, with what you"
    " have found out so far, and say what is missing."
)
"""The message before the last answer of an agent with `on_exhausted="finish"`."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The amount reserved for a model call.

    `max_output_tokens` is sent with the request; None leaves the provider's own limit. `most_input`
    is the limit to which the input is shortened.
    """

    amount: Spending
    max_output_tokens: int | None = None
    most_input: int | None = None


def base_tokens(agent: AgentDefinition, schema: Schema | None = None) -> int:
    """Return the most input tokens that precede the messages of a request, by the agent's protocol.

    `schema` is the schema of the answer.
    """
    answer_schema = None if schema is None else strict(schema)
    prompt = Prompt(system=agent.instructions, tools=agent.tools, response_schema=answer_schema)
    return REQUEST_TOKENS + protocols.named(agent.protocol).ask(prompt).weight


def known_tokens(state: TurnState) -> int:
    """Return the most input tokens that precede the messages of the turn's requests."""
    assert state.agent is not None
    extra = len(to_json(state.options(state.agent).extra))
    return base_tokens(state.agent, state.output_schema(state.agent)) + extra


def for_call(
    state: TurnState, agent: AgentDefinition, target: Target, cut: Cut = NO_CUT
) -> Reservation:
    """Return the reservation for the next call of this model.

    It may be more than is left; `reserve` checks that.
    """
    return _for_call(state, agent, target, cut, _kept_back(state, agent))


def of_call(state: TurnState, agent: AgentDefinition, call: ModelCall) -> Spending:
    """Return the amount that was reserved for a call that was made.

    It follows from the limits of the call, whatever was added to the budget or booked since.
    """
    target = agent.target(call.model)
    input_tokens = (
        state.input_bound(target.model, call.cut)
        if call.most_input is None
        else call.most_input + base_tokens(agent, state.output_schema(agent))
    )
    return _amount(target.price, input_tokens, call.max_output_tokens or limits.OUTPUT_TOKENS)


def reserve(
    state: TurnState, agent: AgentDefinition, target: Target, cut: Cut = NO_CUT
) -> Reservation:
    """Return the reservation for the next call of this model, if the call may be made.

    Raises:
        UnknownPriceError: There is a budget of money, and the price of a model is not known.
        TurnBudgetExceededError: The call may cost more than is left, or more than leaves enough
            for the last answer.
    """
    ledger = state.accounts.ledger
    unpriced = next((item.model for item in agent.chain if item.price is None), None)
    if ledger.budget is not None and ledger.budget.usd is not None and unpriced is not None:
        raise errors.UnknownPriceError(
            f"the price of {unpriced} is not known, so a budget of money cannot be kept; name it"
            " where the worker is made, in US dollars for a million tokens: AgentWorker(…,"
            f" prices={{{unpriced!r}: Price(input='0.50', output='2')}}), or Price.free()",
            context={"model": unpriced},
        )
    back = _kept_back(state, agent)
    reservation = _for_call(state, agent, target, cut, back)
    amount = reservation.amount
    try:
        ledger.reserve("kept", back).reserve("call", amount)
    except errors.TurnBudgetExceededError as error:
        dimension = ledger.lacking(amount)
        refused = errors.LLMBudgetExceededError(error.message, context=error.context)
        raise (exceeded(ledger, dimension, amount) if dimension else error) from refused
    return reservation


def can_finish(state: TurnState, agent: AgentDefinition) -> bool:
    """Return whether the budget still covers the last answer."""
    return (
        not state.accounts.ledger.overrun
        and state.accounts.ledger.lacking(kept(state, agent)) is None
    )


def is_limited(ledger: Ledger) -> bool:
    """Return whether money or tokens are limited, so that requests need an output limit."""
    return ledger.budget is not None and (
        ledger.budget.usd is not None or ledger.budget.tokens is not None
    )


def kept(state: TurnState, agent: AgentDefinition) -> Spending:
    """Return the amount kept for a last answer to the task alone; nothing unless it finishes."""
    if agent.on_exhausted != "finish":
        return NOTHING
    tokens = (
        base_tokens(agent, state.output_schema(agent))
        + state.tokens.asked_bound
        + bound(LAST_WORDS)
    )
    # any model of the chain may give it
    amounts = [
        _amount(target.price, tokens, _last_output(state, agent, target)) for target in agent.chain
    ]
    return Spending(
        usd=max(amount.usd for amount in amounts),
        tokens=max(amount.tokens for amount in amounts),
        model_calls=1,
    )


def _kept_back(state: TurnState, agent: AgentDefinition) -> Spending:
    """Return the amount that the next call has to leave for a last answer; nothing during it."""
    return NOTHING if state.finishing else kept(state, agent)


def _for_call(
    state: TurnState, agent: AgentDefinition, target: Target, cut: Cut, back: Spending
) -> Reservation:
    if state.finishing:
        return _for_last_call(state, agent, target, cut)
    asked_output, input_tokens = (
        state.options(agent).max_output_tokens,
        state.input_bound(target.model, cut),
    )
    output_limit = asked_output or limits.OUTPUT_TOKENS
    if not is_limited(state.accounts.ledger):
        return Reservation(_amount(target.price, input_tokens, output_limit), asked_output)
    affordable = _affordable(state.accounts.ledger, target.price, input_tokens, back)
    output = max(min(output_limit, affordable), min(output_limit, limits.LEAST_OUTPUT_TOKENS))
    return Reservation(_amount(target.price, input_tokens, output), output)


def _for_last_call(
    state: TurnState, agent: AgentDefinition, target: Target, cut: Cut
) -> Reservation:
    """Return a reservation with as much of the transcript as the rest of the budget covers."""
    output, input_bound = _last_output(state, agent, target), state.input_bound(target.model, cut)
    base = base_tokens(agent, state.output_schema(agent))
    if not is_limited(state.accounts.ledger):
        return Reservation(_amount(target.price, input_bound, output), output)
    input_limit = _most_input(state.accounts.ledger, target.price, output)
    if input_bound <= input_limit:
        return Reservation(_amount(target.price, input_bound, output), output)
    input_limit = max(input_limit, base + state.tokens.asked_bound)
    return Reservation(
        _amount(target.price, input_limit, output), output, most_input=input_limit - base
    )


def _last_output(state: TurnState, agent: AgentDefinition, target: Target) -> int:
    """Return the output limit of a last answer: a quarter of the budget, within limits."""
    limit = min(
        state.options(agent).max_output_tokens or limits.LAST_OUTPUT_TOKENS,
        limits.LAST_OUTPUT_TOKENS,
    )
    budget = state.accounts.ledger.budget
    if budget is not None and budget.tokens is not None:
        limit = min(limit, budget.tokens // 4)
    if budget is not None and budget.usd is not None and target.price is not None:
        paid = target.price.output_for(budget.usd / 4, 0)
        limit = limit if paid is None else min(limit, paid)
    return max(limit, limits.LEAST_OUTPUT_TOKENS)


def _amount(price: Price | None, input_tokens: int, output_tokens: int) -> Spending:
    usd = price.most(input_tokens, output_tokens) if price else Decimal(0)
    return Spending(usd=usd, tokens=input_tokens + output_tokens, model_calls=1)


def _affordable(ledger: Ledger, price: Price | None, input_tokens: int, reserved: Spending) -> int:
    """Return the number of affordable output tokens with this input; it may be negative."""
    least = 10**15
    tokens, usd = ledger.remaining("tokens"), ledger.remaining("usd")
    if tokens is not None:
        least = int(tokens) - reserved.tokens - input_tokens
    if usd is not None and price is not None:
        paid = price.output_for(Decimal(usd) - reserved.usd, input_tokens)
        least = least if paid is None else min(least, paid)
    return least


def _most_input(ledger: Ledger, price: Price | None, output_tokens: int) -> int:
    """Return the number of affordable input tokens with this output; it may be negative."""
    least = 10**15
    tokens, usd = ledger.remaining("tokens"), ledger.remaining("usd")
    if tokens is not None:
        least = int(tokens) - output_tokens
    if usd is not None and price is not None:
        least = min(least, price.input_for(Decimal(usd), output_tokens))
    return least
