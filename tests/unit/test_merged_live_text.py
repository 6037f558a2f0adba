"""Live text merged from recorded answers and streamed pieces: in the end it equals the recorded
text.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import AssistantMessage, Task, Text, errors
from perdure.clients.reading.live_output import Heard
from perdure.clients.reading.live_text import Piece, Speech, TextBegins, TextVoid
from perdure.turn.facts import CallFailed, Fact, ModelAnswered, Scheduled, TurnEnded, TurnStarted
from perdure.turn.keys import AgentKey, ModelKey, ToolKey
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.reports import Outcome

from ..support.clerk import in_its_own_time

ONE, AGAIN, TWO = ModelKey(1), ModelKey(1, 2), ModelKey(2)
STARTED = TurnStarted(TurnRequest(agent="a", task=Task(content="t"), live=True))


def answered(key: ModelKey, text: str) -> ModelAnswered:
    return ModelAnswered(
        key, ModelAnswer(message=AssistantMessage(parts=(Text(text=text),) if text else ()))
    )


def failed(key: ModelKey) -> CallFailed:
    return CallFailed(key, errors.LLMUnavailableError().info())


def told(*news: Fact | Heard) -> list[Piece]:
    """The text delivered for this sequence of events."""
    speech = Speech()
    return [
        said
        for one in (STARTED, *news)
        for said in (speech.hear(one) if isinstance(one, Heard) else speech.see(one))
    ]


@pytest.mark.parametrize(
    ("news", "said"),
    [
        ([Scheduled(ONE), answered(ONE, "hello")], [TextBegins(1), "hello"]),
        (
            [Scheduled(ONE), answered(ONE, ""), Scheduled(TWO), answered(TWO, "hello")],
            [TextBegins(2), "hello"],
        ),
        (
            [Scheduled(ONE), Heard(ONE, 0, "he"), Heard(ONE, 0, "hell"), answered(ONE, "hello")],
            [TextBegins(1), "he", "ll", "o"],
        ),
        (
            [Scheduled(ONE), Heard(ONE, 0, "hello"), answered(ONE, "hello")],
            [TextBegins(1), "hello"],
        ),
        (
            [Scheduled(ONE), Heard(ONE, 0, "he"), Heard(ONE, 1, "el"), answered(ONE, "hello")],
            [TextBegins(1), "he", "l", "lo"],
        ),
        (
            [
                Scheduled(ONE),
                Heard(ONE, 0, "he"),
                Heard(ONE, 3, "l"),
                Heard(ONE, 4, "o"),
                answered(ONE, "hello"),
            ],
            [TextBegins(1), "he", "llo"],
        ),
        ([Scheduled(ONE), Heard(ONE, 2, "llo"), answered(ONE, "hello")], [TextBegins(1), "hello"]),
        (
            [Scheduled(ONE), Heard(ONE, 0, "hell"), Heard(ONE, 0, "he"), answered(ONE, "hello")],
            [TextBegins(1), "hell", "o"],
        ),
        (
            [Heard(ONE, 0, "he"), Scheduled(ONE), answered(ONE, "hello"), Heard(ONE, 0, "hello")],
            [TextBegins(1), "hello"],
        ),
        ([Scheduled(ONE), Heard(TWO, 0, "he"), answered(ONE, "hello")], [TextBegins(1), "hello"]),
        (
            [Scheduled(ONE), Heard(ONE, 0, "Ha"), answered(ONE, "hello")],
            [TextBegins(1), "Ha", TextVoid(1), TextBegins(1), "hello"],
        ),
        (
            [Scheduled(ONE), Heard(ONE, 0, "hello"), answered(ONE, "hell")],
            [TextBegins(1), "hello", TextVoid(1), TextBegins(1), "hell"],
        ),
        (
            [Scheduled(ONE), Heard(ONE, 0, "Ha"), answered(ONE, "")],
            [TextBegins(1), "Ha", TextVoid(1)],
        ),
        ([Scheduled(ONE), failed(ONE)], []),
        (
            [
                Scheduled(ONE),
                Heard(ONE, 0, "he"),
                failed(ONE),
                Heard(ONE, 0, "hell"),
                Scheduled(AGAIN),
                Heard(AGAIN, 0, "hi"),
                answered(AGAIN, "hi!"),
            ],
            [TextBegins(1), "he", TextVoid(1), TextBegins(1, attempt=2), "hi", "!"],
        ),
        (
            [Scheduled(ONE), Heard(ONE, 0, "he"), TurnEnded(Outcome.TERMINATED)],
            [TextBegins(1), "he", TextVoid(1)],
        ),
        (
            [
                Scheduled(ONE),
                Heard(ONE, 0, "he"),
                Scheduled(ModelKey(1, is_last=True)),
                answered(ONE, "hello"),
                answered(ModelKey(1, is_last=True), "so far"),
            ],
            [TextBegins(1), "he", TextVoid(1), TextBegins(1), "so far"],
        ),
        (
            [Scheduled(ONE), Scheduled(ToolKey(1, 1)), answered(ONE, "hello")],
            [TextBegins(1), "hello"],
        ),
    ],
)
def test_what_is_told_is_what_is_recorded_in_the_end(
    news: list[Fact | Heard], said: list[Piece]
) -> None:
    """Word by word; with gaps, which the record fills; late, early and repeated; text that failed,
    was given up or differs is void.
    """
    assert told(*news) == said


def test_nothing_is_listened_for_outside_of_a_model_call_or_a_live_turn() -> None:
    """Every poll is a request to the server."""
    speech, silent = Speech(), Speech()
    on = [speech.key is not None]
    for fact in (
        STARTED,
        Scheduled(AgentKey()),
        Scheduled(ONE),
        answered(ONE, "hi"),
        Scheduled(ToolKey(1, 1)),
        Scheduled(TWO),
        failed(TWO),
    ):
        list(speech.see(fact))
        on.append(speech.key is not None)
    for fact in (TurnStarted(TurnRequest(agent="a", task=Task(content="t"))), Scheduled(ONE)):
        list(silent.see(fact))

    assert on == [False, False, False, True, False, False, True, False]
    assert silent.key is None


@in_its_own_time
@given(
    st.text(max_size=30),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8),
    st.booleans(),
)
def test_whatever_was_heard_the_text_is_told_once(
    text: str, ears: list[tuple[int, int]], is_same: bool
) -> None:
    """Any parts of it in any order, or of another text."""
    source = text if is_same else text[::-1] + "x"
    heard = [
        Heard(ONE, min(begin, len(source)), source[begin : begin + length])
        for begin, length in ears
    ]

    said = told(Scheduled(ONE), *heard, answered(ONE, text))

    since = max((place for place, one in enumerate(said) if not isinstance(one, str)), default=0)
    assert "".join(one for one in said[since:] if isinstance(one, str)) == text
    assert not is_same or TextVoid(1) not in said
