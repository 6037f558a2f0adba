"""The agent to whose model the odd bodies are answers."""

from __future__ import annotations

from typing import Any

from perdure import tool


@tool
def weigh(grams: float = 0, note: Any = "") -> str:
    """Weigh something."""
    return f"{grams:g} {note}"
