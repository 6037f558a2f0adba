"""What a merge leaves in a page of Markdown: halves of sentences, and texts twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

_FENCE = re.compile(r"^ *```")
_HEADING = re.compile(r"^#{1,6} ")
_OF_A_LIST = re.compile(r"^ *([-*+]|\d+\.) ")
_ITEM = re.compile(_OF_A_LIST.pattern, re.MULTILINE)
_WORD = re.compile(r"`[^`]*`|[\w'’.-]*\w")
_LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
_ENDS = (".", ":", "!", "?", ".)", "…")
_CODE = "```"
"""Stands for a block of code."""
_AGAIN = 7
"""This many equal words in one paragraph are a text that is there twice."""
_AGAIN_ON_THE_PAGE = 16
_AGAIN_IN_LISTS = 12
_NAME = re.compile(r"`[^`]+`")
_NOT_PROSE = ("#", "|", "<", "!", ":::", "---", "[", "    ", _CODE)


def leftovers(text: str) -> list[str]:
    """Return what is wrong with a page, in words, with the beginning of the place."""
    blocks = list(_blocks(text))
    prose = [block for block in blocks if _is_prose(block)]
    items = [item for block in blocks for item in _items(block)]
    return [
        *(f"begins in a sentence: {_start(block)}" for block in _begun_before(blocks)),
        *(f"does not end: {_start(block)}" for block in _unended(blocks)),
        *(f"a row twice: {row}" for block in blocks for row in _rows_again(block)),
        *(f"a heading twice: {one}" for one in _headings_again(blocks)),
        *(f"words twice: {words}" for block in prose for words in _again([block], _AGAIN)),
        *(f"words twice on the page: {words}" for words in _again(prose, _AGAIN_ON_THE_PAGE)),
        *(f"words twice in a list: {words}" for words in _again(items, _AGAIN_IN_LISTS)),
    ]


def _blocks(text: str) -> Iterator[str]:
    """Yield the paragraphs, lists, tables and headings of a page, and a mark for each code."""
    lines, is_code = list[str](), False
    for line in [*text.splitlines(), ""]:
        is_fence = bool(_FENCE.match(line))
        if lines and (is_fence or not line.strip() or _HEADING.match(line)):
            yield "\n".join(lines)
            lines = []
        if is_fence:
            is_code = not is_code
            if is_code:
                yield _CODE
        elif not is_code and line.strip():
            lines.append(line)


def _is_prose(block: str) -> bool:
    """Return whether a block is a paragraph: no list, table, picture, reference or directive."""
    return not block.lstrip().startswith(_NOT_PROSE) and not _OF_A_LIST.match(block)


def _items(block: str) -> list[str]:
    """Return the items of a list; none of any other block."""
    if not _OF_A_LIST.match(block):
        return []
    starts = [match.start() for match in _ITEM.finditer(block)]
    return [block[start:end] for start, end in pairwise([*starts, len(block)])]


def _begun_before(blocks: list[str]) -> Iterator[str]:
    """Yield the paragraphs that begin with a small letter after a whole sentence."""
    before = ""
    for block in blocks:
        if _is_prose(block) and block[0].islower() and before.endswith("."):
            yield block
        before = before if block == _CODE else block


def _unended(blocks: list[str]) -> Iterator[str]:
    """Yield the paragraphs without a mark at their end that no list completes.

    Links side by side, as at the end of the README, are no sentence.
    """
    for block, following in pairwise([*blocks, ""]):
        is_whole = block.rstrip(" *_").endswith(_ENDS) or _OF_A_LIST.match(following)
        if _is_prose(block) and not is_whole and " · " not in block:
            yield block


def _rows_again(block: str) -> list[str]:
    """Return the names that several rows of a table have in their first cell."""
    if not block.lstrip().startswith("|"):
        return []
    cells = [row.split("|")[1].strip() for row in block.splitlines() if row.count("|") > 1]
    return _several(cell for cell in cells if _NAME.fullmatch(cell))


def _headings_again(blocks: list[str]) -> list[str]:
    """Return the headings that are there twice below the same headings.

    In a changelog, each release has *Added* and *Fixed*.
    """
    above: tuple[str, ...] = ()
    found: list[tuple[str, ...]] = []
    for heading in (block for block in blocks if _HEADING.match(block)):
        above = (*(one for one in above if _level(one) < _level(heading)), heading)
        found.append(above)
    return [path[-1] for path, count in Counter(found).items() if count > 1]


def _level(heading: str) -> int:
    return len(heading) - len(heading.lstrip("#"))


def _again(blocks: list[str], length: int) -> list[str]:
    """Return the first of the runs of words that are there twice."""
    runs = (run for block in blocks for run in _runs(block, length))
    return _several(" ".join(run) for run in runs)[:1]


def _runs(block: str, length: int) -> Iterator[tuple[str, ...]]:
    words = _WORD.findall(_LINK.sub(r"\1", block).lower())
    return zip(*(words[first:] for first in range(length)), strict=False)


def _several(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def _start(block: str) -> str:
    return " ".join(block.split())[:80]
