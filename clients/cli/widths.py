"""How much room a text takes on a terminal, and how it is made to fit.

Letters of Chinese take two columns, accents and colours none.
"""

from __future__ import annotations

import re
import unicodedata

_PIECES = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)
_COLOUR = "\x1b"
_PLAIN = "\x1b[0m"


def width(text: str) -> int:
    """How many columns a text takes."""
    return sum(map(_columns, _PIECES.findall(text)))


def cut(line: str, columns: int) -> str:
    """`line`, or as much of it as so many columns hold, with a sign that there is more, and without its last colour running on."""
    if width(line) <= columns:
        return line
    kept: list[str] = []
    used, is_coloured = 0, False
    for piece in _PIECES.findall(line):
        used += _columns(piece)
        if used > columns - 1:
            break
        is_coloured = not piece.endswith("[0m") if piece.startswith(_COLOUR) else is_coloured
        kept.append(piece)
    return "".join(kept) + "…" + (_PLAIN if is_coloured else "")


def wrapped(line: str, columns: int, indent: int = 0) -> str:
    """`line` in as many lines as it needs, broken between words where they are short enough.

    All but the first are indented.
    """
    room, lines = max(columns - indent, 1), [""]
    left = columns
    for word in re.findall(r"\s+|\S+", line):
        if word.isspace() and width(word) > left:
            left = 0  # the end of a line is space enough
            continue
        if left < width(word) <= room:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
            left = room
        for piece in _PIECES.findall(word):
            if _columns(piece) > left:
                lines.append("")
                left = room
            lines[-1] += piece
            left -= _columns(piece)
    return f"\n{' ' * indent}".join(lines)


def _columns(piece: str) -> int:
    """Of one letter, or of an escape sequence."""
    if piece.startswith(_COLOUR) and len(piece) > 1:
        return 0
    return (
        2
        if unicodedata.east_asian_width(piece) in "WF"
        else 0
        if unicodedata.combining(piece)
        else 1
    )
