"""The page of the conformance suites is its table."""

from __future__ import annotations

import re

import pytest

from ..support.docs import conformance
from ..support.docs.files import ROOT
from ..support.mcp.conformance import VERSION


@pytest.mark.accepts("H242", "H243")
def test_page_is_that_of_the_table() -> None:
    """`python -m tests.support.docs.conformance` writes it, with the version that is installed."""
    installed = re.search(r"conformance@(\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"))

    assert conformance.PAGE.read_text(encoding="utf-8") == conformance.page()
    assert installed is not None
    assert installed[1] == VERSION
