"""The core that a newcomer reads first exists, and stays short enough for an afternoon."""

from __future__ import annotations

import re

from ..support.docs.files import ROOT

PAGE = (ROOT / "docs/how-to-read-the-code.md").read_text(encoding="utf-8")
FILES = re.findall(r"^\d+\. `([\w/]+\.py)`", PAGE, re.MULTILINE)
MOST_LINES = 6_000


def lines_of(name: str) -> int:
    """The number of lines of a file of the repository."""
    return len((ROOT / name).read_text(encoding="utf-8").splitlines())


def test_files_of_the_reading_list_exist() -> None:
    """About fifteen files, each once, in numbered items."""
    numbers = re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)

    assert [name for name in FILES if not (ROOT / name).is_file()] == []
    assert numbers == [str(number) for number in range(1, len(FILES) + 1)]
    assert 12 <= len(set(FILES)) == len(FILES) <= 18


def test_reading_list_is_read_in_an_afternoon() -> None:
    """If a file grows beyond it, take the file apart, or find the core again."""
    lines = {name: lines_of(name) for name in FILES}

    assert sum(lines.values()) < MOST_LINES, lines


def test_names_that_the_reading_list_points_to_exist() -> None:
    """Functions and classes in code quotes, in the file of their item."""
    items = re.findall(r"^\d+\. `([\w/]+\.py)`(.*?)(?=^\d+\. |^## |^\Z)", PAGE, re.M | re.S)
    missing = {
        (name, quoted)
        for name, text in items
        for quoted in re.findall(r"`(\w+(?:\.\w+)?)`", text)
        if quoted.rpartition(".")[2] not in (ROOT / name).read_text(encoding="utf-8")
    }

    assert missing == set()
