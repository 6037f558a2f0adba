"""The project's Markdown files as a forge shows them: every link has a target."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from ..support.docs.files import FILES, ROOT
from ..support.docs.paths import FENCED

_CODE = re.compile(r"^( *)(```+).*?^\1\2$|(`+)(?!`).+?(?<!`)\3(?!`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def links(path: Path) -> list[re.Match[str]]:
    """The links and pictures of a page, code left out."""
    return list(_LINK.finditer(_CODE.sub("", path.read_text(encoding="utf-8"))))


@cache
def anchors(path: Path) -> set[str]:
    """The anchors that a forge derives from the headings of a page."""
    found: dict[str, int] = {}
    for heading in _HEADING.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
        slug = re.sub(r"[^\w\- ]", "", _LINK.sub(r"\g<text>", heading).lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {f"{slug}-{n}" if n else slug for slug, times in found.items() for n in range(times + 1)}


def problem(path: Path, target: str) -> str:
    """Why a link is broken; empty if it is not."""
    url = urlsplit(target)
    if url.scheme or url.netloc:
        return (
            ""
            if url.scheme in {"http", "https"}
            and re.fullmatch(r"[\w-]+(\.[\w-]+)+", url.hostname or "")
            else "no address of the web"
        )
    file = (path.parent / url.path).resolve() if url.path else path
    if not file.is_relative_to(ROOT) or not file.exists():
        return "no such file"
    return (
        ""
        if not url.fragment or (file.suffix == ".md" and url.fragment in anchors(file))
        else "no such heading"
    )


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    """Links between pages, to pictures and to other files of the repository; for external
    addresses, only the form is checked.
    """
    broken = {
        f"{path.relative_to(ROOT)}: {link['target']}": why
        for path in FILES
        for link in links(path)
        if (why := problem(path, link["target"]))
    }

    assert broken == {}


def test_every_picture_says_in_words_what_it_shows() -> None:
    """A picture needs alternative text for readers who cannot see it."""
    silent = [
        f"{path.relative_to(ROOT)}: {link['target']}"
        for path in FILES
        for link in links(path)
        if link["picture"] and not link["text"].strip()
    ]

    assert silent == []
