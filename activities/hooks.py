"""User code that runs beside an agent's steps: middleware and observers.

It gets the turn's state from its history, as every reader does.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity

from perdure import errors, limits, validation
from perdure.activities.answer_checks import by_validators
from perdure.activities.error_log import log_raised
from perdure.activities.resolve_agent import Agents
from perdure.activities.transcripts import Transcripts
from perdure.activities.user_code import called
from perdure.agents.agent import Agent
from perdure.agents.middleware import InputGuardrail, Middleware, OutputGuardrail
from perdure.agents.observers import Observer
from perdure.agents.tracebacks import named, place_of, raised, raised_unquoted
from perdure.errors import PerdureError
from perdure.schemas import output_type
from perdure.schemas.strict_schema import Schema
from perdure.turn import ending, withheld
from perdure.turn.hook_values import HookCall, ObserverCall
from perdure.turn.state import TurnState
from perdure.turn.wire import Noted, TurnRequest
from perdure.values.messages import Media, UserMessage
from perdure.values.reports import AgentReport, Outcome
from perdure.values.tasks import Task

logger = logging.getLogger("perdure")


class Hooks:
    """Calls middleware and observers."""

    def __init__(self, agents: Agents, transcripts: Transcripts) -> None:
        self._agents = agents
        self._transcripts = transcripts

    async def run_middleware(self, call: HookCall) -> Noted:
        """Call a middleware.

        Raises:
            GuardrailError: It refuses.
            ConfigurationError: It is a guardrail whose check returned neither a bool nor a string,
                or another middleware that returned something; or the deployed agent has none there
                any more.
            PerdureError: It failed.
        """
        agent = await self._agents.of_this_activity(call.agent)
        state = await self._transcripts.read(activity.client(), activity.info())
        assert state.request is not None
        assert state.agent is not None
        item = _deployed(agent, [stage.name for stage in state.agent.middleware], call.place)
        report = ending.report(
            activity.info().workflow_id or "",
            state,
            call.outcome or Outcome.COMPLETED,
            risk=call.risk,
        )
        unchecked = {"output": state.last_words, "steps": state.all_steps}
        report = report.model_copy(update={**unchecked, "messages": state.all_messages})
        if call.moment == "before":
            for noun, task in _tasks(state, call.messages):
                try:
                    await _pass(item, call, task, noun)
                except errors.GuardrailError as error:
                    error.context["refused"] = noun
                    raise
        else:
            await _pass(item, call, await _typed(report, state, agent), "the answer")
        return Noted()

    async def tell_observers(self, call: ObserverCall) -> Noted:
        """Notify every observer of what it has not seen. Exceptions are logged."""
        agent = await self._agents.of_this_activity(call.agent)
        state = await self._transcripts.read(activity.client(), activity.info())
        for observer in agent.observers:
            await _notify(observer, agent, state, call, limits.USER_CODE / len(agent.observers))
        return Noted()


def _deployed(agent: Agent[Any], pinned: Sequence[str], index: int) -> Middleware:
    """Return the deployed middleware for the middleware that a turn is pinned to.

    It is matched by class: the first to the first, and so on. If there is none of that class, it is
    the middleware at the same place, provided that the list is as long as before.

    Raises:
        ConfigurationError: The agent no longer has it.
    """
    name = pinned[index]
    same = [item for item in agent.middleware if type(item).__name__ == name]
    number = pinned[:index].count(name)
    if number < len(same):
        return same[number]
    if same or len(agent.middleware) != len(pinned):
        raise errors.ConfigurationError(
            f"the deployed agent {agent.name} no longer has middleware number {index + 1}, which"
            f" was a {name}"
        )
    return agent.middleware[index]


def _tasks(state: TurnState, messages: Sequence[str]) -> Iterator[tuple[str, Task]]:
    """Yield what the user has said, as tasks, each with what it is.

    These are the messages with these ids, or all that the turn begins with.
    """
    request = state.request
    assert request is not None
    if not messages:
        yield "the task", request.task
    for message in _unread(state, messages) if messages else _first_messages(request):
        has_media = any(isinstance(part, Media) for part in message.parts)
        content = message.parts if has_media else message.text
        yield withheld.A_MESSAGE, request.task.model_copy(update={"content": content})


def _unread(state: TurnState, ids: Sequence[str]) -> Sequence[UserMessage]:
    """Return the messages with these ids that the model has not read.

    Raises:
        PerdureError: Some are not in history.
    """
    unread = [message for message in state.inbox.unread if message.id in ids]
    if len(unread) < len(ids):
        raise PerdureError(f"history does not have all of the messages {', '.join(ids)}")
    return unread


def _first_messages(request: TurnRequest) -> Sequence[UserMessage]:
    """Return the messages that a turn begins with besides its task."""
    say = request.origin.say if request.origin else ""
    return [*([UserMessage.of(say)] if say else []), *(request.said or ())]


async def _pass(
    item: Middleware, call: HookCall, subject: Task | AgentReport[Any], noun: str
) -> None:
    """Have a middleware check a task, a message or an answer.

    Raises:
        GuardrailError: It refuses.
        ConfigurationError: It returned something.
        PerdureError: It failed.
    """
    try:
        result = await _ask(item, call, subject)
    except errors.GuardrailError:
        raise
    except Exception as error:
        raise PerdureError(
            f"the middleware {type(item).__name__} of agent {call.agent} failed:"
            f" {_reason(error, call.moment)}"
        ) from error
    if isinstance(item, InputGuardrail):
        item.judge(result, noun)
    elif isinstance(item, OutputGuardrail):
        item.judge(result)
    elif result is not None:
        raise _returned(item, call, result)


def _reason(error: Exception, moment: str) -> str:
    """Return why a middleware failed. What raises after an answer may quote the answer."""
    if moment == "before":
        return error.message if isinstance(error, PerdureError) else raised(error)
    if type(error) is PerdureError and not place_of(error):
        return error.message  # of `called`, such as that it took too long
    return raised_unquoted(error)


async def _ask(item: Middleware, call: HookCall, subject: Task | AgentReport[Any]) -> object:
    """Call a middleware; the check of a guardrail may block."""
    if isinstance(item, InputGuardrail | OutputGuardrail):
        return await called(item.check, subject, limit=limits.USER_CODE)
    return await called(
        item.before if call.moment == "before" else item.after, subject, limit=limits.USER_CODE
    )


def _returned(item: Middleware, call: HookCall, result: object) -> errors.ConfigurationError:
    """Return the error for a result that would be dropped: it was meant to have an effect."""
    method = named(getattr(item, call.moment))
    return errors.ConfigurationError(
        f"the middleware {type(item).__name__} of agent {call.agent}: {method} returned"
        f" {validation.sort(result)}, and a middleware returns nothing: raise GuardrailError to"
        " refuse; it cannot change the task or the report"
    )


async def _typed(report: AgentReport[Any], state: TurnState, agent: Agent[Any]) -> AgentReport[Any]:
    """Return the report with its output in the agent's type, however the turn was started.

    Raises:
        OutputInvalidError: The answer does not fit the type.
        ConfigurationError: Its validators take too long.
    """
    schema = state.output_schema(state.agent) if state.agent else None
    try:
        output = await by_validators(
            agent.name,
            functools.partial(output_type.read_by_agent, report.output, agent.output, schema),
        )
    except PerdureError:
        raise
    except ValueError as error:
        # the error is told everywhere, and nothing has let the answer pass
        rules = output_type.broken_rules(error, output_type.schema_of(agent.output), schema)
        raise errors.OutputInvalidError(_misfit(rules, state, agent, schema)) from error
    except Exception as error:
        reason = raised_unquoted(error)
        raise errors.OutputInvalidError(_misfit(reason, state, agent, schema)) from error
    return report.model_copy(update={"output": output})


def _misfit(reason: str, state: TurnState, agent: Agent[Any], schema: Schema | None) -> str:
    type_name = getattr(agent.output, "__name__", str(agent.output))
    sentence = (
        f"the answer does not fit {type_name}, the output type of the deployed agent {agent.name},"
        f" which its middleware gets: {reason}"
    )
    if (
        state.request is not None
        and state.request.output_schema is not None
        and not output_type.is_version_of(agent.output, schema)
    ):
        return (
            f"{sentence}; the turn was started with another type: start it with {type_name}, or"
            " without output="
        )
    if schema == output_type.schema_of(agent.output):
        return sentence
    return (
        f"{sentence}; the turn began with another version of the type, and its report's messages"
        " hold the answer as it was recorded"
    )


async def _ending(
    report: AgentReport[Any], state: TurnState, agent: Agent[Any]
) -> AgentReport[Any]:
    """Return the report of a finished turn; an answer that does not fit the type remains text."""
    if report.outcome is not Outcome.COMPLETED and report.risk is None:
        return ending.without_answer(report)
    try:
        return await _typed(report, state, agent) if report.output else report
    except errors.OutputInvalidError as error:
        if report.outcome is Outcome.COMPLETED:
            logger.warning(
                "observers of %s get its output as text: %s", report.turn_id, error.message
            )
        return report


async def _notify(
    observer: Observer, agent: Agent[Any], state: TurnState, call: ObserverCall, limit: timedelta
) -> None:
    assert state.request is not None
    turn_id = activity.info().workflow_id or ""
    turn = state.request.info(turn_id)
    notices: list[tuple[Callable[..., Any], tuple[object, ...]]] = [
        (observer.on_step, (turn, step))
        for step in state.steps
        if call.seen < step.number <= call.steps
    ]
    if call.waits_for:
        notices.append((observer.on_wait, (turn, call.waits_for, call.reason)))
    if call.outcome is not None:
        report = await _ending(
            ending.report(turn_id, state, call.outcome, risk=call.risk), state, agent
        )
        notices.append((observer.on_end, (turn, report)))
    for method, arguments in notices:
        try:
            await called(method, *arguments, limit=limit / len(notices))
        except Exception as error:  # noqa: BLE001 - it is logged
            name = f"{type(observer).__name__}.{method.__name__}"
            log_raised(f"the observer {name} failed; the turn goes on: {raised(error)}", error)
