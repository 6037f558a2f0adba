"""Answers that the checks of their agent have not let pass: a mark is in the place of each. Pure.

History, which the turn itself and its operators read, has the answer. Everything else that shows a
transcript (a report, a session, a fork, a gateway) shows it as `shown` returns it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from perdure.base import replace
from perdure.schemas import output_type
from perdure.turn.facts import HookEnded, TurnEnded
from perdure.turn.state import TurnState
from perdure.values.messages import AssistantMessage, Message, Text, ToolMessage, UserMessage
from perdure.values.reports import Step

MARK = "[This answer is withheld: the checks of its agent have not let it pass."
"""The beginning of the text in the place of such an answer."""

TASK_MARK = "[This message is withheld: the checks of its agent have not let it pass."
"""The beginning of the text in the place of such a message of the user."""

A_MESSAGE = "a message"
"""What a check of a turn's beginning has refused if it is not the task."""

OBJECTION = f"{output_type.OBJECTION}. The reason is withheld with the answer."
"""The text in the place of an objection to such an answer, which may quote it."""


def may_stream(state: TurnState) -> bool:
    """Return whether the text of a turn may be shown while it is generated.

    An answer that has a type, or is checked, is shown when it has passed.
    """
    agent = state.agent
    return agent is not None and not agent.answer_checks and state.output_schema(agent) is None


def shown(state: TurnState) -> TurnState:
    """Return the state of a turn as its transcript is shown outside of the turn."""
    return without_answers(state, has_passed=state.is_checked)


def shown_steps(state: TurnState, after: int) -> tuple[Step, ...]:
    """Return the closed steps after number `after` of a turn, as they are shown outside of it.

    An answer that the checks may still let pass is not among them. Steps of earlier runs are not
    known.
    """
    count = len(state.steps) - (state.step_count - after)
    new = state.steps[max(count, 0) :]
    if state.agent is None or not state.agent.answer_checks or not any(map(_is_answer, new)):
        return new
    new = shown(state).steps[max(count, 0) :]
    may_pass = state.ended is None and not state.is_checked and _is_answer(new[-1])
    return new[:-1] if may_pass else new


def without_answers(state: TurnState, *, has_passed: bool = False) -> TurnState:
    """Return the state with a mark in the place of every answer that has not passed.

    Only an agent with checks after the turn has such answers. The checks see the last answer alone:
    an answer before it, after which the model read a message of the user or was asked again, has
    not passed. With `has_passed`, an answer of the last step has. The mark says how the turn ended,
    if it has.

    A message with calls that were run is not an answer.
    """
    if state.agent is None or not state.agent.answer_checks:
        return state
    answers = _unpassed(state, has_passed)
    if not answers:
        return state
    mark, past = _mark(state.ended), state.carried.past
    if past is not None:
        past = replace(
            past,
            messages=tuple(_marked(past.messages, answers, mark)),
            steps=_marked_steps(past.steps, answers, mark),
        )
    messages = tuple(_marked(state.transcript.messages, answers, mark))
    return replace(
        state,
        transcript=replace(state.transcript, messages=messages),
        steps=_marked_steps(state.steps, answers, mark),
        carried=replace(state.carried, past=past),
    )


def task_has_passed(state: TurnState, checks: Iterable[HookEnded]) -> bool:
    """Return whether the checks of its agent have let the task of a turn pass, by their ends.

    The histories of its first runs may be gone, but a model is asked after the checks alone.
    """
    if state.agent is None:
        return False
    if state.accounts.model_calls:
        return True
    places = [place for place, stage in enumerate(state.agent.middleware, 1) if stage.has_before]
    passed = {one.key.place for one in checks if one.key.moment == "before" and _let_pass(one)}
    return passed.issuperset(places)


def _let_pass(check: HookEnded) -> bool:
    """Return whether a check has let the task pass; it may have refused another message then."""
    return check.error is None or check.error.context.get("refused") == A_MESSAGE


def task_mark(state: TurnState) -> UserMessage:
    """Return what stands in the place of a task that the checks have not let pass."""
    return UserMessage.of(_mark(state.ended, TASK_MARK))


def _unpassed(state: TurnState, has_passed: bool) -> Sequence[AssistantMessage]:
    """Return the answers that have not passed, and do not equal an answer that has."""
    steps = state.all_steps
    answers = [step.message for step in steps if _is_answer(step)]
    answers += _of_unknown_steps(state)
    if has_passed and steps and _is_answer(steps[-1]):
        return [answer for answer in answers if answer != steps[-1].message]
    return answers


def _of_unknown_steps(state: TurnState) -> Iterator[AssistantMessage]:
    """Yield the answers of earlier runs of the turn, for a reader that has not read those runs.

    In a fork they may be answers of the turn that it was forked from, which were checked there.
    """
    if state.carried.past is not None:
        return
    carried = state.transcript.messages[state.transcript.opening + 1 : state.carried.messages]
    for message in carried:
        if isinstance(message, AssistantMessage) and not message.calls:
            yield message


def _mark(ended: TurnEnded | None, mark: str = MARK) -> str:
    if ended is None:
        return f"{mark}]"
    error = ended.summary.error if ended.summary else None
    outcome = ended.outcome.value.replace("_", " ")
    return f"{mark} The turn ended: {outcome}{f' ({error.code})' if error else ''}.]"


def _is_answer(step: Step) -> bool:
    return not step.results


def _marked_steps(
    steps: Sequence[Step], answers: Collection[AssistantMessage], mark: str
) -> tuple[Step, ...]:
    return tuple(
        step.model_copy(update={"message": _replaced(step.message, mark)})
        if _is_answer(step) and step.message in answers
        else step
        for step in steps
    )


def _marked(
    messages: Sequence[Message], answers: Collection[AssistantMessage], mark: str
) -> Iterator[Message]:
    is_after = False
    for message in messages:
        is_answer = isinstance(message, AssistantMessage) and message in answers
        if isinstance(message, AssistantMessage):
            yield _replaced(message, mark) if is_answer else message
        else:
            yield _without_objection(message) if is_after else message
        is_after = is_answer


def _replaced(message: AssistantMessage, mark: str) -> AssistantMessage:
    """Return the mark, with the calls of an answer that was cut off, without their arguments."""
    calls = (call.model_copy(update={"arguments": "{}"}) for call in message.calls)
    return AssistantMessage(parts=(Text(text=mark), *calls))


def _without_objection(message: UserMessage | ToolMessage) -> Message:
    """Return the message after an answer, without the quotes of an objection to the answer."""
    if isinstance(message, UserMessage):
        is_objection = message.id is None and message.text.startswith(output_type.OBJECTION)
        return UserMessage.of(OBJECTION) if is_objection else message
    results = tuple(
        result.model_copy(update={"content": OBJECTION})
        if result.content.startswith(output_type.OBJECTION)
        else result
        for result in message.results
    )
    return ToolMessage(results=results)
