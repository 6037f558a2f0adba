"""Every code block of every page is run, in the test of its page or as a program.

The test of a page is named after the page. A page without a test is run here; its blocks need
nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..support.docs.pages import PAGES, Page, page
from .conftest import Tell

HERE = Path(__file__).parent


def story_of(page: Page) -> Path:
    """The test file of a page."""
    return HERE / f"test_{page.module.removeprefix('docs_').lower()}.py"


def without_story() -> list[Page]:
    """Pages whose blocks no test runs, but for those that are all programs or drawings."""
    return [
        one
        for one in PAGES
        if not story_of(one).exists()
        and not all(
            block.is_program or block.is_test or block.language == "text" for block in one.blocks
        )
    ]


@pytest.mark.slow
@pytest.mark.accepts("P7")
@pytest.mark.parametrize("untold", without_story(), ids=str)
async def test_blocks_of_a_page_run_in_their_order(untold: Page, tell: Tell) -> None:
    """Without any given names."""
    async with tell(str(untold)):
        pass


@pytest.mark.accepts("H238")
@pytest.mark.parametrize("name", ["chat", "nightly-report", "slack-approvals"])
def test_program_of_a_recipe_is_short(name: str) -> None:
    """All of its files together, without blank lines."""
    blocks = page(f"recipes/{name}").blocks
    program = "".join(block.text for block in blocks if block.language in ("python", "html"))
    lines = [line for line in program.splitlines() if line.strip()]

    assert 0 < len(lines) <= 60


def test_every_story_is_of_a_page_with_blocks() -> None:
    """A renamed page needs its test renamed."""
    stories = {
        path
        for path in HERE.glob("test_*.py")
        if "async with tell(" in path.read_text(encoding="utf-8")
    }

    assert stories - {story_of(one) for one in PAGES if one.blocks} == {Path(__file__)}
