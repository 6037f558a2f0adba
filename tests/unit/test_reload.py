"""The file watcher of `perdure dev --reload`: which files it watches, and when one has changed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.worker.dev.reload import Watcher

WITHIN_S = 30
LONG_AGO = time.time() - 3600


def written(file: Path, text: str) -> Path:
    """A file with a modification time an hour ago."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    os.utime(file, (LONG_AGO, LONG_AGO))
    return file


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of an imported module."""
    file = written(tmp_path / "watched_words.py", "WORD = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("watched_words")
    yield file
    del sys.modules["watched_words"]


def put_in_place(file: Path) -> None:
    """Replace a file as an editor does, by one with an even older time."""
    other = written(file.with_suffix(".new"), "WORD = 2\n")
    os.utime(other, (LONG_AGO - 3600, LONG_AGO - 3600))
    other.replace(file)


@pytest.mark.parametrize(
    "change",
    [lambda file: file.write_text("WORD = 2\n"), put_in_place],
    ids=["written", "replaced"],
)
def test_change_of_an_imported_file_is_seen(words: Path, change: Callable[[Path], object]) -> None:
    """For any modification time."""
    watcher = Watcher(words.parent, since=time.time())
    written(words.with_name("not_imported.py"), "")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(watcher.wait)
        written(words.with_name("another.py"), "")
        while words not in watcher.seen:
            time.sleep(0.01)
        change(words)

        assert waiting.result(WITHIN_S) == words


def test_file_that_is_newer_than_the_process_has_changed(words: Path) -> None:
    """It was written while the process started, and may have been read before."""
    os.utime(words)

    assert Watcher(words.parent, since=LONG_AGO).wait() == words


def test_all_files_below_a_folder_count_where_no_module_could_be_imported(tmp_path: Path) -> None:
    """Except those of an environment or a hidden folder."""
    for name in ("env/lib/site-packages/installed.py", ".hidden/hidden.py", "data.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    new = tmp_path / "desk/new.py"
    written(new, "")
    os.utime(new)

    assert Watcher(tmp_path, since=LONG_AGO).wait(for_all=True) == new
