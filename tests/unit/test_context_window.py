"""What is sent of a transcript that is too long for a model: the oldest results are left out first,
then the oldest steps, and it stays a valid transcript.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import (
    AssistantMessage,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    limits,
)
from perdure.temporal.payloads import pack, unpack
from perdure.turn.context_window import Cut, cut_for, left_out, sent, shortened
from perdure.turn.reservations import LAST_WORDS
from perdure.turn.token_estimate import Estimate, parts, tokens, weight
from perdure.turn.transcript import TokenCount
from perdure.turn.wire import ModelCall
from perdure.values.messages import canonical, closed
from perdure.values.prices import bound
from perdure.values.reports import LeftOut

from ..support.clerk import in_its_own_time

SHORT, LONG = 900, 3_600
"""Bytes of a text, and of a result, in the transcripts written as letters."""
EVERY = tokens(UserMessage.of("x" * SHORT))
"""Tokens of a text. A result has nearly four times as many, and its note nearly none."""


def transcript(letters: str) -> tuple[Message, ...]:
    """Messages by letter: u user, a assistant, t tool results; an `a` before a `t` has a call."""
    messages: list[Message] = []
    for place, letter in enumerate(letters):
        text = f"{place} ".ljust(LONG if letter == "t" else SHORT, ".")
        call = (
            [ToolCall(id=f"c{place}", name="read")] if letters[place + 1 : place + 2] == "t" else []
        )
        if letter == "t":
            messages.append(
                ToolMessage(
                    results=(ToolResult(call_id=f"c{place - 1}", name="read", content=text),)
                )
            )
        else:
            messages.append(
                UserMessage.of(text)
                if letter == "u"
                else AssistantMessage(parts=(Text(text=text), *call))
            )
    return tuple(messages)


def letters_of(view: Sequence[Message], messages: Sequence[Message]) -> str:
    """The letters of a view, T for results that are replaced by a note, with a gap for missing
    messages.
    """
    out, last = "", -1
    for message in view:
        place = place_of(message, messages)
        letter = (
            "u"
            if isinstance(message, UserMessage)
            else "a"
            if isinstance(message, AssistantMessage)
            else "t"
        )
        out += " " * (place - last > 1) + (letter if message is messages[place] else letter.upper())
        last = place
    return out


def place_of(message: Message, messages: Sequence[Message]) -> int:
    """The original position of a message in a view; one with notes is found by the ids of its
    calls.
    """
    if not isinstance(message, ToolMessage):
        return next(place for place, other in enumerate(messages) if other is message)
    return next(
        place
        for place, other in enumerate(messages)
        if isinstance(other, ToolMessage) and ids(other) == ids(message)
    )


def ids(message: ToolMessage) -> list[str]:
    return [result.call_id for result in message.results]


def estimate_of(messages: Sequence[Message]) -> Estimate:
    """The estimate that the fold keeps."""
    return reduce(Estimate.plus, messages, Estimate())


def kept(letters: str, window: int, opening: int = 0, output: int | None = None) -> str | None:
    """The messages of a first request to a model.

    Its window has room for this number of messages without results.
    """
    messages = transcript(letters)
    cut = cut_for(
        messages,
        Cut(),
        estimate_of(messages),
        window * EVERY,
        opening=opening,
        output_tokens=output and output * EVERY,
    )
    return None if cut is None else letters_of(sent(messages, cut), messages)


@pytest.mark.parametrize(
    ("letters", "window", "view"),
    [
        pytest.param("uatatatatatatatatatat", 64, "uatatatatatatatatatat", id="it fits"),
        pytest.param("uatatatatatatatatatat", 63, "uaTaTaTaTatatatatatat", id="the oldest results"),
        pytest.param(
            "uatatatatatatatatatat",
            42,
            "uaTaTaTaTaTaTatatatat",
            id="every result but the last four",
        ),
        pytest.param("uatatatatatatatatatat", 41, "u aTaTaTaTaTatatatat", id="and then steps"),
        pytest.param(
            "uatatatatatatatatatat", 21, "u atatatat", id="all but the task and four steps"
        ),
        pytest.param("uatatatatatatatatatat", 20, None, id="these do not fit"),
        pytest.param("uatatat", 16, "uatatat", id="nearly full, and nothing may go"),
        pytest.param("u", 1, "u", id="nothing but the task"),
        pytest.param("uu", 1, None, id="a task that does not fit"),
        pytest.param(
            "uauatatatatatatatu", 36, "u aTaTaTatatatatu", id="an objection goes with its answer"
        ),
        pytest.param("uatuatatatatat", 30, "u uaTatatatat", id="what a user says later stays"),
        pytest.param("uatatatatatatu", 22, "u atatatatu", id="the last words stay"),
    ],
)
def test_oldest_goes_first_and_what_was_asked_stays(
    letters: str, window: int, view: str | None
) -> None:
    """Results are left out before steps; in the view a gap is a missing part, and T a result that
    is replaced by a note.
    """
    assert kept(letters, window) == view


@pytest.mark.parametrize(
    ("history", "turn", "window", "view"),
    [
        pytest.param(
            "uatuatuat", "uatatatatat", 45, "uaTuaTuaTuaTatatatat", id="results, in the history too"
        ),
        pytest.param(
            "uauatata",
            "uatatatatat",
            39,
            " uaTaTauaTatatatat",
            id="the oldest question with its answer",
        ),
        pytest.param(
            "uauatata",
            "uatatatatat",
            37,
            " u aTauaTatatatat",
            id="a question stays with the rest of its answer",
        ),
        pytest.param(
            "uauatata", "uatatatatat", 21, " u atatatat", id="all but the task and four steps"
        ),
        pytest.param(
            "uauauaua",
            "uatat",
            15,
            " uauauatat",
            id="two of the last four steps are in the history",
        ),
        pytest.param("uatatatatatatat", "u", 30, "u aTatatatatu", id="all of them are"),
        pytest.param("uu", "u", 3, " u", id="questions that nobody answered"),
        pytest.param(
            "atatatatatat", "uat", 29, " aTatatatuat", id="it begins with an answer, as it did"
        ),
    ],
)
def test_history_that_was_given_goes_before_the_task(
    history: str, turn: str, window: int, view: str
) -> None:
    """User messages in it are left out as well, but the view starts with a user message, as models
    require.
    """
    assert kept(history + turn, window, opening=len(history)) == view


@pytest.mark.parametrize(
    ("window", "output", "view"),
    [
        (64, None, "uatatatatatatatatatat"),
        (80, 16, "uatatatatatatatatatat"),
        (79, 16, "uaTaTaTaTatatatatatat"),
        (128, 64, "uatatatatatatatatatat"),
        (128, 500, "uatatatatatatatatatat"),
    ],
)
def test_answer_has_a_part_of_the_window(window: int, output: int | None, view: str) -> None:
    """The output limit, but not more than half of the window."""
    assert kept("uatatatatatatatatatat", window, output=output) == view


def test_nothing_is_looked_at_while_nothing_has_to_go() -> None:
    """A step of a long turn costs no more than one of a short one: only the estimate is
    compared.
    """
    cut, estimate = Cut(results=9, tokens=50), Estimate(messages=130)

    assert cut_for((), cut, estimate, 100) is cut
    assert cut_for((), Cut(), estimate, None) == Cut()
    with pytest.raises(IndexError):
        cut_for((), cut, estimate, 99)


def test_count_that_cannot_be_of_this_request_is_not_believed() -> None:
    """An answer that reports more tokens than the window has is from another model, or adds up
    several requests.
    """
    messages, window = transcript("uatatatatatat"), 60 * EVERY
    views = []
    for told in (window, window + 1):
        cut = cut_for(messages, Cut(), estimate_of(messages).counted(told), window)
        assert cut is not None
        views.append(letters_of(sent(messages, cut), messages))

    assert views == ["u aTatatatat", "uatatatatatat"]


# --- any transcript


WORDS, SIZES = (
    st.sampled_from([0, 9, 30, 60, 300, 900]),
    st.sampled_from([0, 60, 300, 900, 900, 4_000]),
)
PIECES = st.tuples(
    st.sampled_from(["step", "step", "step", "step", "steps", "objected", "said", "asked"]),
    WORDS,
    SIZES,
)
WINDOWS = st.sampled_from([300, 2_000, 4_000, 6_000, 8_000, 12_000])
NOTES = {f"[result of read, {size}, left out]" for size in ("300 bytes", "900 bytes", "4 KB")}
RATES = st.sampled_from([None, 0.3, 0.7, 1.5, 2.9, 5])

Piece = tuple[str, int, int]


def messages_of(piece: Piece, number: int) -> tuple[Message, ...]:
    """The messages of one piece of a transcript."""
    kind, words, more = piece
    text = (Text(text="w" * words),)
    if kind == "asked":
        image = (Media(media_type="image/png", data="i" * more),) if more < words else ()
        return (UserMessage(parts=(*text, *image)),)
    if kind == "said":
        return (AssistantMessage(parts=text),)
    if kind == "objected":
        return AssistantMessage(parts=text), UserMessage.of("o" * more)
    calls = tuple(
        ToolCall(id=f"c{number}_{index}", name="read", arguments="{}")
        for index in range(1 if kind == "step" else 3)
    )
    results = (
        ToolResult(call_id=call.id, name="read", content="r" * more, is_error=more < words)
        for call in calls
    )
    return AssistantMessage(parts=(Thinking(text="t" * words), *calls)), ToolMessage(
        results=tuple(results)
    )


@dataclass(frozen=True)
class Asked:
    """A request: the transcript, what was left out before, and what is left out now."""

    messages: tuple[Message, ...]
    opening: int
    estimate: Estimate
    window: int
    before: Cut
    cut: Cut | None

    @property
    def view(self) -> tuple[Message, ...]:
        assert self.cut is not None
        return sent(self.messages, self.cut)

    @property
    def untouched(self) -> int:
        """The position of the last four steps, or of the first step if there are fewer, or of the
        task.
        """
        answers = [
            place
            for place, message in enumerate(self.messages)
            if isinstance(message, AssistantMessage)
        ]
        return answers[-4:][0] if answers else self.opening


@dataclass(frozen=True)
class Played:
    """The requests of a turn.

    Each adds a piece to the transcript, and the provider reports its count: `rate` tokens for each
    estimated one.
    """

    asked: list[Asked]

    @classmethod
    def of(
        cls, history: Sequence[Piece], turn: Sequence[Piece], window: int, rate: float | None
    ) -> Played:
        past = tuple(
            message
            for number, piece in enumerate(history)
            for message in messages_of(piece, number)
        )
        messages, before, asked = (*past, UserMessage.of("the task")), Cut(), list[Asked]()
        estimate = replace(estimate_of(messages), base=20)
        for number, piece in enumerate(turn, len(history)):
            cut = cut_for(messages, before, estimate, window, opening=len(past))
            asked.append(Asked(messages, len(past), estimate, window, before, cut))
            before = cut or before
            counted = int((rate or 0) * (estimate.base + estimate.messages - before.tokens))
            if cut is not None and counted <= window:
                estimate = estimate.counted(counted, before.tokens)
            more = messages_of(piece, number)
            messages, estimate = (*messages, *more), reduce(Estimate.plus, more, estimate)
        return cls(asked)

    @property
    def answered(self) -> list[Asked]:
        """Those that fit the model."""
        return [one for one in self.asked if one.cut is not None]


TURNS = st.builds(
    Played.of,
    st.lists(PIECES, max_size=8),
    st.lists(PIECES, min_size=8, max_size=24),
    WINDOWS,
    RATES,
)


@in_its_own_time
@given(TURNS)
def test_what_is_sent_is_a_transcript(turn: Played) -> None:
    """Every call has its results right after it, every result has its call, and a user message
    comes first if it did before.
    """
    for one in turn.answered:
        assert closed(one.messages) == one.messages
        assert closed(one.view) == one.view
        assert isinstance(one.view[0], UserMessage) or isinstance(one.messages[0], AssistantMessage)


@in_its_own_time
@given(TURNS)
def test_what_is_sent_is_in_order_with_notes_for_results(turn: Played) -> None:
    """Nothing is added; the only differences are results that are replaced by notes."""
    for one in turn.answered:
        places = [place_of(message, one.messages) for message in one.view]
        assert places == sorted(set(places))
        for message in one.view:
            whole = one.messages[place_of(message, one.messages)]
            if (
                message is not whole
                and isinstance(message, ToolMessage)
                and isinstance(whole, ToolMessage)
            ):
                changed = [
                    (old, new)
                    for old, new in zip(whole.results, message.results, strict=True)
                    if old != new
                ]
                assert all(
                    new == old.model_copy(update={"content": new.content}) for old, new in changed
                )
                assert {new.content for _, new in changed} <= NOTES


@in_its_own_time
@given(TURNS)
def test_task_and_last_four_steps_are_untouched(turn: Played) -> None:
    """They are the same objects, and so are all user messages since the task, except objections."""
    for one in turn.answered:
        tail = one.messages[one.untouched :]
        assert all(
            ours is theirs for ours, theirs in zip(one.view[-len(tail) :], tail, strict=True)
        )
        view = {id(message) for message in one.view}
        since = enumerate(one.messages[one.opening + 1 :], one.opening + 1)
        said = [
            message
            for place, message in since
            if isinstance(message, UserMessage)
            and not isinstance(one.messages[place - 1], AssistantMessage)
        ]
        assert all(id(message) in view for message in (one.messages[one.opening], *said))


@in_its_own_time
@given(TURNS)
def test_what_is_sent_fits_or_nothing_is(turn: Played) -> None:
    """The saving of the cut equals what is not sent; if no view fits, there is none."""
    for one in turn.asked:
        if one.cut is not None:
            assert sum(map(tokens, one.view)) == one.estimate.messages - one.cut.tokens
            assert one.estimate.tokens(one.cut.tokens) <= one.window
            continue
        smallest = sent(
            one.messages, Cut(results=one.untouched, steps=one.untouched, opening=one.opening)
        )
        assert one.estimate.tokens(one.estimate.messages - sum(map(tokens, smallest))) > one.window


@in_its_own_time
@given(TURNS)
def test_what_is_left_out_stays_left_out(turn: Played) -> None:
    """A cut is never smaller than the previous one, and the same transcript is not cut again."""
    for one in turn.answered:
        assert one.cut is not None
        assert one.cut.results >= one.before.results
        assert one.cut.steps >= one.before.steps
        assert one.cut.tokens >= one.before.tokens
        assert (
            cut_for(one.messages, one.cut, one.estimate, one.window, opening=one.opening) == one.cut
        )
        assert (one.cut is one.before) == (one.view == sent(one.messages, one.before))
        if one.estimate.tokens(one.before.tokens) <= limits.WINDOW_SHARE * one.window:
            assert one.cut is one.before
        if one.cut == Cut():
            assert one.view is one.messages


@in_its_own_time
@given(TURNS)
def test_what_is_sent_only_grows_until_it_is_cut_again(turn: Played) -> None:
    """So that a provider finds the beginning in its cache."""
    for one, then in pairwise(turn.answered):
        if then.cut == one.cut:
            assert then.view[: len(one.view)] == one.view


def naive(one: Asked) -> tuple[Message, ...]:
    """The view found by trying: one more result, then one more step, each time counting the
    rest.
    """

    def left(view: Sequence[Message]) -> int:
        return one.estimate.tokens(one.estimate.messages - sum(map(tokens, view)))

    results = [
        Cut(results=place, steps=one.before.steps, opening=one.opening)
        for place in range(one.before.results, one.untouched + 1)
    ]
    steps = [
        replace_steps(results[-1], place)
        for place in range(one.before.steps, one.untouched + 1)
        if not splits(one, place)
    ]
    views = [sent(one.messages, cut) for cut in (*results, *steps)]
    least = left(views[-1])
    aim = max(0.5 * one.window, (least + 0.8 * one.window) / 2, least)
    return next(view for view in views if left(view) <= aim)


def replace_steps(cut: Cut, place: int) -> Cut:
    return cut.model_copy(update={"steps": place})


def splits(one: Asked, place: int) -> bool:
    """Whether a call would be sent without its results, or an answer without its objection."""
    message = one.messages[place]
    return isinstance(message, ToolMessage) or (
        isinstance(message, UserMessage) and place > one.opening
    )


@in_its_own_time
@given(TURNS)
def test_no_more_is_left_out_than_brings_it_to_half_of_the_window(turn: Played) -> None:
    """Or half way from the part that must stay to the limit, if that is more, according to a slow
    search.
    """
    for one in turn.answered:
        if one.cut != one.before:
            assert one.view == naive(one)


@in_its_own_time
@given(TURNS, st.integers(0, 20_000))
def test_last_answer_under_a_budget_is_asked_for_with_less_of_it(turn: Played, most: int) -> None:
    """The view for the window is shortened once more, and stays a valid transcript."""
    for one in turn.answered:
        view = shortened((*one.view, LAST_WORDS), most, keep=1)
        assert closed(view) == view
        assert view[-1] is LAST_WORDS


# --- a long turn


def bytes_of(messages: Sequence[Message]) -> int:
    return sum(weight(part) for message in messages for part in parts(message))


@pytest.mark.parametrize("result", [200, 2_000, 8_000])
@pytest.mark.parametrize("bytes_a_token", [1.5, 3, 4.5])
@pytest.mark.table(3)
def test_long_turn_fits_its_model_and_seldom_sends_another_beginning(
    bytes_a_token: float, result: int
) -> None:
    """The number of bytes per token does not matter, because the provider's counts correct the
    estimate: 300 steps with a window of 100,000 tokens.
    """
    window, cut, gaps = 100_000, Cut(), [0]
    messages: tuple[Message, ...] = (UserMessage.of("w" * 9_000),)
    estimate = estimate_of(messages).on(6_000)
    for number in range(300):
        before, cut = cut, cut_for(messages, cut, estimate, window) or pytest.fail("it fits")
        gaps = [*gaps, 0] if cut != before else [*gaps[:-1], gaps[-1] + 1]
        counted = int((6_000 + bytes_of(sent(messages, cut))) / bytes_a_token)
        assert counted <= window
        estimate = estimate.counted(counted, cut.tokens)
        call = ToolCall(id=f"c{number}", name="read", arguments='{"page": 7}')
        more: tuple[Message, ...] = (
            AssistantMessage(parts=(Text(text="w" * 400), call)),
            ToolMessage.of(call, "r" * result),
        )
        messages, estimate = (*messages, *more), reduce(Estimate.plus, more, estimate)

    steps_in_30_percent = 0.3 * window / ((400 + 15 + result) / bytes_a_token)
    assert min(gaps[1:-1], default=300) >= 0.6 * steps_in_30_percent
    assert min(gaps[1:-1], default=300) >= 3


# --- what is reported


def result_of(content: str, name: str = "read") -> ToolMessage:
    return ToolMessage(
        results=(ToolResult(call_id="c1", name=name, content=content, is_error=True),)
    )


@pytest.mark.parametrize(
    ("content", "name", "note"),
    [
        ("x" * 5_120, "read", "[result of read, 5 KB, left out]"),
        ("ä" * 5_000, "read", "[result of read, 10 KB, left out]"),
        ("x" * 400, "read", "[result of read, 400 bytes, left out]"),
        ("x" * 999_499, "read", "[result of read, 999 KB, left out]"),
        ("x" * 1_240_000, "read", "[result of read, 1.2 MB, left out]"),
        ("x" * 5_120, "n" * 5_000, f"[result of {'n' * 64}, 5 KB, left out]"),
        (
            "hardly longer than a note".ljust(70, "."),
            "read",
            "hardly longer than a note".ljust(70, "."),
        ),
        ("", "read", ""),
    ],
)
def test_note_names_the_tool_and_the_size(content: str, name: str, note: str) -> None:
    """The call's id and its error status are kept. A short result is not replaced, and neither is a
    note.
    """
    asked = AssistantMessage(parts=(ToolCall(id="c1", name=name),))
    once = sent((asked, result_of(content, name)), Cut(results=2))

    assert once == (asked, result_of(note, name))
    assert sent(once, Cut(results=2)) == once


@pytest.mark.parametrize(
    ("letters", "cut", "expected", "words"),
    [
        ("uatatat", Cut(), None, ""),
        ("uatatat", Cut(results=3), LeftOut(results=1, bytes=LONG), "1 tool result, 4 KB"),
        ("uatatat", Cut(results=5), LeftOut(results=2, bytes=2 * LONG), "2 tool results, 7 KB"),
        (
            "uatatat",
            Cut(results=5, steps=3),
            LeftOut(results=1, steps=1, bytes=2 * LONG + SHORT + 6),
            "1 tool result and 1 step, 8 KB",
        ),
        ("uauauat", Cut(steps=5), LeftOut(steps=2, bytes=4 * SHORT), "2 steps, 4 KB"),
        ("uauuuat", Cut(steps=3, opening=4), LeftOut(steps=1, bytes=3 * SHORT), "1 step, 3 KB"),
        ("uuu", Cut(steps=2, opening=2), LeftOut(bytes=2 * SHORT), "what was said before, 2 KB"),
    ],
)
def test_step_says_what_was_left_out(
    letters: str, cut: Cut, expected: LeftOut | None, words: str
) -> None:
    """The step has numbers for programs and a text for people; messages that stay are not
    counted.
    """
    found = left_out(transcript(letters), cut)

    assert found == expected
    assert (str(found) if found else "") == words


@in_its_own_time
@given(TURNS)
def test_bytes_that_were_left_out_are_those_that_were_not_sent(turn: Played) -> None:
    """Except for the notes, which replaced them."""
    for one in turn.answered:
        assert one.cut is not None
        said = left_out(one.messages, one.cut) or LeftOut()
        missing = [
            message for message in one.messages if not any(message is other for other in one.view)
        ]
        notes = [m for m in one.view if not any(m is other for other in one.messages)]
        assert (
            said.bytes
            >= bytes_of(one.messages) - bytes_of(one.view)
            >= said.bytes - said.results * 40
        )
        assert said.steps == sum(isinstance(message, AssistantMessage) for message in missing)
        assert said.results <= sum(len(parts(message)) for message in notes)


def test_call_without_a_cut_is_written_as_before() -> None:
    """History has no new field; a record of an older worker is read as a call with the whole
    transcript.
    """
    plain = ModelCall.of("d" * 64, max_output_tokens=7)
    cut = plain.model_copy(update={"cut": Cut(results=7, opening=2, tokens=900)})

    assert b"cut" not in pack(plain).payload.data
    assert b'"cut":{"results":7,"opening":2,"tokens":900}' in pack(cut).payload.data
    assert [unpack(pack(call), ModelCall) for call in (plain, cut)] == [plain, cut]


@pytest.mark.accepts("Y49")
def test_most_input_of_a_shortened_request_is_known_without_reading_it_again() -> None:
    """While the cut is the same, the messages before it are not read for the next call."""
    messages, cut = transcript("uatatatatat"), Cut(results=7, steps=3)

    asked = count_of(messages).on(100).asked_with(cut, messages)
    longer = (*messages, *transcript("at"))
    grown = reduce(with_message, longer[len(messages) :], asked)

    assert grown.most_input("m", cut, ()) == 100 + sum(map(bound, sent(longer, cut)))
    other = Cut(results=5)
    assert grown.most_input("m", other, longer) == 100 + sum(map(bound, sent(longer, other)))
    assert grown.most_input("m", Cut(), ()) == 100 + sum(map(bound, longer))


def count_of(messages: Sequence[Message]) -> TokenCount:
    """As the fold keeps it."""
    return reduce(with_message, messages, TokenCount())


def with_message(count: TokenCount, message: Message) -> TokenCount:
    return count.plus(message, len(canonical(message)))
