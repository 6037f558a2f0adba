"""The built site of `make docs`, parsed for the tests: its pages, their ids and links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[3]
SITE = Path(os.environ["PERDURE_SITE"]).resolve() if "PERDURE_SITE" in os.environ else None
"""`make docs` names it when it has built it, so that no test reads one that is older than its
sources.
"""

PAGES = [str(page.relative_to(SITE)) for page in sorted(SITE.rglob("*.html"))] if SITE else []
NOT_BUILT = "make docs builds the site and runs this"


class Reader(HTMLParser):
    """The content of a page.

    Attributes:
        tags: Every tag with its attributes, in order.
        ids: The possible targets of links.
        paragraphs: The text of each paragraph, code left out.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.ids: set[str] = set()
        self.paragraphs: list[str] = []
        self._open = {"p": 0, "code": 0}
        self.feed(read(page))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a start tag."""
        named = {name: value or "" for name, value in attrs}
        self.tags.append((tag, named))
        self.ids |= {named[name] for name in ("id", "name") if name in named}
        if tag in self._open:
            self._open[tag] += 1
        if tag == "p":
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        """Record an end tag."""
        if tag in self._open:
            self._open[tag] -= 1

    def handle_data(self, data: str) -> None:
        """Record the text of a paragraph."""
        if self._open["p"] and not self._open["code"]:
            self.paragraphs[-1] += data

    def links(self) -> Iterator[str]:
        """The targets and texts of the links."""
        for _, named in self.tags:
            yield from (named[name] for name in ("href", "src") if name in named)


def read(page: str) -> str:
    """A file of the site."""
    assert SITE is not None, NOT_BUILT
    return (SITE / page).read_text(encoding="utf-8")
