"""Tools confined to one folder: list its files, search them, read one.

A path is resolved first and rejected if it leads outside. It is then opened part by part from the
folder without following links, so that a link inserted in between is rejected too. Names that begin
with a dot, and `node_modules`, are excluded.

`perdure.activities.toolboxes.search` implements the search.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeVar

from pydantic_core import to_json

from perdure import errors
from perdure.activities.toolboxes.search import Match, Ranking, check_index, keywords, lines_of
from perdure.agents.tools import Toolbox, tool
from perdure.base import Value
from perdure.text import head, one_line

_T = TypeVar("_T")

FILE_BYTES = 1_000_000
_PROBE_BYTES = 8 * 1024
# as JSON; an answer larger than a tool result would be clipped, and would then not be valid JSON
_ANSWER_BYTES = 48 * 1024
_LISTED, _WALKED, _DEPTH = 500, 50_000, 32
_SEARCHED_FILES, _SEARCHED_BYTES = 5_000, 32_000_000
_QUERY_WORDS, _MATCHES = 32, 25
_PATH_CHARACTERS, _PATTERN_CHARACTERS = 10_000, 500

_UNSPEAKABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class FolderListing(Value):
    """Paths relative to the folder."""

    files: tuple[str, ...]
    note: str = ""


class Matches(Value):
    """Passages, the most relevant first. `note` describes what was not searched."""

    matches: tuple[Match, ...]
    files: int
    note: str = ""


class Excerpt(Value):
    """Lines of a file, counted from 1, including both ends."""

    path: str
    first_line: int
    last_line: int
    total_lines: int
    text: str


class Folder:
    """A folder for reading. Only regular files of UTF-8 text up to 1 MB are read."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise errors.ConfigurationError(f"{root} is not a folder")
        self._root = root.resolve()

    @tool(read_only=True)
    def list_files(self, pattern: str = "**/*") -> FolderListing:
        """List the files of the folder.

        Args:
            pattern: Which paths: a folder such as docs, or a pattern in which * is any text, in
                folders below too, as in *.md.
        """
        if len(pattern) > _PATTERN_CHARACTERS:
            raise ValueError(
                f"a pattern has at most {_PATTERN_CHARACTERS} characters, not {len(pattern)}"
            )
        glob = str(inside(pattern or "*")).replace("**/", "*")
        walked = list(itertools.islice(self.walk(), _WALKED))
        fitting = [
            path for path in walked if fnmatchcase(path, glob) or fnmatchcase(path, f"{glob}/*")
        ]
        shown = _bounded(fitting[:_LISTED])
        return FolderListing(
            files=tuple(shown), note=_listing_note(len(walked), len(fitting), len(shown))
        )

    @tool(read_only=True)
    def search_files(self, query: str, limit: int = 10) -> Matches:
        """Find the passages of the folder's text files that fit the query best.

        Not every word has to occur.

        Args:
            query: Words to look for; the first 32 count.
            limit: At most this many passages, 1 to 25.
        """
        if limit < 1:
            raise ValueError(f"limit must be 1 to {_MATCHES}, not {limit}")
        with Ranking(keywords(query)[:_QUERY_WORDS]) as ranking:
            files, note = self._take_in(ranking)
            best = ranking.best(min(limit, _MATCHES))
        return Matches(matches=tuple(_bounded(best)), files=files, note=note)

    @tool(read_only=True)
    def read_file(self, path: str, first_line: int = 1, lines: int = 200) -> Excerpt:
        """Read lines of a text file.

        Args:
            path: As list_files and search_files show it, relative to the folder.
            first_line: Where to begin, counted from 1.
            lines: At most this many lines; fewer come back where they are long.
        """
        if first_line < 1 or lines < 1:
            raise ValueError("first_line and lines count from 1")
        everything = lines_of(self.text(path))
        if first_line > len(everything):
            raise ValueError(
                f"{quoted(path)} ends at line {len(everything)}, before line {first_line}"
            )
        selected = everything[first_line - 1 : first_line - 1 + lines]
        shown = _bounded(selected) or [
            head(selected[0], _ANSWER_BYTES // 8) + " [this line is longer]"
        ]
        last = first_line + len(shown) - 1
        return Excerpt(
            path=path,
            first_line=first_line,
            last_line=last,
            total_lines=len(everything),
            text="\n".join(shown),
        )

    def _take_in(self, ranking: Ranking) -> tuple[int, str]:
        """Have all files ranked: how many they were, and what was left out."""
        files = left_out = size = 0
        notes = []
        for path in self.walk():
            if files + left_out >= _SEARCHED_FILES or size >= _SEARCHED_BYTES:
                notes.append(f"stopped early, after {files + left_out} files; there are more")
                break
            try:
                text = self.text(path)
            except ValueError:
                left_out += 1
                continue
            files, size = files + 1, size + len(text)
            ranking.add(path, text)
        if left_out:
            notes.append(
                f"{left_out} file{' was' if left_out == 1 else 's were'} left out: not UTF-8 text,"
                " or over 1 MB"
            )
        return files, ". ".join(notes)

    def walk(self) -> Iterator[str]:
        """Yield regular files, the files of a folder before the files of its subfolders.

        Links are skipped: their targets within the folder are listed anyway.
        """
        for folder, folders, names, fd in os.fwalk(self._root):
            at = PurePosixPath(folder).relative_to(self._root)
            folders[:] = (
                sorted(name for name in folders if not is_hidden(name))
                if len(at.parts) < _DEPTH
                else []
            )
            for name in sorted(names):
                if not is_hidden(name) and _is_regular(name, fd):
                    yield str(at / name)

    def text(self, path: str) -> str:
        """Return the text of a file.

        Raises:
            ValueError: It is not in the folder, not a file, too large, or not text; the message is
                written for the model.
        """
        real = self._resolve(path)
        try:
            with os.fdopen(_open(self._root, real), "rb") as file:
                _check(path, os.fstat(file.fileno()))
                return _decoded(path, file)
        except OSError as error:
            raise ValueError(f"{quoted(path)} cannot be read: {error.strerror}") from None

    def _resolve(self, path: str) -> PurePosixPath:
        """Return the resolved path of a regular file, relative to the folder."""
        try:
            real = Path(os.path.realpath(self._root / inside(path)))
            if not real.is_relative_to(self._root):
                raise ValueError(f"{quoted(path)} is a link that leads out of the folder")
            relative = PurePosixPath(real.relative_to(self._root))
            if any(is_hidden(part) for part in relative.parts):
                raise ValueError(f"{quoted(path)} is hidden; hidden files are not read")
            # before it is opened: opening a FIFO or a device can have effects
            _check(path, real.lstat())
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            reason = (
                "is not in the folder; list_files shows what is"
                if missing
                else f"cannot be read: {error.strerror}"
            )
            raise ValueError(f"{quoted(path)} {reason}") from None
        return relative


def folder_toolbox(root: Path) -> Toolbox:
    """Return a toolbox named "folder" with `list_files`, `search_files` and `read_file`.

    Raises:
        ConfigurationError: `root` is not a folder, or Python's SQLite has no full-text search.
    """
    check_index()
    folder = Folder(root)
    return Toolbox("folder", [folder.list_files, folder.search_files, folder.read_file])


def inside(path: str) -> PurePosixPath:
    """Return `path` if it lexically stays below the folder; links are checked elsewhere."""
    if len(path) > _PATH_CHARACTERS:
        raise ValueError(f"a path has at most {_PATH_CHARACTERS} characters, not {len(path)}")
    if "\0" in path:
        raise ValueError("a path cannot hold a NUL character")
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(
            f"{quoted(path)} leads out of the folder: use a path relative to it, without .."
        )
    return relative


def _open(root: Path, relative: PurePosixPath) -> int:
    """Open a file part by part without following links."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    flags = [os.O_DIRECTORY] * (len(relative.parts) - 1) + [os.O_NONBLOCK | os.O_NOCTTY]
    for part, flag in zip(relative.parts, flags, strict=True):
        try:
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | flag, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def _check(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ValueError(f"{quoted(path)} is a folder; list_files shows what is in it")
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{quoted(path)} is not a regular file")
    if status.st_size > FILE_BYTES:
        raise ValueError(
            f"{quoted(path)} is too large: it has {status.st_size} bytes, and the limit is"
            f" {FILE_BYTES}"
        )


def _decoded(path: str, file: BinaryIO) -> str:
    beginning = file.read(_PROBE_BYTES)
    if b"\0" in beginning:
        raise ValueError(f"{quoted(path)} is a binary file")
    try:
        return (beginning + file.read(FILE_BYTES)).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{quoted(path)} is not text in UTF-8") from None


def is_hidden(name: str) -> bool:
    """Return whether a name is excluded.

    That includes names that are not UTF-8 or have control characters: they cannot be shown, and
    therefore not be requested.
    """
    return name.startswith(".") or name == "node_modules" or _UNSPEAKABLE.search(name) is not None


def _is_regular(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _listing_note(walked: int, fitting: int, shown: int) -> str:
    if not fitting:
        return "no file fits this pattern" if walked else "the folder has no files"
    if walked == _WALKED:
        return f"{shown} of {fitting} files or more: the folder is larger than what is looked at"
    return (
        f"the first {shown} of {fitting} files; a narrower pattern shows the others"
        if shown < fitting
        else ""
    )


def _bounded(items: Sequence[_T]) -> list[_T]:
    """Return the first of `items` that fit into an answer."""
    sizes = itertools.accumulate(len(to_json(item)) + 1 for item in items)
    return [item for item, size in zip(items, sizes, strict=True) if size <= _ANSWER_BYTES]


def quoted(path: str) -> str:
    """Return a path as quoted in errors."""
    return repr(one_line(path, 200))
