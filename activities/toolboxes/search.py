"""Full-text search: splits text at its headings, and ranks the passages for a query.

Passages are ranked by SQLite's FTS5, with BM25 over an index in memory. Its `porter` tokenizer
removes English suffixes, so that `retries` finds `retry`. A word in the passage's own heading
counts three times, a word in the headings above it or in its path once. Passages with all query
words come first. Stop words (`the`, `how`) are ignored.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import TracebackType
from typing import Self

from perdure import errors
from perdure.base import Value
from perdure.text import clip, one_line

_MATCH_BYTES = 1_200
# characters: cut at the first blank line after the one, at any line after the other
_PASSAGE, _LONGEST_PASSAGE = (700, 2_000)
_TITLE = 200
_TOKENS = "tokenize = 'porter unicode61 remove_diacritics 2'"
_BEST = """
SELECT path, line, heading, text FROM passages WHERE passages MATCH :any
ORDER BY rowid IN (SELECT rowid FROM passages WHERE passages MATCH :all) DESC,
bm25(passages, 3.0, 1.0, 1.0), path, line LIMIT :limit
"""
_PROSE = frozenset({"", ".markdown", ".md", ".mdx", ".rst", ".txt"})
_HASHES = re.compile(r"(#{1,6})\s+(\S.*)")
_UNDERLINE = re.compile(r"""([=\-~^"*+#])\1{2,}\s*$""")
_FENCE = "```"
_BREAK = re.compile(r"\s*$|([-*+]|\d+\.)\s")
_WORD = re.compile(r"[^\W_]+")
_COMMON = """
a about after all also am an and any are as at be because been before but by can could did do does
doing for from get give had has have he her here his how i if in into is it its just let like made
make many may me mean might more most much must my no not of off on one only or other our out over
please she should so some such tell than that the their them then there these they this those to
under up us was we were what when where which while who whom whose why will with would you your
"""
_STOP_WORDS = frozenset(_COMMON.split())


class Match(Value):
    """A passage that has some of the query words.

    `line` is the number of its first line; `heading` is the heading above it.
    """

    path: str
    line: int
    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """The lines from one heading to the next.

    `line` counts from 1 and is the heading's; `headings` are ordered from the outermost to its own.
    """

    line: int
    headings: tuple[str, ...]
    lines: Sequence[str]


def check_index(module: str = "fts5") -> None:
    """Check that SQLite has the module that search needs.

    Raises:
        ConfigurationError: This Python's SQLite was built without it.
    """
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute(f"CREATE VIRTUAL TABLE tried USING {module}(text)")
        except sqlite3.OperationalError:
            raise errors.ConfigurationError(
                f"search_files needs SQLite's {module.upper()}, and this Python has SQLite"
                f" {sqlite3.sqlite_version} without it; use a Python whose SQLite has it, such as"
                " those of python.org"
            ) from None


def stems(texts: Iterable[str]) -> list[set[str]]:
    """Return the words of each text as search compares them: without case, accents and suffixes."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text, {_TOKENS})")
        database.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(texts, instance)")
        sets: list[set[str]] = []
        for text in texts:
            sets.append(set())
            database.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (len(sets), text))
        for number, stem in database.execute("SELECT DISTINCT doc, term FROM stems"):
            sets[number - 1].add(stem)
    return sets


def keywords(question: str) -> list[str]:
    """Return the distinct words of `question` without stop words; all words if no others remain."""
    every = list(dict.fromkeys(_WORD.findall(question.casefold())))
    return [word for word in every if word not in _STOP_WORDS and len(word) > 1] or every


def sections(path: str, text: str) -> Iterator[Section]:
    """Split text at its Markdown and reStructuredText headings.

    Files of other kinds are one section. A heading with nothing but subsections is not a section of
    its own: it is among the headings of each of them.
    """
    lines = lines_of(text)
    above: list[tuple[int, str]] = []
    begin = 0
    for number, heading in _headings(lines) if PurePosixPath(path).suffix.lower() in _PROSE else ():
        has_words = _WORD.search(" ".join(lines[begin + 1 : number])) is not None
        if number > begin and (has_words or not above or heading[0] <= above[-1][0]):
            yield Section(begin + 1, tuple(title for _, title in above), lines[begin:number])
        above = [upper for upper in above if upper[0] < heading[0]] + [heading]
        begin = number
    yield Section(begin + 1, tuple(title for _, title in above), lines[begin:])


class Ranking:
    """An index of passages in memory, and their ranking by BM25.

    It is a context manager: the index is gone at the end of the block.
    """

    def __init__(self, terms: Sequence[str]) -> None:
        if not terms:
            raise ValueError("the query has no words to look for")
        self._terms = [_literal(word) for word in terms]
        self._database = sqlite3.connect(":memory:")
        self._database.execute(
            "CREATE VIRTUAL TABLE passages USING fts5(heading, above, text, path UNINDEXED, line"
            f" UNINDEXED, {_TOKENS})"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def add(self, path: str, text: str) -> None:
        """Take in a file."""
        self._database.executemany("INSERT INTO passages VALUES (?, ?, ?, ?, ?)", _rows(path, text))

    def best(self, limit: int) -> list[Match]:
        """Return the most relevant passages; ties are ordered by path, then by line."""
        query = {
            "any": " OR ".join(self._terms),
            "all": " AND ".join(self._terms),
            "limit": limit,
        }
        rows = self._database.execute(_BEST, query)
        return [
            Match(path=path, line=line, heading=heading, text=clip(text, _MATCH_BYTES))
            for path, line, heading, text in rows
        ]


def _literal(word: str) -> str:
    """A word as a query has it, so that nothing in it is an operator."""
    return '"' + word.replace('"', '""') + '"'


def _rows(path: str, text: str) -> Iterator[tuple[str, str, str, str, int]]:
    """Heading, what is above it, text, path and line of each passage that has words."""
    for section in sections(path, text):
        heading = section.headings[-1] if section.headings else ""
        above = " ".join((path, *section.headings[:-1]))
        for line, lines in _passages(section):
            passage = "\n".join(lines).rstrip()
            if _WORD.search(passage):
                yield heading, above, passage, path, line


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield (index, (level, title)) of each heading, ignoring fenced code."""
    fenced = False
    for number, line in enumerate(lines):
        fenced ^= line.lstrip().startswith(_FENCE)
        if fenced:
            continue
        if match := _HASHES.match(line):
            yield number, (len(match[1]), one_line(match[2].rstrip("# "), _TITLE))
        elif _is_underlined(lines, number):
            yield number, (1 if lines[number + 1][0] == "=" else 2, one_line(line, _TITLE))


def _is_underlined(lines: Sequence[str], number: int) -> bool:
    """Return whether a line is an underlined heading, optionally with an overline."""
    title = lines[number].rstrip()
    below = lines[number + 1].rstrip() if number + 1 < len(lines) else ""
    before = lines[number - 1].strip() if number else ""
    return (
        bool(_WORD.search(title))
        and before in ("", below)
        and bool(_UNDERLINE.match(below))
        and len(below) >= len(title)
    )


def _passages(section: Section) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (line, lines) of a section's passages, split between paragraphs if possible."""
    begin = size = 0
    fenced = False
    for number, line in enumerate(section.lines):
        if size > _LONGEST_PASSAGE or (size > _PASSAGE and not fenced and _BREAK.match(line)):
            yield section.line + begin, section.lines[begin:number]
            begin, size = number + (not line.strip()), 0
        fenced ^= line.lstrip().startswith(_FENCE)
        size += len(line) + 1
    yield section.line + begin, section.lines[begin:]


def lines_of(text: str) -> list[str]:
    """Return lines as editors count them."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")
