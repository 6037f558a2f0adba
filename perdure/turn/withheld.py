"""Answers that the checks of their agent have not let pass: a mark is in the place of each. Pure.

History, which the turn itself and its operators read, has the answer. Everything else that shows a
transcript (a report, a session, a fork, a gateway) shows it as `told` returns it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from perdure.turn.facts import TurnEnded
from perdure.turn.state import TurnState
from perdure.values.messages import AssistantMessage, Message, Text
from perdure.values.reports import Step

MARK = "[This answer is withheld: the checks of its agent have not let it pass."
"""The beginning of the text in the place of such an answer."""


def told(state: TurnState) -> TurnState:
    """Return the state of a turn as its transcript is shown outside of the turn."""
    return state if state.is_checked else without_answers(state)


def without_answers(state: TurnState) -> TurnState:
    """Return the state with a mark in the place of every answer of the turn.

    A message with calls that were run is no answer. The mark says how the turn ended, if it has.
    """
    mark = _mark(state.ended)
    answers = [step.message for step in state.all_steps if _is_answer(step)]
    if not answers:
        return state
    past = state.carried.past
    if past is not None:
        past = replace(
            past,
            messages=_marked(past.messages, answers, mark),
            steps=_marked_steps(past.steps, mark),
        )
    return replace(
        state,
        transcript=replace(
            state.transcript, messages=_marked(state.transcript.messages, answers, mark)
        ),
        steps=_marked_steps(state.steps, mark),
        carried=replace(state.carried, past=past),
    )


def _mark(ended: TurnEnded | None) -> str:
    if ended is None:
        return f"{MARK}]"
    error = ended.summary.error if ended.summary else None
    outcome = ended.outcome.value.replace("_", " ")
    return f"{MARK} The turn ended: {outcome}{f' ({error.code})' if error else ''}.]"


def _is_answer(step: Step) -> bool:
    return not step.results


def _marked_steps(steps: Sequence[Step], mark: str) -> tuple[Step, ...]:
    return tuple(
        step.model_copy(update={"message": _replaced(step.message, mark)})
        if _is_answer(step)
        else step
        for step in steps
    )


def _marked(
    messages: Sequence[Message], answers: Collection[AssistantMessage], mark: str
) -> tuple[Message, ...]:
    return tuple(
        _replaced(message, mark)
        if isinstance(message, AssistantMessage) and message in answers
        else message
        for message in messages
    )


def _replaced(message: AssistantMessage, mark: str) -> AssistantMessage:
    """Return the mark, with the calls of an answer that was cut off, without their arguments."""
    calls = (call.model_copy(update={"arguments": "{}"}) for call in message.calls)
    return AssistantMessage(parts=(Text(text=mark), *calls))
