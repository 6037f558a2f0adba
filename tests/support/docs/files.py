"""The Markdown files of the project."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
FILES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("deploy/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
    ]
)
