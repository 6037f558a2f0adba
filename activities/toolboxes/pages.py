"""Extracts readable text from HTML: paragraphs, headings and lists, with links as Markdown.

Scripts and styles are left out. As pages are untrusted, each character is read a bounded number of
times. The standard library's `html.parser` does not do that: 50 KB of `<!--` take it seconds, 50 KB
of `<a ` minutes. The text ends at a tag, a comment or a script that is not closed, as in a browser.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from perdure.text import one_line

_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*+)((?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+)>""")
_BEGINNING = re.compile(r"<(?:!--|[a-zA-Z!?]|/[a-zA-Z])")
_HREF = re.compile(r"""\shref\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))""", re.IGNORECASE)
_ZEROS = re.compile(r"(&#[xX]?)0++(?=[0-9a-fA-F])")
_NO_CHARACTER = re.compile(r"&#(?:[0-9]{8,}+|[xX][0-9a-fA-F]{8,}+);?")
_ENDS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "iframe", "noscript")
}
_SILENT = frozenset({"script", "style", "textarea", "iframe", "noscript"})
_BLOCK_NAMES = """
address article aside blockquote body br dd details div dl dt fieldset figcaption figure footer
form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section summary table td th tr ul
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_OPENS = {"li": "- ", **{f"h{level}": "#" * level + " " for level in range(1, 7)}}
_TITLE, _LINK, _LINKS = 200, 1_000, 5_000


@dataclass(frozen=True, slots=True)
class Readable:
    """The readable part of a page."""

    title: str
    text: str


@dataclass(slots=True)
class _PageText:
    base: str
    title: str = ""
    lines: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    link: str = ""
    linked: int = 0
    links: int = 0
    preformatted: bool = False

    def say(self, text: str) -> None:
        if self.preformatted:
            *lines, last = text.split("\n")
            for line in lines:
                self.pieces.append(line)
                self.end_line()
            self.pieces.append(last)
        else:
            self.pieces.append(re.sub(r"\s+", " ", text))

    def end_line(self) -> None:
        line = "".join(self.pieces).rstrip()
        self.pieces.clear()
        self.linked = 0
        if not self.preformatted:
            line = re.sub(" {2,}", " ", line).strip()
        if line or (self.lines and self.lines[-1]):
            self.lines.append(line)

    def open(self, name: str, attributes: str) -> None:
        if name in _BLOCKS:
            self.end_line()
            self.pieces.append(_OPENS.get(name, ""))
        elif name == "a" and self.links < _LINKS:
            self.link, self.linked = _target(self.base, attributes), len(self.pieces)
            self.links += 1
        if name == "pre":
            self.preformatted = True

    def close(self, name: str) -> None:
        if name in _BLOCKS:
            self.end_line()
        elif name == "a" and self.link:
            label = "".join(self.pieces[self.linked :]).strip()
            if label and not self.preformatted:
                self.pieces[self.linked :] = [f" [{label}]({self.link}) "]
            self.link = ""
        if name == "pre":
            self.preformatted = False


def readable(page: str, base: str) -> Readable:
    """Return the title and the text of an HTML page. Links are resolved against `base`."""
    text_page = _PageText(base)
    for text, closes, name, attributes in _parts(page):
        if name == "title" and not closes:
            text_page.title = text_page.title or one_line(_unescaped(text), _TITLE)
            continue
        text_page.say(_unescaped(text))
        if closes:
            text_page.close(name)
        else:
            text_page.open(name, attributes)
    text_page.end_line()
    return Readable(text_page.title, "\n".join(text_page.lines).strip())


def _parts(page: str) -> Iterator[tuple[str, bool, str, str]]:
    """Yield (preceding text, whether it closes, name, attributes) of each tag.

    The last text has no tag; a title has its own text.
    """
    at = 0
    while match := _BEGINNING.search(page, at):
        text = page[at : match.start()]
        tag = _TAG.match(page, match.start()) if page[match.start() + 1] not in "!?" else None
        if tag is None:
            yield text, False, "", ""
            at = _behind_remark(page, match.start())
        else:
            name, at = tag[2].lower(), tag.end()
            yield text, bool(tag[1]), name if name != "title" else "", tag[3]
            if name in _ENDS and not tag[1]:
                end = _ENDS[name].search(page, at)
                inner, at = (page[at : end.start()], end.start()) if end else (page[at:], len(page))
                if name not in _SILENT:
                    yield inner, False, name, ""
        if at < 0:
            return
    yield page[at:], False, "", ""


def _behind_remark(page: str, begin: int) -> int:
    """Return where a comment or a declaration ends; -1 if it, or a tag, is not closed."""
    if page.startswith("<!--", begin):
        end = page.find("-->", begin + 2)
        return end + 3 if end >= 0 else -1
    return page.find(">", begin) + 1 or -1 if page[begin + 1] in "!?" else -1


def _unescaped(text: str) -> str:
    """Return `text` with entities replaced.

    Longer numbers are replaced first, as Python raises for more than 4,300 digits.
    """
    return html.unescape(
        _NO_CHARACTER.sub("\ufffd", _ZEROS.sub(r"\1", text)) if "&#" in text else text
    )


def _target(base: str, attributes: str) -> str:
    match = _HREF.search(attributes)
    try:
        link = (
            urljoin(base, _unescaped(match[1] or match[2] or match[3] or "").strip())
            if match
            else ""
        )
        return (
            link
            if urlsplit(link).scheme in ("http", "https")
            and len(link) <= _LINK
            and link.isprintable()
            and " " not in link
            else ""
        )
    except ValueError:
        return ""
