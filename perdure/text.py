"""Text at the boundary: bytes that everyone can store, and cuts that say what was cut."""

import json

_READABLE = 2_000
_JOINERS = "\u200c\u200d"


def clean(text: str) -> str:
    """Replace lone surrogates, which no encoder on the way to history accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


def size(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text.encode("utf-8", "replace"))


def in_units(bytes_: int) -> str:
    """An amount of bytes as a person says it: 312 bytes, 5 KB, 1.2 MB."""
    if bytes_ < 1_000:
        return f"{bytes_} byte{'' if bytes_ == 1 else 's'}"
    return f"{round(bytes_ / 1_000)} KB" if bytes_ < 999_500 else f"{bytes_ / 1_000_000:.1f} MB"


def head(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` that fits, never half a character."""
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def tail(text: str, max_bytes: int) -> str:
    """The longest end of `text` that fits, never half a character."""
    return text.encode("utf-8", "replace")[-max_bytes:].decode("utf-8", "ignore")


def clip(text: str, max_bytes: int) -> str:
    """`text`, or its beginning with a note of both sizes, in at most `max_bytes` bytes of UTF-8."""
    total = size(text)
    if total <= max_bytes:
        return text
    reserve = size(_note(max_bytes, total))
    kept = head(text, max(0, max_bytes - reserve))
    return head(kept + _note(size(kept), total), max_bytes)


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


def arguments_in_words(arguments: str) -> str:
    """JSON arguments as a person reads them, `query=notice period, limit=5`; as they are where they are no small JSON object."""
    try:
        values = json.loads(arguments) if len(arguments) <= _READABLE else None
        if not isinstance(values, dict):
            return arguments
        return ", ".join(f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
    except (ValueError, RecursionError):  # reading and writing reach Python's limit at different depths
        return arguments


def harmless(text: str) -> str:
    """With escapes in place of what would move the cursor of a terminal or turn the direction of what follows: a task is anybody's text."""
    return "".join(letter if letter.isprintable() or letter in _JOINERS else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else json.dumps(letter)[1:-1]


def one_line(text: str, max_characters: int) -> str:
    """`text` as one harmless line for a list or a summary."""
    line = harmless(" ".join(text.split()))
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"
