"""A folder as a toolbox: the tools of `perdure.activities.toolboxes.folder`, and one that writes.

A file is written next to its target under a random name and then renamed, so a reader sees either
the old or the new text. Every folder on the way is opened from its parent without following links,
so there is no moment at which a link could be inserted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from perdure.activities.toolboxes import folder as reading
from perdure.agents.tools import Toolbox, tool
from perdure.base import Value
from perdure.text import size

_DEPTH = 32


class Written(Value):
    """A written file. `replaced` says whether it existed before."""

    path: str
    bytes: int
    replaced: bool


def files(folder: Path | str, *, write: bool = False) -> Toolbox:
    """Return a toolbox named "files" with `list_files`, `search_files` and `read_file`.

    Args:
        folder: The folder.
        write: Whether to add `write_file`, each call of which requires approval.

    Raises:
        ConfigurationError: `folder` is not a folder.
    """
    root = Path(folder)
    tools = reading.folder_toolbox(root).tools
    return Toolbox("files", [*tools, FileWriter(root).write_file] if write else tools)


class FileWriter:
    """Writes text files below `root` only."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    @tool(idempotent=True, requires_approval=True)
    def write_file(self, path: str, text: str) -> Written:
        """Write a text file of the folder: a new one, or all of an old one.

        Folders on the way are made.

        Args:
            path: Relative to the folder.
            text: All that the file shall hold.
        """
        parts = _parts(path)
        if (length := size(text)) > reading.FILE_BYTES:
            raise ValueError(
                f"the text is too large: it has {length} bytes, and the limit is"
                f" {reading.FILE_BYTES}"
            )
        if "\0" in text:
            raise ValueError("a text cannot hold a NUL character")
        try:
            with _opened(self._root, parts[:-1]) as inner:
                old = _regular(path, parts[-1], inner)
                _put(
                    parts[-1],
                    text.encode(),
                    inner,
                    None if old is None else stat.S_IMODE(old.st_mode) & 0o777,
                )
        except OSError as error:
            raise ValueError(
                f"{reading.quoted(path)} cannot be written: {error.strerror}"
            ) from None
        return Written(path="/".join(parts), bytes=length, replaced=old is not None)


def _parts(path: str) -> tuple[str, ...]:
    relative: PurePosixPath = reading.inside(path)
    if not relative.parts or path.endswith("/"):
        raise ValueError(f"{reading.quoted(path)} is no name of a file")
    if any(reading.is_hidden(part) for part in relative.parts):
        raise ValueError(f"{reading.quoted(path)} is hidden; hidden files are not written")
    if len(relative.parts) > _DEPTH:
        raise ValueError(f"{reading.quoted(path)} is more than {_DEPTH} folders deep")
    return relative.parts


@contextlib.contextmanager
def _opened(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """Open the folder `parts` below `root`, creating missing folders."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=fd)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _regular(path: str, name: str, folder: int) -> os.stat_result | None:
    """Return the status of an existing file; None if there is none.

    A rename would replace a link, a FIFO or a device, which is never intended.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{reading.quoted(path)} is there and not a regular file")
    return status


def _put(name: str, data: bytes, folder: int, mode: int | None) -> None:
    beside = f".{secrets.token_hex(8)}.tmp"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            if mode is not None:
                os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
