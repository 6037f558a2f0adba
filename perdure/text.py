"""Strings at the boundary.

Measured, cut with a note of what was cut, and escaped for each place where they are shown.

Foreign text is whatever a model, a tool, a server or a caller wrote. It leaves Perdure for a person
through these functions and no others:

| destination | function |
|---|---|
| prose in one line of a terminal, a list or an error | `harmless`, `one_line` |
| prose in several lines of a terminal | `harmless_lines` |
| a name or an id, in a line with other things | `word` |
| a line of a log, JSON on a terminal | `exact` |
| the arguments of a call, for approval too | `arguments_exactly`, `arguments_indented`, `arguments_in_brief` |
| Markdown in Temporal's web UI | `markdown`, `markdown_of_arguments` |
| the description of a tool, for a model | `stripped` |

Secrets are cut out of errors and results by `perdure.temporal.secrets.without`.
"""

import itertools
import json
import re
from typing import Any

from pydantic_core import to_json

_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's `Default_Ignorable_Code_Point`, which `str.isprintable` does not know."""
_BLANK = "\u2800\U00016fe4\U0001d159"
"""Characters with an empty glyph that are not default-ignorable."""
_UNSEEN = re.compile(f"[{_IGNORABLE}{_BLANK}]")
_JOINERS = "\u200c\u200d"
_FORMS = "\ufe0e\ufe0f"
_KEYCAP = "\u20e3"
_NOT_JSON = " (cannot be read as JSON)"
_UNREADABLE = (
    ValueError,
    RecursionError,
)  # reading and writing reach Python's limit at different depths
CUT = "… ("
"""After a value that `arguments_in_brief` has cut; its length follows."""
_BRIEF = 60
_LONGEST_BRIEF = 2_000
_MARKED = frozenset("\\`*_[]<>|#&~")
_FIRST_MARK = re.compile(r"^(\d*)([-+=.)])")
_SPACES = re.compile("  +")
_SLICE = 100_000


def clean(text: str) -> str:
    """Replace lone surrogates, which no encoder on the way to history accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


def size(text: str) -> int:
    """Bytes of UTF-8, counted in slices: a copy of a huge string would hold up all other threads."""
    if text.isascii():
        return len(text)
    return sum(
        len(text[start : start + _SLICE].encode("utf-8", "replace"))
        for start in range(0, len(text), _SLICE)
    )


def in_units(bytes_: int) -> str:
    """An amount of bytes as a person says it: 312 bytes, 5 KB, 1.2 MB."""
    if bytes_ < 1_000:
        return f"{bytes_} byte{'' if bytes_ == 1 else 's'}"
    return f"{round(bytes_ / 1_000)} KB" if bytes_ < 999_500 else f"{bytes_ / 1_000_000:.1f} MB"


def head(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` that fits, never half a character."""
    return text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def tail(text: str, max_bytes: int) -> str:
    """The longest end of `text` that fits, never half a character."""
    return text[-max_bytes:].encode("utf-8", "replace")[-max_bytes:].decode("utf-8", "ignore")


def clip(text: str, max_bytes: int) -> str:
    """`text`, or its beginning with a note of both sizes, in at most `max_bytes` bytes of UTF-8."""
    total = size(text)
    if total <= max_bytes:
        return text
    reserve = size(_note(max_bytes, total))
    kept = head(text, max(0, max_bytes - reserve))
    return head(kept + _note(size(kept), total), max_bytes)


def clip_recorded(text: str, max_bytes: int) -> str:
    """The same for text that history holds as JSON, which is to be at most twice as long.

    JSON writes most control characters as six, so a result of such characters would weigh six times
    what it may. The text is cut before it is cleaned, because each step on a huge string holds up
    all other threads.
    """
    clipped = clean(clip(text, max_bytes))
    if len(to_json(clipped)) - len('""') <= 2 * max_bytes:
        return clipped
    total = size(text)
    room = max_bytes - size(_note(max_bytes, total))
    lengths = itertools.accumulate(len(to_json(letter)) - len('""') for letter in clipped)
    kept = head(
        clipped[: sum(1 for _ in itertools.takewhile(lambda length: length <= 2 * room, lengths))],
        room,
    )
    return kept + _note(size(kept), total)


def _note(kept: int, total: int) -> str:
    return f"\n[clipped: {kept} of {total} bytes]"


def described(error: BaseException) -> str:
    """The class and the words of an exception, also of one that cannot say its words."""
    return f"{type(error).__name__}: {words_of(error) or 'no message'}"


def words_of(value: object) -> str:
    """What `str` gives; nothing where it raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a __str__ of the user's is broken, or the value is too deep or too large
        return ""


def exact(text: str) -> str:
    """`text` with an escape in place of every character that cannot be seen, moves the cursor or turns the direction of writing.

    Inside JSON the escapes keep the value.
    """
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(letter if _is_seen(letter) else _escaped(letter) for letter in text)


def harmless(text: str) -> str:
    """The same for prose, in which emoji and the scripts that need joiners stay readable.

    A single joiner between two visible characters outside ASCII is kept, and so is a single
    variation selector for emoji after one.
    """
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(
        letter if _is_seen(letter) or _is_form(text, place) else _escaped(letter)
        for place, letter in enumerate(text)
    )


def harmless_lines(text: str) -> str:
    """The same for a text that keeps its line breaks and tabs."""
    return "".join(
        piece if piece in "\n\t" else harmless(piece) for piece in re.split("([\n\t])", text)
    )


def stripped(text: str) -> str:
    """`text` without the characters that `harmless` escapes, except line breaks and tabs."""
    text = text.replace("\r\n", "\n")
    return "".join(
        letter
        for place, letter in enumerate(text)
        if letter in "\n\t" or _is_seen(letter) or _is_form(text, place)
    )


def one_line(text: str, max_characters: int) -> str:
    """`text` as one harmless line for a list or a summary."""
    line = harmless(" ".join(text.split()))
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"


def word(text: str) -> str:
    """A name or an id as one word: quoted as JSON where it could pass for something else."""
    is_plain = text.isprintable() and not any(letter.isspace() or letter in '"=' for letter in text)
    return text if text and is_plain and not _UNSEEN.search(text) else quoted(text)


def quoted(text: str) -> str:
    """`text` as a JSON string of which every character can be seen."""
    return exact(json.dumps(text, ensure_ascii=False))


def arguments_exactly(arguments: str) -> str:
    """The JSON arguments of a call in one line, whole.

    Strings and names are quoted, numbers are as they were written.

    Spaces after a space are escaped, because browsers and MCP clients show a run of spaces as one.
    """
    return _in_one_line(_whole(arguments, ""))


def arguments_indented(arguments: str) -> str:
    """The same with a line for each value."""
    return _whole(arguments, "\n")


def arguments_in_brief(arguments: str) -> str:
    """The same in one line in which long values are cut, each with `CUT` and a note of its length.

    Every name is shown.

    Arguments with so many names that they are no line any more are replaced by a note of how many
    there are.
    """
    try:
        values = _read(arguments)
    except _UNREADABLE:
        return _in_one_line(f"{_written(_cut(arguments))}{_NOT_JSON}")
    if not isinstance(values, dict):
        return _in_one_line(_written(_cut(values)))
    line = ""
    for name, value in values.items():
        line += f"{', ' if line else ''}{_written(_cut(name))}: {_written(_cut(value))}"
        if len(line) > _LONGEST_BRIEF:
            return f"{{}}{CUT}{len(values)} fields, {len(arguments)} characters)"
    return _in_one_line(f"{{{line}}}")


def markdown(text: str) -> str:
    """A line that Markdown shows as it is.

    The web UI draws formulas between dollar signs, so those are spelled out.
    """
    marked = "".join(
        f"\\{letter}" if letter in _MARKED else letter for letter in text.replace("$", "USD ")
    )
    return _FIRST_MARK.sub(r"\1\\\2", marked)


def markdown_of_arguments(written: str) -> str:
    """The same for JSON by `arguments_exactly` or `arguments_in_brief`, in which a dollar sign keeps its value as an escape."""
    return markdown(written.replace("$", "\\u0024"))


class _Raw(str):
    """A part of JSON that is shown as it is written: a number, or a value that was cut."""

    __slots__ = ()


def _read(arguments: str) -> Any:
    """The arguments as values; numbers stay as they are written, so that no digit is lost."""
    return json.loads(arguments, parse_int=_Raw, parse_float=_Raw, parse_constant=_Raw)


def _whole(arguments: str, line: str) -> str:
    try:
        return _written(_read(arguments), line)
    except _UNREADABLE:
        return quoted(arguments) + _NOT_JSON


def _in_one_line(written: str) -> str:
    return _SPACES.sub(lambda found: " " + "\\u0020" * (len(found[0]) - 1), written)


def _written(value: Any, line: str = "") -> str:
    """JSON of which every character can be seen.

    `line` is the line break and indent before the value's end; without it all is one line.
    """
    if isinstance(value, str):
        return str(value) if isinstance(value, _Raw) else quoted(value)
    if not isinstance(value, dict | list):
        return json.dumps(value)
    inner = line and f"{line}  "
    if isinstance(value, dict):
        parts = [f"{_written(name)}: {_written(one, inner)}" for name, one in value.items()]
    else:
        parts = [_written(one, inner) for one in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return (
        f"{first}{inner}{(',' + (inner or ' ')).join(parts)}{line}{last}" if parts else first + last
    )


def _cut(value: Any) -> Any:
    """A value, or its beginning with a note of its length outside of any quotes."""
    if _left(value, _BRIEF) >= 0:
        return value
    if isinstance(value, str):
        kept = value[:_BRIEF] if isinstance(value, _Raw) else quoted(value[:_BRIEF])
        return _Raw(f"{kept}{CUT}{len(value)} characters)")
    return _Raw(
        f"{{}}{CUT}{len(value)} fields)"
        if isinstance(value, dict)
        else f"[]{CUT}{len(value)} items)"
    )


def _left(value: Any, room: int) -> int:
    """What is left of a room of so many characters when a value is in it.

    Less than 0 where it has no room.
    """
    if isinstance(value, str):
        return room - len(value)
    if not isinstance(value, dict | list):
        return room - len("false")
    for one in itertools.chain.from_iterable(value.items()) if isinstance(value, dict) else value:
        room = _left(one, room - len(", "))
        if room < 0:
            break
    return room


def _is_seen(letter: str) -> bool:
    return letter.isprintable() and not _UNSEEN.match(letter)


def _is_form(text: str, place: int) -> bool:
    """Whether the character here only chooses how its neighbours are drawn, as in emoji, Persian and Hindi."""
    letter, before, after = text[place], text[place - 1 : place], text[place + 1 : place + 2]
    if letter in _FORMS:
        return _is_drawn(before) or after == _KEYCAP
    if before and before in _FORMS:
        before = text[place - 2 : place - 1]
    return letter in _JOINERS and _is_drawn(before) and _is_drawn(after)


def _is_drawn(letter: str) -> bool:
    return letter > "\x7f" and _is_seen(letter)


def _escaped(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else json.dumps(letter)[1:-1]
