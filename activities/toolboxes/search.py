"""Finding passages: text cut at its headings, and ranked by how well each part fits a few words.

Passages are ranked by BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009):
a passage is better the more of the words it has, the rarer these are in the folder, and the shorter
it is; the score is then multiplied by its share of all the words, each by its rarity. A word in the
passage's heading counts three times more, one in the headings above it or in its path once more.
Words are letters and digits without their English endings, so that `retries` finds `retry`; those
that every text has (`the`, `how`) are not looked for.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from perdure.base import Value
from perdure.text import clip, one_line

_MATCH_BYTES = 1_200
_PASSAGE, _LONGEST_PASSAGE = (
    700,
    2_000,
)  # characters: cut at the first blank line after the one, at any line after the other
_HEADING, _TITLE = 3, 200
_SATURATION, _LENGTH = (
    1.2,
    0.5,
)  # BM25's k1 and b; b is below the usual 0.75 because passages differ less in length than documents
_PROSE = frozenset({"", ".markdown", ".md", ".mdx", ".rst", ".txt"})
_HASHES = re.compile(r"(#{1,6})\s+(\S.*)")
_UNDERLINE = re.compile(r"""([=\-~^"*+#])\1{2,}\s*$""")
_FENCE = "```"
_BREAK = re.compile(r"\s*$|([-*+]|\d+\.)\s")
_WORD = re.compile(r"[^\W_]+")
_COMMON = """
a about after all also am an and any are as at be because been before but by can could did do does doing for from get give had has have he
her here his how i if in into is it its just let like made make many may me mean might more most much must my no not of off on one only or
other our out over please she should so some such tell than that the their them then there these they this those to under up us was we were
what when where which while who whom whose why will with would you your
"""
_STOP_WORDS = frozenset(_COMMON.split())
_ENDINGS = (("ies", "y"), ("ied", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))


class Match(Value):
    """A passage that has some of the words.

    `line` is the number of its first line; `heading` is the one that it stands under.
    """

    path: str
    line: int
    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """What stands between two headings.

    `line` counts from 1 and is the heading's; `headings` go from the outermost to its own.
    """

    line: int
    headings: tuple[str, ...]
    lines: Sequence[str]


def words(text: str) -> list[str]:
    """The words of `text` as search compares them: lower case, without English endings."""
    return [_stem(word) for word in _WORD.findall(text.casefold())]


def keywords(question: str) -> list[str]:
    """What `question` is about: its words, once each, without those that every text has.

    All of them where nothing else is left.
    """
    every = list(dict.fromkeys(_WORD.findall(question.casefold())))
    return [word for word in every if word not in _STOP_WORDS and len(word) > 1] or every


def sections(path: str, text: str) -> Iterator[Section]:
    """The text cut at its headings: Markdown and reStructuredText.

    Files of other kinds are one section.

    A heading that has only subsections is no section of its own: it is among the headings of each
    of them.
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
    """BM25 over passages.

    Only those with one of the wanted words are kept, so that a large folder fits into memory.
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = tuple(dict.fromkeys(wanted))
        self._passages = self._words = 0
        self._having: Counter[str] = Counter()
        self._found: list[tuple[Match, dict[str, int], int]] = []
        if not self._wanted:
            raise ValueError("the query has no words to look for")

    def add(self, path: str, text: str) -> None:
        """Take in a file."""
        for section in sections(path, text):
            own = section.headings[-1] if section.headings else ""
            titles = Counter(
                words(own) * _HEADING + words(" ".join((path, *section.headings[:-1])))
            )
            for line, lines in _passages(section):
                self._take(
                    Match(path=path, line=line, heading=own, text="\n".join(lines).rstrip()), titles
                )

    def _take(self, match: Match, titles: Counter[str]) -> None:
        counts = Counter(words(match.text))
        length = counts.total()
        if not length:
            return
        self._passages, self._words = self._passages + 1, self._words + length
        found = {
            word: counts[word] + titles[word]
            for word in self._wanted
            if counts[word] or titles[word]
        }
        self._having.update(found.keys())
        if found:
            self._found.append((match, found, length))

    def best(self, limit: int) -> list[Match]:
        """The most relevant passages; equal ones by path, then by line."""
        ranked = sorted(
            self._found,
            key=lambda item: (-self._score(item[1], item[2]), item[0].path, item[0].line),
        )
        return [
            match.model_copy(update={"text": clip(match.text, _MATCH_BYTES)})
            for match, _, _ in ranked[:limit]
        ]

    def _score(self, found: dict[str, int], length: int) -> float:
        slack = _SATURATION * (1 - _LENGTH + _LENGTH * length * self._passages / self._words)
        score = sum(
            self._rarity(word) * count * (_SATURATION + 1) / (count + slack)
            for word, count in found.items()
        )
        return score * sum(map(self._rarity, found)) / sum(map(self._rarity, self._having))

    def _rarity(self, word: str) -> float:
        having = self._having[word]
        return math.log(1 + (self._passages - having + 0.5) / (having + 0.5))


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, tuple[int, str]]]:
    """(index, (level, title)) of each heading; what stands in a fence of code is none."""
    fenced = False
    for number, line in enumerate(lines):
        fenced ^= line.lstrip().startswith(_FENCE)
        if fenced:
            continue
        if found := _HASHES.match(line):
            yield number, (len(found[1]), one_line(found[2].rstrip("# "), _TITLE))
        elif _is_underlined(lines, number):
            yield number, (1 if lines[number + 1][0] == "=" else 2, one_line(line, _TITLE))


def _is_underlined(lines: Sequence[str], number: int) -> bool:
    """Whether a line is a heading by the line below it, after an empty line or a line above it as well."""
    title, below = (
        lines[number].rstrip(),
        lines[number + 1].rstrip() if number + 1 < len(lines) else "",
    )
    before = lines[number - 1].strip() if number else ""
    return (
        bool(_WORD.search(title))
        and before in ("", below)
        and bool(_UNDERLINE.match(below))
        and len(below) >= len(title)
    )


def _passages(section: Section) -> Iterator[tuple[int, Sequence[str]]]:
    """(line, lines): a section in parts that are short enough to be compared, cut between paragraphs where there are any."""
    begin = size = 0
    fenced = False
    for number, line in enumerate(section.lines):
        if size > _LONGEST_PASSAGE or (size > _PASSAGE and not fenced and _BREAK.match(line)):
            yield section.line + begin, section.lines[begin:number]
            begin, size = number + (not line.strip()), 0
        fenced ^= line.lstrip().startswith(_FENCE)
        size += len(line) + 1
    yield section.line + begin, section.lines[begin:]


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    for ending, instead in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2 and not stem.endswith(("s", "u")):
            return _plain(stem + instead)
    return _plain(word)


def _plain(stem: str) -> str:
    """Without the last letter's twin and without a mute e, so that `cancelled`, `caching` and `cache` meet `cancel` and `cached`."""
    if len(stem) > 3 and stem[-1] == stem[-2]:
        return stem[:-1]
    return stem[:-1] if len(stem) > 3 and stem.endswith("e") else stem


def lines_of(text: str) -> list[str]:
    """Lines as editors count them."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")
