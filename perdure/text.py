"""Text at the boundary: bytes that everyone can store, and cuts that say what was cut."""


def clean(text: str) -> str:
    """Replace lone surrogates, which no encoder on the way to history accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


def size(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text.encode("utf-8", "replace"))


def head(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` that fits, never half a character."""
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


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
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - somebody's __str__ is broken; the class still says something
        words = ""
    return f"{type(error).__name__}: {words or 'no message'}"


def one_line(text: str, max_characters: int) -> str:
    """`text` as one line for a list or a summary."""
    line = " ".join(text.split())
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"
