"""Every code block of every page is run: in the story of its page, or as a program of its own.

A page has its story in a file that is named like it. A page without one is told here: its blocks
need nothing that is not in them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Tell
from .pages import PAGES, Page

HERE = Path(__file__).parent


def story_of(page: Page) -> Path:
    """The file with the story of a page."""
    return HERE / f"test_{page.module.removeprefix('docs_').lower()}.py"


def without_story() -> list[Page]:
    """Pages with blocks that no story runs, except those with programs alone (test_programs.py)."""
    return [
        page
        for page in PAGES
        if not story_of(page).exists()
        and not all(block.is_program or block.is_test for block in page.blocks)
    ]


@pytest.mark.accepts("P7")
@pytest.mark.parametrize("page", without_story(), ids=str)
async def test_blocks_of_a_page_run_in_their_order(page: Page, tell: Tell) -> None:
    """With nothing given."""
    async with tell(str(page)):
        pass


def test_every_story_is_of_a_page_with_blocks() -> None:
    """A page that was renamed takes its story with it."""
    stories = {
        path
        for path in HERE.glob("test_*.py")
        if "async with tell(" in path.read_text(encoding="utf-8")
    }

    assert stories - {story_of(page) for page in PAGES if page.blocks} == {Path(__file__)}
