"""Strings at the boundary: measuring, clipping, and escaping for each place where they are shown.

Foreign text is anything written by a model, a tool, a server or a caller. It is shown to people
only through these functions:

| destination | function |
|---|---|
| prose in one line of a terminal, a list or an error | `harmless`, `one_line` |
| prose in several lines of a terminal | `harmless_lines` |
| a name or an id, in a line with other things | `word` |
| a line of a log, JSON on a terminal | `exact` |
| the arguments of a call | `arguments_exactly`, `arguments_indented`, `arguments_in_brief` |
| Markdown in Temporal's web UI | `markdown`, `markdown_of_arguments` |
| the description of a tool, for a model | `stripped` |

`perdure.temporal.secrets.without` removes secrets from errors and results.
"""

import itertools
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's `Default_Ignorable_Code_Point`, which `str.isprintable` does not cover."""
_BLANK = "\u2800\U00016fe4\U0001d159"
"""Characters with an empty glyph that are not default-ignorable."""
_UNSEEN = re.compile(f"[{_IGNORABLE}{_BLANK}]")
_PLAIN_WORD = re.compile("[!#-<>-~]+")
"""Visible ASCII without `"` and `=`."""
_SEPARATORS = re.compile(r"[/\\]")
_CHANGED_IN_URLS = ("", ".", "..")
_JOINERS = "\u200c\u200d"
_FORMS = "\ufe0e\ufe0f"
_KEYCAP = "\u20e3"
_NOT_JSON = " (cannot be read as JSON)"
# parsing and writing reach Python's recursion limit at different depths
_UNREADABLE = (ValueError, RecursionError)
CUT = "… ("
"""Follows a value that `arguments_in_brief` has cut; its length comes next."""
_BRIEF = 60
_LONGEST_BRIEF = 2_000
_MARKED = frozenset("\\`*_[]<>|#&~")
_FIRST_MARK = re.compile(r"^(\d*)([-+=.)])")
_SPACES = re.compile("  +")
_SLICE = 100_000


def clean(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded into history."""
    return text.encode("utf-8", "replace").decode("utf-8")


def size(text: str) -> int:
    """Return the size in bytes of UTF-8, counted in slices so that other threads can run."""
    if text.isascii():
        return len(text)
    return sum(
        len(text[start : start + _SLICE].encode("utf-8", "replace"))
        for start in range(0, len(text), _SLICE)
    )


def counted(count: int, noun: str) -> str:
    """Format a number of things for people: 1 step, 2 steps."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def money(usd: Decimal) -> str:
    """Format US dollars for people: $12.35, $0.30, $0.0048, $0.000012.

    From a dollar on it has cents; below, four decimals, or two digits of a smaller amount.
    """
    decimals = 2 if usd >= 1 else max(4, 1 - usd.adjusted())
    dollars, _, part = f"{usd:,.{decimals}f}".partition(".")
    return f"${dollars}.{part.rstrip('0'):0<2}"


def in_units(bytes_: int) -> str:
    """Format a number of bytes for people: 312 bytes, 5 KB, 1.2 MB."""
    if bytes_ < 1_000:
        return counted(bytes_, "byte")
    return f"{round(bytes_ / 1_000)} KB" if bytes_ < 999_500 else f"{bytes_ / 1_000_000:.1f} MB"


def head(text: str, max_bytes: int) -> str:
    """Return the longest beginning of `text` that fits, without splitting a character."""
    return text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def tail(text: str, max_bytes: int) -> str:
    """Return the longest end of `text` that fits, without splitting a character."""
    return text[-max_bytes:].encode("utf-8", "replace")[-max_bytes:].decode("utf-8", "ignore")


def clip(text: str, max_bytes: int) -> str:
    """Return `text`, or its beginning and a note of both sizes, in at most `max_bytes` bytes."""
    total = size(text)
    if total <= max_bytes:
        return text
    reserve = size(_note(max_bytes, total))
    beginning = head(text, max(0, max_bytes - reserve))
    return head(beginning + _note(size(beginning), total), max_bytes)


def clip_recorded(text: str, max_bytes: int) -> str:
    """Clip text that is recorded as JSON, which may be at most twice as long.

    JSON writes most control characters as six, so a result of such characters would take six times
    its allowance. The text is clipped before it is cleaned, because each operation on a huge string
    blocks all other threads.
    """
    clipped = clean(clip(text, max_bytes))
    if len(to_json(clipped)) - len('""') <= 2 * max_bytes:
        return clipped
    total = size(text)
    room = max_bytes - size(_note(max_bytes, total))
    lengths = itertools.accumulate(len(to_json(letter)) - len('""') for letter in clipped)
    beginning = head(
        clipped[: sum(1 for _ in itertools.takewhile(lambda length: length <= 2 * room, lengths))],
        room,
    )
    return beginning + _note(size(beginning), total)


def clip_values(values: Mapping[str, JsonValue], max_bytes: int) -> dict[str, JsonValue]:
    """Return JSON values, or a note in their place if they are larger, or cannot be encoded."""
    try:
        fits = len(to_json(values)) <= max_bytes
    except PydanticSerializationError:
        fits = False
    return dict(values) if fits else {"context": "left out: too long, or no JSON"}


def _note(kept_bytes: int, total: int) -> str:
    return f"\n[clipped: {kept_bytes} of {total} bytes]"


def described(error: BaseException) -> str:
    """Return the class and the message of an exception, even if `str` fails for it."""
    return f"{type(error).__name__}: {words_of(error) or 'no message'}"


def words_of(value: object) -> str:
    """Return `str(value)`; empty if that raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a user's __str__ may fail, or the value is too deep or too large
        return ""


def exact(text: str) -> str:
    """Escape characters that are invisible, move the cursor or change the writing direction.

    Inside JSON the escapes preserve the value.
    """
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(letter if _is_seen(letter) else _escaped(letter) for letter in text)


def harmless(text: str) -> str:
    """Escape prose like `exact`, but keep emoji and scripts with joiners readable.

    A single joiner between two visible characters outside ASCII is kept, and so is a single
    variation selector for emoji after it.
    """
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(
        letter if _is_seen(letter) or _is_form(text, index) else _escaped(letter)
        for index, letter in enumerate(text)
    )


def harmless_lines(text: str) -> str:
    """Escape prose like `harmless`, but keep line breaks and tabs."""
    return "".join(
        piece if piece in "\n\t" else harmless(piece) for piece in re.split("([\n\t])", text)
    )


def stripped(text: str) -> str:
    """Return `text` without the characters that `harmless` escapes, except line breaks and tabs."""
    text = text.replace("\r\n", "\n")
    return "".join(
        letter
        for index, letter in enumerate(text)
        if letter in "\n\t" or _is_seen(letter) or _is_form(text, index)
    )


def one_line(text: str, max_characters: int) -> str:
    """Return `text` as one harmless line for a list or a summary."""
    line = harmless(" ".join(text.split()))
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"


def word(text: str) -> str:
    """Return a name or an id as one word, quoted as JSON if it would be ambiguous."""
    if _PLAIN_WORD.fullmatch(text):  # nearly every one
        return text
    is_plain = text.isprintable() and not any(letter.isspace() or letter in '"=' for letter in text)
    return text if text and is_plain and not _UNSEEN.search(text) else quoted(text)


def quoted(text: str) -> str:
    """Return `text` as a JSON string with all characters visible."""
    return exact(json.dumps(text, ensure_ascii=False))


def arguments_exactly(arguments: str) -> str:
    """Return the complete JSON arguments of a call in one line.

    Strings and names are quoted, numbers are kept as written. Consecutive spaces are escaped,
    because browsers and MCP clients show a run of spaces as one.
    """
    return _in_one_line(_whole(arguments, ""))


def arguments_indented(arguments: str) -> str:
    """Return the complete JSON arguments of a call with a line for each value."""
    return _whole(arguments, "\n")


def arguments_in_brief(arguments: str) -> str:
    """Return the arguments of a call in one line, with long values cut.

    Each cut is marked by `CUT` and the value's length. Every name is shown, except if the names
    alone are too long for a line: then the result is a note of their number.
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
    """Escape a line for Markdown.

    The web UI renders formulas between dollar signs, so these are replaced.
    """
    marked = "".join(
        f"\\{letter}" if letter in _MARKED else letter for letter in text.replace("$", "USD ")
    )
    return _FIRST_MARK.sub(r"\1\\\2", marked)


def markdown_of_arguments(written: str) -> str:
    """Escape JSON of the `arguments_…` functions for Markdown; dollar signs become escapes."""
    return markdown(written.replace("$", "\\u0024"))


class _Raw(str):
    """A part of JSON that is shown as written: a number, or a value that was cut."""

    __slots__ = ()


def stays_in_urls(text: str) -> bool:
    """Whether a URL whose path has this text leads to the same text everywhere.

    Browsers, proxies and clients resolve empty parts, `.` and `..`, also if encoded, and take a
    backslash for a slash.
    """
    decoded = unquote(text)
    while decoded != text:
        text, decoded = decoded, unquote(decoded)
    return not any(part in _CHANGED_IN_URLS for part in _SEPARATORS.split(text))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine alone, by its name or its IP address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def _read(arguments: str) -> Any:
    """Parse arguments, keeping numbers as written, so that no digit is lost."""
    return json.loads(arguments, parse_int=_Raw, parse_float=_Raw, parse_constant=_Raw)


def _whole(arguments: str, line: str) -> str:
    try:
        return _written(_read(arguments), line)
    except _UNREADABLE:
        return quoted(arguments) + _NOT_JSON


def _in_one_line(written: str) -> str:
    return _SPACES.sub(lambda match: " " + "\\u0020" * (len(match[0]) - 1), written)


def _written(value: Any, line: str = "") -> str:
    """Return JSON with all characters visible.

    `line` is the line break and indent before the value's end; without it the result is one line.
    """
    if isinstance(value, str):
        return str(value) if isinstance(value, _Raw) else quoted(value)
    if not isinstance(value, dict | list):
        return json.dumps(value)
    inner = line and f"{line}  "
    if isinstance(value, dict):
        parts = [f"{_written(name)}: {_written(item, inner)}" for name, item in value.items()]
    else:
        parts = [_written(item, inner) for item in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    if not parts:
        return first + last
    return f"{first}{inner}{(',' + (inner or ' ')).join(parts)}{line}{last}"


def _cut(value: Any) -> Any:
    """Return a value, or its beginning with an unquoted note of its length."""
    if _left(value, _BRIEF) >= 0:
        return value
    if isinstance(value, str):
        beginning = value[:_BRIEF] if isinstance(value, _Raw) else quoted(value[:_BRIEF])
        return _Raw(f"{beginning}{CUT}{len(value)} characters)")
    return _Raw(
        f"{{}}{CUT}{len(value)} fields)"
        if isinstance(value, dict)
        else f"[]{CUT}{len(value)} items)"
    )


def _left(value: Any, room: int) -> int:
    """Return the characters left of `room` after a value; negative if it does not fit."""
    if isinstance(value, str):
        return room - len(value)
    if not isinstance(value, dict | list):
        return room - len("false")
    for item in itertools.chain.from_iterable(value.items()) if isinstance(value, dict) else value:
        room = _left(item, room - len(", "))
        if room < 0:
            break
    return room


def _is_seen(letter: str) -> bool:
    return letter.isprintable() and not _UNSEEN.match(letter)


def _is_form(text: str, index: int) -> bool:
    """Return whether the character only affects its neighbours, as in emoji, Persian and Hindi."""
    letter, before, after = text[index], text[index - 1 : index], text[index + 1 : index + 2]
    if letter in _FORMS:
        return _is_drawn(before) or after == _KEYCAP
    if before and before in _FORMS:
        before = text[index - 2 : index - 1]
    return letter in _JOINERS and _is_drawn(before) and _is_drawn(after)


def _is_drawn(letter: str) -> bool:
    return letter > "\x7f" and _is_seen(letter)


def _escaped(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else json.dumps(letter)[1:-1]
