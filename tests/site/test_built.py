"""The built site: it uses no other servers, its links are valid, its search index is complete, and
the reference has every public name.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import perdure
import perdure.clients
import perdure.events
import perdure.providers
import perdure.testing
import perdure.toolboxes
import perdure.worker
from perdure import errors

from ..support.docs.site import NOT_BUILT, PAGES, SITE, Reader, read

pytestmark = pytest.mark.skipif(SITE is None, reason=NOT_BUILT)
_FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
_RELATIONS = {
    "stylesheet",
    "icon",
    "preload",
    "preconnect",
    "dns-prefetch",
    "modulepreload",
    "prefetch",
    "manifest",
}
_MARKS = re.compile(r"^\s*([-*+] |\d+\. |\|.*\|\s*$)", re.MULTILINE)
PUBLIC = (
    perdure,
    perdure.events,
    perdure.providers,
    perdure.clients,
    perdure.testing,
    perdure.toolboxes,
    perdure.worker,
)


@cache
def reader(page: str) -> Reader:
    """A parsed page, cached."""
    return Reader(page)


def fetched(page: str) -> list[str]:
    """The resources that a browser loads with a page: scripts, styles, icons, pictures."""
    links = [
        named.get("href", "")
        for tag, named in reader(page).tags
        if tag == "link" and _RELATIONS & set(named.get("rel", "").split())
    ]
    return links + [
        named[_FETCHED[tag]] for tag, named in reader(page).tags if named.get(_FETCHED.get(tag, ""))
    ]


def elsewhere(url: str) -> bool:
    """Whether a browser would load it from another host."""
    return bool(urlsplit(url).netloc) or urlsplit(url).scheme not in {"", "data"}


@pytest.mark.accepts("P8")
@pytest.mark.parametrize("page", PAGES)
def test_page_fetches_nothing_from_elsewhere(page: str) -> None:
    """No font, script, style or picture of another host."""
    urls = fetched(page)

    assert urls, "a page has a style at least"
    assert [url for url in urls if elsewhere(url)] == []


def test_styles_and_pictures_fetch_nothing_from_elsewhere() -> None:
    """Neither `@import` nor `url(…)` names another host, and no SVG refers to one."""
    assert SITE is not None
    urls = {
        str(file.relative_to(SITE)): found
        for file in sorted([*SITE.rglob("*.css"), *SITE.rglob("*.svg")])
        if (
            found := re.findall(
                r"""(?:url\(|@import|href=|src=)\s*["']?((?:https?:)?//[^"')\s]+)""",
                file.read_text(encoding="utf-8"),
            )
        )
    }

    assert urls == {}


@pytest.mark.accepts("P8")
@pytest.mark.parametrize("page", [page for page in PAGES if page != "404.html"])
def test_every_link_of_a_page_holds(page: str) -> None:
    """Each leads to a file of the site, and to an existing id in it, including links that are not
    from Markdown, such as the navigation.
    """
    broken = [
        link for link in reader(page).links() if not elsewhere(link) and not holds(page, link)
    ]

    assert broken == []


def holds(page: str, link: str) -> bool:
    """Whether the file exists, and has this id."""
    assert SITE is not None
    url = urlsplit(link)
    file = ((SITE / page).parent / unquote(url.path)).resolve() if url.path else SITE / page
    if not file.is_file():
        return file.is_dir() and (file / "index.html").is_file()
    return not url.fragment or unquote(url.fragment) in reader(str(file.relative_to(SITE))).ids | {
        "__skip"
    }


@pytest.mark.parametrize("page", PAGES)
def test_lists_and_tables_of_a_page_are_shown_as_such(page: str) -> None:
    """Unlike a forge, the site needs an empty line before a list; without it, the markers would be
    part of a paragraph.
    """
    torn = [paragraph for paragraph in reader(page).paragraphs if _MARKS.search(paragraph)]

    assert torn == []


@pytest.mark.accepts("P8")
@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("approval", "approvals.html"),
        ("kill", "overview.html"),
        ("TurnBudgetExceededError", "errors.html"),
    ],
)
def test_search_knows_the_word(word: str, page: str) -> None:
    """The search index has it, with the expected page."""
    entries = json.loads(read("search/search_index.json"))["docs"]
    pages = {
        entry["location"].partition("#")[0]
        for entry in entries
        if word in entry["title"] + entry["text"]
    }

    assert page in pages


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_reference_has_every_public_name(module: ModuleType) -> None:
    """All of its `__all__`, under one of the public modules with the name."""
    ids = reader("reference.html").ids
    missing = [
        name
        for name in module.__all__
        if not any(
            f"{other.__name__}.{name}" in ids
            for other in PUBLIC
            if getattr(other, name, None) is getattr(module, name)
        )
    ]

    assert missing == []


def test_reference_has_every_error() -> None:
    """The whole tree, with the public names, and the function for users' workflows."""
    names = {
        f"perdure.errors.{name}"
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PerdureError)
    }

    assert (names | {"perdure.workflows.run_turn"}) - reader("reference.html").ids == set()


def test_every_page_of_docs_is_on_the_site() -> None:
    """All of them, each as a page."""
    docs = Path(__file__).parents[2] / "docs"
    pages = {str(page.relative_to(docs).with_suffix(".html")) for page in docs.rglob("*.md")}

    assert pages - set(PAGES) == set()
