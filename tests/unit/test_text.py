"""Text from outside: cleaning, measuring and truncating."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import text

ANY_TEXT = st.text(st.characters())


def test_lone_surrogate_is_replaced() -> None:
    """No encoder accepts one; pairs, NUL and everything else are unchanged."""
    assert text.clean("a\ud800b\udfffc \U0001f600 \0 é") == "a?b?c \U0001f600 \0 é"


@given(ANY_TEXT)
def test_clean_text_can_be_encoded_and_cleaning_it_again_changes_nothing(given_text: str) -> None:
    """For any input."""
    cleaned = text.clean(given_text)

    assert cleaned == text.clean(cleaned)
    assert text.size(cleaned) == len(cleaned.encode())


@pytest.mark.accepts("T13")
def test_text_that_fits_is_not_clipped() -> None:
    """Up to the limit, in bytes."""
    assert text.clip("é" * 50, 100) == "é" * 50


@pytest.mark.accepts("T13")
def test_clipped_text_says_both_sizes() -> None:
    """The remaining and the original size; the note itself fits into the limit."""
    clipped = text.clip("x" * 1000, 100)

    assert clipped == "x" * 71 + "\n[clipped: 71 of 1000 bytes]"


@pytest.mark.accepts("T13")
@given(ANY_TEXT, st.integers(min_value=0, max_value=200))
def test_clipped_text_never_exceeds_its_limit(given_text: str, max_bytes: int) -> None:
    """For any text and any limit, even one that is too small for the note."""
    clipped = text.clip(given_text, max_bytes)

    assert text.size(clipped) <= max_bytes


@pytest.mark.accepts("T13")
@given(st.text('\0\x1b\n"xé漢', max_size=300), st.integers(min_value=50, max_value=200))
def test_clipped_text_that_is_recorded_is_at_most_twice_as_long_as_json(
    given_text: str, max_bytes: int
) -> None:
    """Control characters count with their JSON encoding; other text is truncated as elsewhere."""
    clipped = text.clip_recorded(given_text, max_bytes)
    kept, _, note = clipped.rpartition("\n")
    plain = given_text.replace("\0", "").replace("\x1b", "")

    assert text.size(clipped) <= max_bytes
    assert len(json.dumps(clipped, ensure_ascii=False).encode()) <= 2 * max_bytes + len('""')
    assert (
        clipped == given_text
        or note == f"[clipped: {text.size(kept)} of {text.size(given_text)} bytes]"
    )
    assert given_text.startswith(clipped if clipped == given_text else kept)
    assert text.clip_recorded(plain, max_bytes) == text.clip(plain, max_bytes)


@pytest.mark.accepts("T13")
def test_control_characters_are_clipped_by_what_they_weigh() -> None:
    """Of a thousand that JSON encodes in six bytes each, 23 fit into 200 bytes of JSON, with the
    note.
    """
    assert text.clip_recorded("\0" * 1000, 100) == "\0" * 23 + "\n[clipped: 23 of 1000 bytes]"


@pytest.mark.accepts("T13")
@given(ANY_TEXT, st.integers(min_value=40, max_value=200))
def test_what_clipping_keeps_is_the_beginning_of_the_text(given_text: str, max_bytes: int) -> None:
    """If the note fits, it is complete, its first number is the kept size, and the kept part is the
    beginning.
    """
    whole = text.clean(given_text) + "x" * 201
    kept, _, note = text.clip(whole, max_bytes).rpartition("\n")

    assert whole.startswith(kept)
    assert note == f"[clipped: {text.size(kept)} of {text.size(whole)} bytes]"


@given(ANY_TEXT, st.integers(min_value=0, max_value=60))
def test_head_is_the_longest_beginning_without_half_a_character(
    given_text: str, max_bytes: int
) -> None:
    """One more character would not fit."""
    cleaned = text.clean(given_text)
    kept = text.head(given_text, max_bytes)

    assert cleaned.startswith(kept)
    assert text.size(kept) <= max_bytes
    assert kept == cleaned or text.size(cleaned[: len(kept) + 1]) > max_bytes


def test_one_line_has_no_breaks_and_ends_with_an_ellipsis_where_it_is_cut() -> None:
    """For lists and summaries."""
    assert [
        text.one_line("a\n\tb  c\r\n", 10),
        text.one_line("0123456789", 10),
        text.one_line("0123456789x", 10),
    ] == ["a b c", "0123456789", "012345678…"]


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
    """It does not change the direction of later text either; joined characters stay joined."""
    assert text.one_line(said, 100) == line


IGNORABLE = [
    *(
        0x00AD,
        0x034F,
        0x061C,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        *range(0x180B, 0x1810),
        *range(0x200B, 0x2010),
    ),
    *(
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        0x3164,
        *range(0xFE00, 0xFE10),
        0xFEFF,
        0xFFA0,
        *range(0xFFF0, 0xFFF9),
    ),
    *(*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
]
"""Every code point with `Default_Ignorable_Code_Point` in Unicode's DerivedCoreProperties.txt."""
PASS_FOR_PRINTABLE = [code for code in IGNORABLE if chr(code).isprintable()]
ARGUMENTS = '{"ticket": "2, euros=3, note=small one", "euros": 3000}'


@pytest.mark.accepts("G8")
def test_every_character_that_cannot_be_seen_is_escaped() -> None:
    """All 4,174 that Unicode calls ignorable, including 267 that Python calls printable, and those
    with an empty glyph.
    """
    unseen = [
        *map(chr, IGNORABLE),
        "\u2800",
        "\U00016fe4",
        "\U0001d159",
        "\x1b",
        "\x9b",
        "\u3000",
        "\u00a0",
        "\ue000",
    ]

    assert (len(IGNORABLE), len(PASS_FOR_PRINTABLE) >= 267) == (4174, True)
    assert [
        letter
        for letter in unseen
        if letter in text.exact(letter) or not text.exact(letter).isascii()
    ] == []
    assert [
        letter
        for letter in unseen
        if letter in text.arguments_exactly(json.dumps({"a": letter}, ensure_ascii=False))
    ] == []
    assert [
        letter
        for letter in unseen
        if letter in text.harmless(f"a{letter}b") or letter in text.stripped(f"a{letter}b")
    ] == []


@pytest.mark.accepts("G8")
@given(st.dictionaries(ANY_TEXT, ANY_TEXT | st.integers() | st.lists(ANY_TEXT)))
def test_arguments_that_are_shown_read_back_as_they_are(given_values: dict[str, object]) -> None:
    """On one line and on several; each line has only visible characters."""
    arguments = json.dumps(given_values)
    line, lines = text.arguments_exactly(arguments), text.arguments_indented(arguments)

    assert json.loads(line) == json.loads(lines) == json.loads(arguments)
    assert text.exact(line) == line
    assert "  " not in line
    assert text.exact(lines.replace("\n", "")) == lines.replace("\n", "")


@pytest.mark.accepts("G8")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (ARGUMENTS, ARGUMENTS),
        ('{"a":  "x   y"}', '{"a": "x \\u0020\\u0020y"}'),
        (
            '{"euros": 1.00000000000000000001, "big": 1e400}',
            '{"euros": 1.00000000000000000001, "big": 1e400}',
        ),
        ("", '"" (cannot be read as JSON)'),
        ('{"euros": 3', '"{\\"euros\\": 3" (cannot be read as JSON)'),
        ("[1, null, true, {}]", "[1, null, true, {}]"),
    ],
)
def test_arguments_are_shown_as_they_run(arguments: str, shown: str) -> None:
    """No field can look like another one, no digit is lost, and invalid JSON is quoted."""
    assert text.arguments_exactly(arguments) == shown
    assert text.arguments_in_brief(arguments) == shown


@pytest.mark.accepts("G8")
def test_long_values_are_cut_with_their_length_and_every_name_is_shown() -> None:
    """The notes are outside of the quotes, so that no value can imitate one."""
    arguments = json.dumps(
        {
            "note": "x" * 80 + '"… (1 characters)',
            "items": [1] * 90,
            "more": {"a": "y" * 90},
            "n" * 70: 1,
            "n" * 70 + "m": 2,
            "euros": 3000,
        }
    )

    assert (
        text.arguments_in_brief(arguments)
        == f'{{"note": "{"x" * 60}"… (97 characters), "items": []… (90 items), "more": {{}}… (1'
        f' fields), "{"n" * 60}"… (70 characters): 1, "{"n" * 60}"… (71 characters): 2, "euros":'
        " 3000}"
    )
    assert text.arguments_in_brief(
        json.dumps({f"name {number}": number for number in range(1000)})
    ).startswith("{}… (1000 fields, ")


@pytest.mark.parametrize("depth", [100, 5_000, 200_000])
def test_arguments_of_any_depth_are_shown(depth: int) -> None:
    """Beyond Python's recursion limit, they are quoted as written."""
    arguments = '{"a": ' + "[" * depth + "]" * depth + "}"

    assert len(text.arguments_exactly(arguments)) >= len(arguments)
    assert text.CUT in text.arguments_in_brief(arguments)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("👩\u200d💻 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3", "👩\u200d💻 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3"),
        ("می\u200cخواهم क्\u200dष", "می\u200cخواهم क्\u200dष"),
        ("a\u200db", "a\\u200db"),
        ("漢\u200d\u200d漢\ufe0f\ufe0f", "漢\\u200d\\u200d漢\ufe0f\\ufe0f"),
        ("\u200d\ufe0f", "\\u200d\\ufe0f"),
    ],
)
def test_prose_keeps_the_joiners_that_draw_something(said: str, shown: str) -> None:
    """One between two characters, as emoji, Persian and Hindi need it; more of them are hidden
    text.
    """
    assert text.harmless(said) == shown
    assert text.exact(said).isascii() or "\u200d" not in text.exact(said)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("call_1_1", "call_1_1"),
        ("größe", "größe"),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ("", '""'),
        ("x\u3164y", '"x\\u3164y"'),
        ('t wants "x"', '"t wants \\"x\\""'),
    ],
)
def test_name_that_could_pass_for_more_is_quoted(said: str, shown: str) -> None:
    """In a line with other names."""
    assert text.word(said) == shown


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "[Approve](http://evil.invalid) *now* &lt; $5",
            r"\[Approve\](http://evil.invalid) \*now\* \&lt; USD 5",
        ),
        ("# title", r"\# title"),
        ("- one", r"\- one"),
        ("1. one", r"1\. one"),
        ("~~no~~ a-b", r"\~\~no\~\~ a-b"),
    ],
)
def test_markdown_shows_a_line_as_it_is(said: str, shown: str) -> None:
    """No link, no list, no entity that becomes a quote."""
    assert text.markdown(said) == shown


def test_dollar_sign_of_an_argument_keeps_its_value_in_markdown() -> None:
    """Spelled out it would be a different argument."""
    shown = text.markdown_of_arguments(text.arguments_exactly('{"price": "$5"}'))

    assert shown == r'{"price": "\\u00245"}'
    assert json.loads(shown.replace("\\\\", "\\")) == {"price": "$5"}


def test_description_is_stripped_of_what_cannot_be_seen() -> None:
    """Line breaks, tabs and emoji are kept."""
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")

    assert (
        text.stripped(f"Reads.\r\n\tA \x1b[31mfile\u202e{hidden} ❤\ufe0f")
        == "Reads.\n\tA [31mfile ❤\ufe0f"
    )


@pytest.mark.accepts("D60")
@pytest.mark.parametrize(
    ("usd", "words"),
    [
        ("0", "$0.00"),
        ("0E-9", "$0.00"),
        ("0.3", "$0.30"),
        ("0.0048", "$0.0048"),
        ("0.12345678", "$0.1235"),
        ("0.000012345", "$0.000012"),
        ("0.000000001", "$0.000000001"),
        ("0.99999", "$1.00"),
        ("1", "$1.00"),
        ("12.3456", "$12.35"),
        ("1E+3", "$1,000.00"),
    ],
)
def test_money_has_cents_and_more_digits_where_it_is_small(usd: str, words: str) -> None:
    """From a dollar on cents; below it four decimals at most, or two digits of what is less."""
    assert text.money(Decimal(usd)) == words


@pytest.mark.accepts("D60")
def test_one_thing_is_singular() -> None:
    """None and two are plural."""
    assert [text.counted(count, "step") for count in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
