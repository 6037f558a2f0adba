"""The page of mistakes is what is said."""

from __future__ import annotations

import sys

import pytest

from .mistakes import PAGE, page, rows


@pytest.mark.accepts("P31")
def test_every_mistake_is_answered_in_words_of_ours_and_the_page_has_them() -> None:
    """No mistake passes, none is answered by a traceback or by another library; `make mistakes`
    writes the page anew.
    """
    unanswered = [
        mistake for mistake, words in rows() if words == "nothing" or words.startswith("exit code")
    ]

    assert unanswered == []
    assert len(rows()) > 100
    if sys.version_info[:2] == (3, 11):  # other versions word a few mistakes differently
        assert PAGE.read_text(encoding="utf-8") == page()
