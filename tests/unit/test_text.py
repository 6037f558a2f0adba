"""Text at the boundary: cleaned, measured, cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import text

ANY_TEXT = st.text(st.characters())


def test_lone_surrogate_is_replaced() -> None:
    """No encoder on the way to history accepts one; pairs, NUL and everything else stay as they are."""
    assert text.clean("a\ud800b\udfffc \U0001f600 \0 é") == "a?b?c \U0001f600 \0 é"


@given(ANY_TEXT)
def test_clean_text_can_be_encoded_and_cleaning_it_again_changes_nothing(given_text: str) -> None:
    """Whatever comes in."""
    cleaned = text.clean(given_text)

    assert cleaned == text.clean(cleaned)
    assert text.size(cleaned) == len(cleaned.encode())


@pytest.mark.accepts("T13")
def test_text_that_fits_is_not_clipped() -> None:
    """Up to the limit, counted in bytes."""
    assert text.clip("é" * 50, 100) == "é" * 50


@pytest.mark.accepts("T13")
def test_clipped_text_says_both_sizes() -> None:
    """How much is left, and how much there was; the note itself fits into the limit."""
    clipped = text.clip("x" * 1000, 100)

    assert clipped == "x" * 71 + "\n[clipped: 71 of 1000 bytes]"


@pytest.mark.accepts("T13")
@given(ANY_TEXT, st.integers(min_value=0, max_value=200))
def test_clipped_text_never_exceeds_its_limit(given_text: str, max_bytes: int) -> None:
    """For any text and any limit, also one too small for the note."""
    clipped = text.clip(given_text, max_bytes)

    assert text.size(clipped) <= max_bytes


@pytest.mark.accepts("T13")
@given(ANY_TEXT, st.integers(min_value=40, max_value=200))
def test_what_clipping_keeps_is_the_beginning_of_the_text(given_text: str, max_bytes: int) -> None:
    """Where there is room for the note, it is whole, its first number is what is kept, and what is kept is the beginning."""
    whole = text.clean(given_text) + "x" * 201
    kept, _, note = text.clip(whole, max_bytes).rpartition("\n")

    assert whole.startswith(kept)
    assert note == f"[clipped: {text.size(kept)} of {text.size(whole)} bytes]"


@given(ANY_TEXT, st.integers(min_value=0, max_value=60))
def test_head_is_the_longest_beginning_without_half_a_character(given_text: str, max_bytes: int) -> None:
    """One character more would not fit."""
    cleaned = text.clean(given_text)
    kept = text.head(given_text, max_bytes)

    assert cleaned.startswith(kept)
    assert text.size(kept) <= max_bytes
    assert kept == cleaned or text.size(cleaned[: len(kept) + 1]) > max_bytes


def test_one_line_has_no_breaks_and_ends_with_an_ellipsis_where_it_is_cut() -> None:
    """For lists and summaries."""
    assert [text.one_line("a\n\tb  c\r\n", 10), text.one_line("0123456789", 10), text.one_line("0123456789x", 10)] == [
        "a b c",
        "0123456789",
        "012345678…",
    ]


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("two\nlines\tand\u00a0a\u3000space", "two lines and a space"),
        ("\x1b[2Jgone", "\\u001b[2Jgone"),
        ("a\x07b\x9bc\u202etxt.exe\u2066d", "a\\u0007b\\u009bc\\u202etxt.exe\\u2066d"),
        ("👩\u200d💻 и 漢字", "👩\u200d💻 и 漢字"),
    ],
)
def test_line_of_a_list_moves_no_cursor(said: str, line: str) -> None:
    """Nor does it turn what stands behind it; letters that are joined stay so."""
    assert text.one_line(said, 100) == line
