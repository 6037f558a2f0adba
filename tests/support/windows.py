"""A tool whose results fill a context window."""

from __future__ import annotations

from perdure import tool

STEPS, RESULT_BYTES = 26, 1_200


@tool(read_only=True)
def fetch(number: int) -> str:
    """Fetch so much text."""
    return f"{number:0{RESULT_BYTES}}"
