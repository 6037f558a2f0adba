"""No page has what a merge leaves behind."""

from __future__ import annotations

import pytest

from ..support.docs.files import FILES, ROOT
from ..support.docs.leftovers import leftovers

PAGES = [path for path in FILES if "skills" not in path.parts]
"""All files but those of skills, which are letters and prompts."""


@pytest.mark.accepts("P49")
def test_page_has_no_leftovers_of_a_merge() -> None:
    """No half sentences, and no paragraph, row or heading twice."""
    found = {
        str(path.relative_to(ROOT)): leftovers(path.read_text(encoding="utf-8")) for path in PAGES
    }

    assert {page: what for page, what in found.items() if what} == {}


@pytest.mark.accepts("P49")
@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("A whole sentence.\n\nand the end of another.", "begins in a sentence"),
        ("A sentence that was cut\n\nAnother one.", "does not end"),
        (
            "| field | meaning |\n|---|---|\n| `a` | one |\n| `b` | two |\n| `a` | 1 |",
            "a row twice",
        ),
        ("## Use\n\nText.\n\n## Use\n\nMore.", "a heading twice"),
        ("It has the text of each page; and more. It has the text of each page.", "words twice"),
        (
            (
                "- A list of the words that are in two items of it\n  on several lines.\n"
                "- One between them.\n\n"
                "1. First, a list of the words that are in two items of it on a page."
            ),
            "words twice in a list",
        ),
    ],
)
def test_leftover_is_noticed(page: str, problem: str) -> None:
    """Each kind, once, and the same in code is not."""
    assert [one.split(":")[0] for one in leftovers(page)] == [problem]
    assert leftovers(f"```text\n{page}\n```") == []


def test_heading_below_another_heading_is_another_one() -> None:
    """As in a changelog, where each release has *Added*."""
    page = "# Changes\n\n## 0.2.0\n\n### Added\n\nA.\n\n## 0.1.0\n\n### Added\n\nB."

    assert leftovers(page) == []
    assert leftovers(f"{page}\n\n### Added\n\nC.") == ["a heading twice: ### Added"]
