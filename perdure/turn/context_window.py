"""What is sent of a transcript that is too long. Pure; the transcript itself stays whole.

The oldest tool results go first, then the oldest steps. Calls and their results stay paired; what
was asked, and what was said last, stay.

Two things are too short for a transcript. A model's window: `cut_for` says how much is left out,
and `sent` leaves it out, so that the workflow, a reader and the model activity see the same from
the same transcript. What is left of a budget: `shortened` makes a last answer affordable.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice

from perdure import limits
from perdure.base import Wire
from perdure.text import head, in_units, size
from perdure.turn.token_estimate import Estimate, parts, tokens, weight
from perdure.values.messages import AssistantMessage, Message, ToolMessage, ToolResult, UserMessage
from perdure.values.prices import bound
from perdure.values.reports import LeftOut


class Cut(Wire):
    """How much of a transcript is not sent; by default nothing. Places count its messages, from 0.

    Attributes:
        results: Tool results before this place are replaced by notes.
        steps: What stands before this place is left out, but for what was asked.
        opening: The place of the message with the task. Before it stands the history that the turn
            was given.
        tokens: What that saves, by the bytes, as `perdure.turn.token_estimate` counts them.
    """

    results: int = 0
    steps: int = 0
    opening: int = 0
    tokens: int = 0


NO_CUT = Cut()


def sent(messages: Sequence[Message], cut: Cut) -> tuple[Message, ...]:
    """`messages` without what is cut.

    As long as the cut is the same, what is sent only grows at its end when the transcript does.
    """
    if not cut.results and not cut.steps:
        return tuple(messages)
    asked = (messages[place] for place in _lasting(messages, cut.steps, cut.opening))
    noted = map(_noted, messages[cut.steps : cut.results])
    return (*asked, *noted, *messages[max(cut.steps, cut.results) :])


def cut_for(
    messages: Sequence[Message],
    before: Cut,
    estimate: Estimate,
    window_tokens: int | None,
    *,
    opening: int = 0,
    output_tokens: int | None = None,
) -> Cut | None:
    """What to leave out of `messages` for a model with this window.

    Never less than `before`, and more only where that is too long.

    Too long is above `limits.WINDOW_SHARE` of the window, without the answer's part of it. Then so
    much goes that `limits.WINDOW_TARGET` of it are left, so that the same beginning is sent for
    many steps, and a provider's prompt cache finds it. The message with the task and the last
    `limits.KEPT_STEPS` steps stay; so does what users have said to the turn since then, but for
    objections, which go with what they object to.

    Args:
        messages: The transcript.
        before: What is left out already.
        estimate: Of the transcript. While nothing has to go, nothing else is looked at.
        window_tokens: Of input and output together; None where nobody knows it.
        opening: The place of the message with the task.
        output_tokens: The output limit that goes with the request, if one does. At most half of the
            window is kept for it.

    Returns:
        None where the model cannot take even what must stay.
    """
    if window_tokens is None:
        return before
    if estimate.told > window_tokens:  # of another model's request, or no count of one
        estimate = replace(estimate, told=0)
    room = window_tokens - min(output_tokens or 0, window_tokens // 2)
    if estimate.tokens(before.tokens) <= room * limits.WINDOW_SHARE:
        return before
    cut = _deeper(messages, before, opening, estimate, room)
    return cut if estimate.tokens(cut.tokens) <= window_tokens else None


def left_out(messages: Sequence[Message], cut: Cut) -> LeftOut | None:
    """What is cut, for the report of a step; None for nothing.

    It looks at all that is cut, and need be asked only when the cut has changed.
    """
    if not cut.results and not cut.steps:
        return None
    lasting = set(_lasting(messages, cut.steps, cut.opening))
    gone = [message for place, message in enumerate(messages[: cut.steps]) if place not in lasting]
    old = [
        result
        for message in messages[cut.steps : cut.results]
        if isinstance(message, ToolMessage)
        for result in message.results
    ]
    replaced = [result for result in old if _left_out(result) is not result]
    return LeftOut(
        results=len(replaced),
        steps=sum(isinstance(message, AssistantMessage) for message in gone),
        bytes=sum(map(weight, replaced))
        + sum(sum(map(weight, parts(message))) for message in gone),
    )


def _deeper(
    messages: Sequence[Message], before: Cut, opening: int, estimate: Estimate, room: int
) -> Cut:
    """A cut that leaves as much as is aimed at, or else all that may go.

    What it saves is counted from the beginning of the transcript.
    """
    limit = _untouched(messages, opening)
    old = messages[:limit]
    whole = [tokens(message) for message in old]
    gained = [
        0,
        *accumulate(
            every - tokens(_noted(message)) for every, message in zip(whole, old, strict=True)
        ),
    ]
    gone = [0, *accumulate(whole)]

    def saved(results: int, steps: int) -> int:
        asked = sum(whole[place] for place in _lasting(messages, steps, opening))
        return gone[steps] - asked + max(gained[results] - gained[steps], 0)

    def left(results: int, steps: int) -> int:
        return estimate.tokens(saved(results, steps))

    ends = [
        before.results,
        *(
            place + 1
            for place in range(before.results, limit)
            if isinstance(old[place], ToolMessage)
        ),
    ]
    begins = [
        before.steps,
        *(
            place
            for place in range(before.steps + 1, limit + 1)
            if _may_begin(messages, place, opening)
        ),
    ]
    aim = _aim(room, least=left(ends[-1], begins[-1]))
    results = _first(ends, lambda place: left(place, before.steps), aim)
    steps = _first(begins, lambda place: left(results, place), aim)
    if (results, steps) == (before.results, before.steps):
        return before
    return Cut(results=results, steps=steps, opening=opening, tokens=saved(results, steps))


def _aim(room: int, *, least: int) -> float:
    """How much a cut leaves, where `least` must stay.

    Its target, or half way from there to where the next cut is due, if that is more.
    """
    return max(room * limits.WINDOW_TARGET, (least + room * limits.WINDOW_SHARE) / 2)


def _first(places: Sequence[int], left: Callable[[int], int], most_left: float) -> int:
    """The first of the places that leaves little enough, or as little as the last.

    A later place leaves no more.
    """
    least = left(places[-1])
    return places[bisect_left(places, True, key=lambda place: left(place) <= max(most_left, least))]


def _untouched(messages: Sequence[Message], opening: int) -> int:
    """Where the last steps begin; before any answer, the task."""
    answers = [
        place for place, message in enumerate(messages) if isinstance(message, AssistantMessage)
    ]
    return answers[-limits.KEPT_STEPS :][0] if answers else opening


def _may_begin(messages: Sequence[Message], place: int, opening: int) -> bool:
    """Whether what stands before a place may go.

    Never a call without its results, nor an answer without its objection.
    """
    return isinstance(messages[place], AssistantMessage) or (
        isinstance(messages[place], UserMessage) and place <= opening
    )


def _lasting(messages: Sequence[Message], steps: int, opening: int) -> Iterator[int]:
    """The places of what stays of all that stands before `steps`.

    In the turn that is the task, and what users have said since. A question of the history stays as
    long as a part of its answer does: models want a user's message to be the first.
    """
    if steps > opening:
        yield from (
            place
            for place in range(opening, steps)
            if place == opening or _is_asked(messages, place)
        )
    elif isinstance(messages[steps], AssistantMessage):
        yield from islice(
            (
                place
                for place in range(steps - 1, -1, -1)
                if isinstance(messages[place], UserMessage)
            ),
            1,
        )


def _is_asked(messages: Sequence[Message], place: int) -> bool:
    return isinstance(messages[place], UserMessage) and not isinstance(
        messages[place - 1], AssistantMessage
    )


def shortened(
    messages: Sequence[Message], most_tokens: int, *, keep: int = 0
) -> tuple[Message, ...]:
    """`messages`, or as much of them as have at most `most_tokens` by their upper bound.

    The last `keep` of them are not touched.

    What was asked is never left out, so the result may still be longer.
    """
    sent = list(messages)
    excess = sum(map(bound, sent)) - most_tokens
    for index in range(len(sent) - keep):
        if excess <= 0:
            return tuple(sent)
        message = sent[index]
        sent[index] = _noted(message)
        excess -= bound(message) - bound(sent[index])
    return _without_steps(sent, excess, keep)


def _without_steps(sent: list[Message], excess: int, keep: int) -> tuple[Message, ...]:
    """Leave out the oldest answers, each with its results, until nothing is too much."""
    dropped: set[int] = set()
    for index in range(len(sent) - keep):
        message = sent[index]
        if isinstance(message, AssistantMessage) and excess <= 0:
            break
        if not isinstance(message, UserMessage):
            dropped.add(index)
            excess -= bound(message)
    return (
        tuple(message for index, message in enumerate(sent) if index not in dropped)
        if dropped
        else tuple(sent)
    )


def _noted(message: Message) -> Message:
    """A message with notes in place of tool results."""
    return (
        ToolMessage(results=tuple(map(_left_out, message.results)))
        if isinstance(message, ToolMessage)
        else message
    )


def _left_out(result: ToolResult) -> ToolResult:
    """A result with a note as its content.

    As it is where that would hardly be shorter, so that a note stays as it is.
    """
    note = (
        f"[result of {head(result.name, limits.NAME_CHARACTERS)}, {in_units(size(result.content))},"
        " left out]"
    )
    return (
        result
        if size(result.content) <= 2 * size(note)
        else result.model_copy(update={"content": note})
    )
