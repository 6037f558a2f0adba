"""Rules of ids, which stay what they are in URLs."""

from __future__ import annotations

import pytest

from perdure import validation


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("..", False),
        ("a/../b", False),
        (".", False),
        ("a//b", False),
        ("/a", False),
        ("a/", False),
        ("", False),
        ("%2e%2e", False),
        ("%252e%252e", False),
        ("a%2F..", False),
        ("a\\..\\b", False),
        ("a..b", True),
        ("...", True),
        ("repo#12", True),
        ("@acme/what?", True),
        ("100%", True),
    ],
)
@pytest.mark.accepts("H110")
def test_id_that_a_url_would_change_is_noticed(text: str, stays: bool) -> None:
    """Parts that are empty, `.` or `..`, also encoded, twice encoded, and after a backslash."""
    assert validation.stays_in_urls(text) is stays
