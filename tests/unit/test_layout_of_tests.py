"""Where tests are: what they share is in `tests/support`, and none imports a test module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SUITES = ("docs", "e2e", "integration", "local_model", "site", "unit")
MODULES = sorted(TESTS.rglob("*.py"))
NAME = re.compile(r"\btest_\w+")


def imported(path: Path) -> Iterator[str]:
    """The last names of the modules that a module imports, and of what it imports from them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").rpartition(".")[2]
            yield from (alias.name for alias in node.names)


def test_no_module_imports_a_test_module() -> None:
    """A test could not be moved or deleted without others."""
    stems = {path.stem for path in MODULES if path.name.startswith("test_")}
    mentioning = [
        path for path in MODULES if stems & set(NAME.findall(path.read_text(encoding="utf-8")))
    ]

    assert {
        f"{path.relative_to(TESTS)}: {name}"
        for path in mentioning
        for name in imported(path)
        if name in stems
    } == set()


@pytest.mark.parametrize("suite", SUITES)
def test_suite_holds_tests_and_fixtures_alone(suite: str) -> None:
    """Helpers are in `tests/support`."""
    names = {path.name for path in (TESTS / suite).rglob("*.py")}

    assert {name for name in names if not name.startswith("test_")} <= {"conftest.py"}


def test_folder_of_the_integration_tests_can_be_guessed() -> None:
    """Each is in the folder of its subject, and no folder has more files than one looks through."""
    folder = TESTS / "integration"
    counts = {
        path.name: len(list(path.glob("test_*.py"))) for path in folder.iterdir() if path.is_dir()
    }

    assert list(folder.glob("test_*.py")) == []
    assert {name for name, count in counts.items() if count > 30} == set()
