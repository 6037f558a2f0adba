"""Shortening of a transcript that is too long to send. Pure; the transcript itself stays whole.

The oldest tool results are left out first, then the oldest steps. Calls and their results stay
paired. The task, later messages of users, and the last steps stay.

A transcript may be too long in two ways. For a model's window, `cut_for` computes how much to leave
out and `sent` leaves it out, so that the workflow, a reader and the model activity get the same
messages from the same transcript. For the rest of a budget, `shortened` makes a last answer
affordable.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice

from perdure import limits
from perdure.base import Wire, replace
from perdure.text import head, in_units, size
from perdure.turn.token_estimate import Estimate, parts, tokens, weight
from perdure.values.messages import AssistantMessage, Message, ToolMessage, ToolResult, UserMessage
from perdure.values.prices import bound
from perdure.values.reports import LeftOut


class Cut(Wire):
    """The part of a transcript that is not sent; nothing by default. Places count messages, from 0.

    Attributes:
        results: Tool results before this place are replaced by notes.
        steps: Messages before this place are left out, except the task and later messages of users.
        opening: The place of the message with the task. The history that the turn was given
            precedes it.
        tokens: The tokens that the cut saves, estimated by bytes (`perdure.turn.token_estimate`).
    """

    results: int = 0
    steps: int = 0
    opening: int = 0
    tokens: int = 0


NO_CUT = Cut()


def sent(messages: Sequence[Message], cut: Cut) -> tuple[Message, ...]:
    """Return `messages` without the part that is cut.

    While the cut stays the same, a growing transcript only adds messages at the end of the result.
    """
    if not cut.results and not cut.steps:
        return tuple(messages)
    questions = (messages[position] for position in _lasting(messages, cut.steps, cut.opening))
    noted = map(_noted, messages[cut.steps : cut.results])
    return (*questions, *noted, *messages[max(cut.steps, cut.results) :])


def kept(messages: Sequence[Message], cut: Cut, opening: int) -> tuple[tuple[Message, ...], int]:
    """Return what `sent` returns, and the place of the message with the task in it."""
    if not cut.results and not cut.steps:
        return tuple(messages), opening
    before = list(_lasting(messages, cut.steps, cut.opening))
    position = before.index(opening) if opening in before else len(before) + opening - cut.steps
    return sent(messages, cut), position


def cut_before(messages: Sequence[Message], position: int, opening: int) -> Cut:
    """Return the cut that leaves out the messages before a place, if that is after the task.

    The task and later messages of users stay.
    """
    gone = set(range(position)) - set(_lasting(messages, position, opening))
    saved = sum(tokens(messages[index]) for index in gone)
    return Cut(results=position, steps=position, opening=opening, tokens=saved)


def cut_for(
    messages: Sequence[Message],
    before: Cut,
    estimate: Estimate,
    window_tokens: int | None,
    *,
    opening: int = 0,
    output_tokens: int | None = None,
) -> Cut | None:
    """Return the cut of `messages` for a model with this window.

    The cut is never smaller than `before`, and larger only if the messages are still too long.

    They are too long above `limits.WINDOW_SHARE` of the window, less the part for the answer. The
    new cut then leaves `limits.WINDOW_TARGET` of it, so that many steps send the same beginning and
    the provider's prompt cache can reuse it. The message with the task and the last
    `limits.KEPT_STEPS` steps stay. Later messages of users stay too, except objections, which are
    left out with the answers that they object to.

    Args:
        messages: The transcript.
        before: The current cut.
        estimate: The estimate for the transcript. The messages are read only if it is too high.
        window_tokens: The window for input and output together; None if it is unknown.
        opening: The place of the message with the task.
        output_tokens: The output limit of the request; None without a limit. At most half of the
            window is kept for it.

    Returns:
        The cut; None if even the messages that must stay are too long for the model.
    """
    if window_tokens is None or fits(before, estimate, window_tokens, output_tokens):
        return before
    estimate = _of_window(estimate, window_tokens)
    cut = _deeper(messages, before, opening, estimate, _room(window_tokens, output_tokens))
    return cut if estimate.tokens(cut.tokens) <= window_tokens else None


def fits(
    cut: Cut, estimate: Estimate, window_tokens: int | None, output_tokens: int | None = None
) -> bool:
    """Return whether messages with this cut are short enough for a model with this window.

    The arguments are as for `cut_for`.
    """
    if window_tokens is None:
        return True
    room = _room(window_tokens, output_tokens) * limits.WINDOW_SHARE
    return _of_window(estimate, window_tokens).tokens(cut.tokens) <= room


def _of_window(estimate: Estimate, window_tokens: int) -> Estimate:
    """Return the estimate without a provider's count that a model with this window cannot give.

    It was reported for another model's request, or is not valid.
    """
    return replace(estimate, told=0) if estimate.told > window_tokens else estimate


def _room(window_tokens: int, output_tokens: int | None) -> int:
    """Return the tokens for the input, besides those kept for the output."""
    return window_tokens - min(output_tokens or 0, window_tokens // 2)


def left_out(messages: Sequence[Message], cut: Cut) -> LeftOut | None:
    """Return a summary of the cut for the report of a step; None if nothing is cut.

    This reads every message that is cut, so call it only when the cut has changed.
    """
    if not cut.results and not cut.steps:
        return None
    lasting = set(_lasting(messages, cut.steps, cut.opening))
    gone = [
        message for position, message in enumerate(messages[: cut.steps]) if position not in lasting
    ]
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
    """Return a cut that leaves the intended size, or the largest cut that is allowed.

    Its savings are counted from the beginning of the transcript.
    """
    limit = max(_untouched(messages, opening), before.results, before.steps)
    old = messages[:limit]
    sizes = [tokens(message) for message in old]
    gained = [
        0,
        *accumulate(
            every - tokens(_noted(message)) for every, message in zip(sizes, old, strict=True)
        ),
    ]
    gone = [0, *accumulate(sizes)]

    def saved(results: int, steps: int) -> int:
        questions = sum(sizes[position] for position in _lasting(messages, steps, opening))
        return gone[steps] - questions + max(gained[results] - gained[steps], 0)

    def left(results: int, steps: int) -> int:
        return estimate.tokens(saved(results, steps))

    ends = [
        before.results,
        *(
            position + 1
            for position in range(before.results, limit)
            if isinstance(old[position], ToolMessage)
        ),
    ]
    begins = [
        before.steps,
        *(
            position
            for position in range(before.steps + 1, limit + 1)
            if _may_begin(messages, position, opening)
        ),
    ]
    aim = _aim(room, least=left(ends[-1], begins[-1]))
    results = _first(ends, lambda position: left(position, before.steps), aim)
    steps = _first(begins, lambda position: left(results, position), aim)
    if (results, steps) == (before.results, before.steps):
        return before
    return Cut(results=results, steps=steps, opening=opening, tokens=saved(results, steps))


def _aim(room: int, *, least: int) -> float:
    """Return the intended size after a cut, in tokens, if `least` must stay.

    This is the target, or half way from `least` to the size that triggers the next cut, if that is
    more.
    """
    return max(room * limits.WINDOW_TARGET, (least + room * limits.WINDOW_SHARE) / 2)


def _first(places: Sequence[int], left_by: Callable[[int], int], most_left: float) -> int:
    """Return the first place that leaves at most `most_left`, or as little as the last place.

    A later place never leaves more.
    """
    least = left_by(places[-1])
    return places[
        bisect_left(places, True, key=lambda position: left_by(position) <= max(most_left, least))
    ]


def _untouched(messages: Sequence[Message], opening: int) -> int:
    """Return the place where the last steps begin, or the place of the task before any answer."""
    answers = [
        position
        for position, message in enumerate(messages)
        if isinstance(message, AssistantMessage)
    ]
    return answers[-limits.KEPT_STEPS :][0] if answers else opening


def _may_begin(messages: Sequence[Message], position: int, opening: int) -> bool:
    """Return whether the messages before a place may be left out.

    A call is never separated from its results, nor an answer from its objection.
    """
    return isinstance(messages[position], AssistantMessage) or (
        isinstance(messages[position], UserMessage) and position <= opening
    )


def _lasting(messages: Sequence[Message], steps: int, opening: int) -> Iterator[int]:
    """Yield the places before `steps` that stay.

    In the turn, these are the task and later messages of users. A question in the history stays as
    long as a part of its answer does, because models require that the first message is a user's.
    """
    if steps > opening:
        yield from (
            position
            for position in range(opening, steps)
            if position == opening or _is_asked(messages, position)
        )
    elif isinstance(messages[steps], AssistantMessage):
        yield from islice(
            (
                position
                for position in range(steps - 1, -1, -1)
                if isinstance(messages[position], UserMessage)
            ),
            1,
        )


def _is_asked(messages: Sequence[Message], position: int) -> bool:
    message = messages[position]
    if not isinstance(message, UserMessage):
        return False
    return message.id is not None or not isinstance(messages[position - 1], AssistantMessage)


def shortened(
    messages: Sequence[Message], most_tokens: int, *, keep: int = 0
) -> tuple[Message, ...]:
    """Return `messages`, shortened to an upper bound of at most `most_tokens`.

    The last `keep` messages stay unchanged. Messages of users are never left out, so the result may
    still be longer.
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
    """Leave out the oldest answers, each with its results, until the excess is gone."""
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
    """Return a message with notes in place of tool results."""
    return (
        ToolMessage(results=tuple(map(_left_out, message.results)))
        if isinstance(message, ToolMessage)
        else message
    )


def _left_out(result: ToolResult) -> ToolResult:
    """Return a result with a note as its content.

    A result that would hardly become shorter is returned unchanged, and so is a note. One with
    images or files becomes shorter.
    """
    bytes_ = size(result.content) + sum(media.size_bytes for media in result.media)
    note = f"[result of {head(result.name, limits.NAME_CHARACTERS)}, {in_units(bytes_)}, left out]"
    if not result.media and size(result.content) <= 2 * size(note):
        return result
    return result.model_copy(update={"content": note, "media": ()})
