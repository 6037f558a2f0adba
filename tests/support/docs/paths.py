"""Paths of this repository in the code quotes of a page."""

from __future__ import annotations

import re
from pathlib import Path

FENCED = re.compile(r"^( *)(```+).*?^\1\2$", re.MULTILINE | re.DOTALL)
"""A block of code."""
_QUOTE = re.compile(r"`([^`\n]+)`")
_FOLDERS = "activities|benchmarks|clients|deploy|docs|examples|perdure|tests|worker|workflows"
_PATH = re.compile(rf"(?:{_FOLDERS})/[\w./*-]*")
_NO_FILES = {"docs/decisions/NNNN-title.md": "a pattern", "deploy/.env": "its user creates it"}
"""Paths that do not exist on purpose, and why."""


def dead_paths(text: str, root: Path) -> list[str]:
    """Return the quoted paths of a page that do not exist in the repository.

    Blocks of code are left out, because their paths are those of a reader's project.

    Args:
        text: The page as Markdown.
        root: The folder that paths are relative to. A path with `*` needs a match.
    """
    quotes = (_PATH.match(quote) for quote in _QUOTE.findall(FENCED.sub("", text)))
    paths = dict.fromkeys(quote[0] for quote in quotes if quote)
    return [path for path in paths if path not in _NO_FILES and not any(root.glob(path))]
