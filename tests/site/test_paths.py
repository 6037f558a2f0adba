"""Pages and decisions name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..support.docs.files import FILES, ROOT
from ..support.docs.paths import dead_paths

DECISIONS = ROOT / "docs/decisions"
PAGES = [path for path in FILES if "archive" not in path.parts]
"""All files but the archived decisions, whose paths are those of their time."""
_RECORD = re.compile(r"docs/decisions/(?:archive/)?\d{4}")


def test_paths_in_code_quotes_exist() -> None:
    """Of modules, tests and other files of the repository."""
    dead = {
        str(path.relative_to(ROOT)): dead_paths(path.read_text(encoding="utf-8"), ROOT)
        for path in PAGES
    }

    assert {page: paths for page, paths in dead.items() if paths} == {}


def test_dead_path_is_noticed() -> None:
    """A module that was moved, a test, and a pattern without a match; not what is in a block."""
    page = (
        "`perdure/turn/fold.py`, `perdure/fold.py: apply`, `tests/unit/test_gone.py`, `clients/`,\n"
        "`docs/*.md` and `docs/*.html`.\n\n```text\nread `worker/gone.py`\n```\n"
    )

    assert dead_paths(page, ROOT) == [
        "perdure/fold.py",
        "tests/unit/test_gone.py",
        "docs/*.html",
    ]


@pytest.mark.parametrize("folder", [DECISIONS, DECISIONS / "archive"], ids=lambda one: one.name)
def test_index_lists_every_decision_once(folder: Path) -> None:
    """A record that no index lists would not be found."""
    index = (folder / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", index)

    assert sorted(listed) == [path.name for path in sorted(folder.glob("[0-9]*.md"))]


def test_decisions_that_code_names_exist() -> None:
    """A comment names a decision by its number, and by `archive` if it was moved there."""
    sources = [
        path
        for room in ("activities", "clients", "perdure", "tests", "worker", "workflows")
        for path in (ROOT / room).rglob("*.py")
    ]
    named = {name for path in sources for name in _RECORD.findall(path.read_text(encoding="utf-8"))}

    assert named
    assert [name for name in sorted(named) if not any(ROOT.glob(f"{name}-*.md"))] == []
