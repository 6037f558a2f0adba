"""Checks the type of final answers.

The agent's own type with its validators is used as long as its schema is the schema that the turn
requires, whether the turn is pinned to it or its caller passed it. For a different type of a
caller, and for a type that a later deploy has changed, the worker has only the schema; the caller's
type validates the answer once the caller receives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

from perdure import errors, limits
from perdure.activities import arguments, output_validation
from perdure.activities.error_log import log_raised
from perdure.activities.resolve_agent import Agents
from perdure.activities.user_code import called
from perdure.agents.definitions import AgentDefinition
from perdure.agents.tracebacks import raised
from perdure.agents.versions import address, address_of
from perdure.errors import PerdureError
from perdure.schemas import output_type
from perdure.schemas.strict_schema import Schema
from perdure.text import described
from perdure.turn.calls import runs_tools
from perdure.turn.state import TurnState
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage
from perdure.values.reports import StopReason

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Check:
    """The check of an answer.

    `function` takes a JSON value and raises ValueError if it does not fit. It may take up to
    `limit`.
    """

    function: Callable[[Any], object]
    limit: timedelta = limits.USER_CODE


class Answers:
    """Finds the output type of a turn and checks answers against it."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def check_of(self, state: TurnState) -> Check:
        """Return the check for the final answer of this turn.

        Raises:
            InvalidRequestError: The schema that the turn was started with is invalid.
        """
        assert state.agent is not None
        schema = state.output_schema(state.agent)
        if schema is None:
            return Check(_anything)
        # the agent is gone, and the turn continues without it
        with contextlib.suppress(PerdureError):
            output: Any = (await self._agents.of_this_activity(_promised_by(state))).output
            if output_type.schema_of(output) == schema:
                return Check(lambda value: output_type.instance_of(output, value))
        # its steps are limited
        return Check(
            await asyncio.to_thread(output_validation.validator, schema), limits.MODEL_CALL
        )

    async def with_arguments(
        self, message: AssistantMessage, agent: AgentDefinition
    ) -> AssistantMessage:
        """Return the message with the arguments of its calls as their tools will receive them."""
        return await arguments.normal(message, agent, self._agents)


async def checked(answer: ModelAnswer, state: TurnState, check: Check) -> ModelAnswer:
    """Return the answer, with an objection if it is the final answer and does not fit.

    Raises:
        ConfigurationError: A validator of the agent's type takes too long, or tries to end the
            process.
        InvalidRequestError: The schema of the caller's type takes too much work.
    """
    assert state.agent is not None
    schema = state.output_schema(state.agent)
    is_last = state.finishing or not runs_tools(answer)
    if schema is None or answer.objection or answer.stop is StopReason.REFUSED or not is_last:
        return answer
    is_quoted = not state.agent.answer_checks  # the first line becomes an error, told everywhere
    objection = await by_validators(
        _promised_by(state),
        functools.partial(_objection, answer.message.text, schema, check.function, is_quoted),
        check.limit,
    )
    return answer.model_copy(update={"objection": objection}) if objection else answer


def _promised_by(state: TurnState) -> str:
    """Return the agent whose output type the turn has, also after a handoff."""
    assert state.agent is not None
    if state.request is None or not state.handoffs.by:
        return address_of(state.agent)
    return address(state.request.agent, state.agent.version.started)


async def by_validators(
    agent: str, function: Callable[[], V], limit: timedelta = limits.USER_CODE
) -> V:
    """Call a function that runs the validators of an agent's output type.

    Raises:
        ConfigurationError: It takes longer than `limit`, or tries to end the process.
        Exception: Whatever the function raises.
    """
    try:
        return cast("V", await called(function, limit=limit))
    except PerdureError as error:
        if type(error) is not PerdureError:
            raise
        raise errors.ConfigurationError(
            f"the validators of the output type of agent {agent!r} failed: {error.message}"
        ) from None


def _objection(text: str, schema: Schema, check: Callable[[Any], object], is_quoted: bool) -> str:
    """Return the objection to an answer that does not fit the type; empty if it fits.

    Unless the answer may be quoted, the first line has only the paths and the rules.
    """
    try:
        check(output_type.value_in(text, schema))
    except ValueError as error:
        reason, summary = str(error), output_type.broken_rules(error, schema)
    except PerdureError:
        raise
    except Exception as error:  # noqa: BLE001 - it is logged
        log_raised(f"a validator of the output type failed: {raised(error)}", error)
        reason, summary = described(error), f"a validator raised {type(error).__name__}"
    else:
        return ""
    return output_type.objection(reason, schema, "" if is_quoted else summary)


def _anything(_: Any) -> None:
    """Accept plain text."""
