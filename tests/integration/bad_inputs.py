"""The table of bad inputs: what comes in, from where, and what becomes of it. `docs/bad-input.md` shows it."""

from __future__ import annotations

from .bad_bench import BadInput
from .bad_replies import REPLIES

CATALOGUE: list[BadInput] = sorted([*REPLIES], key=lambda row: row.number)
AWAITED: set[int] = set()
