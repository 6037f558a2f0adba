"""The state folder of the embedded server, if another user may have created it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from perdure import errors
from perdure.worker.dev.server_folder import ServerAddress, StateFolder, running

ADDRESS = ServerAddress(address="127.0.0.1:1", ui=None, pid=1)
FILES = (
    "server.log",
    "server.json",
    "server.json.part",
    "server.lock",
    "temporal.db",
    "temporal.db-wal",
    "temporal.db-shm",
    "temporal.db-journal",
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def text(path: Path) -> str:
    return path.read_text()


async def used(folder: Path) -> None:
    """Create all files of a start, except the database, which the server creates."""
    state = StateFolder(folder)
    lock = await state.lock()
    with state.new_log() as log:
        log.write(b"log")
    state.write(ADDRESS)
    os.close(lock)


@pytest.fixture
def treasure(tmp_path: Path) -> Path:
    path = tmp_path / "bashrc"
    path.write_text("mine")
    return path


@pytest.mark.accepts("P11")
@pytest.mark.parametrize("name", FILES)
async def test_link_in_the_folder_is_refused_and_its_target_is_untouched(
    tmp_path: Path, treasure: Path, name: str
) -> None:
    """A cloned repository with `.perdure/server.log -> ~/.bashrc`: the error has the link and a
    solution.
    """
    folder = tmp_path / ".perdure"
    folder.mkdir()
    (folder / name).symlink_to(treasure)

    with pytest.raises(
        errors.ConfigurationError, match=rf"{name} is not used .*symbolic link.*perdure dev --state"
    ):
        await used(folder)
    with pytest.raises(errors.ConfigurationError, match="symbolic link"):
        await running(folder)

    assert text(treasure) == "mine"


@pytest.mark.accepts("P11")
async def test_link_that_leads_nowhere_makes_no_file(tmp_path: Path) -> None:
    """A new file is refused like an overwritten one."""
    folder = tmp_path / ".perdure"
    folder.mkdir()
    (folder / "server.lock").symlink_to(tmp_path / "new")

    with pytest.raises(errors.ConfigurationError, match="symbolic link"):
        await used(folder)

    assert not (tmp_path / "new").exists()


@pytest.mark.accepts("P11")
async def test_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Nothing is created at its target."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".perdure").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(errors.ConfigurationError, match="it is a symbolic link"):
        await used(tmp_path / ".perdure")

    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_hard_link_and_fifo_are_refused(tmp_path: Path, treasure: Path) -> None:
    """The server opens the database in place, so its file must have no other name."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (one / "temporal.db").hardlink_to(treasure)
    os.mkfifo(other / "server.log")

    with pytest.raises(errors.ConfigurationError, match="hard link"):
        await used(one)
    with pytest.raises(errors.ConfigurationError, match="not a regular file"):
        await used(other)


@pytest.mark.accepts("P11")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
async def test_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its owner could replace its content at any time."""
    folder = tmp_path / ".perdure"
    folder.mkdir()
    os.chown(folder, 12345, 12345)

    with pytest.raises(errors.ConfigurationError, match=r"belongs to another user \(uid 12345\)"):
        await used(folder)


@pytest.mark.accepts("P11")
async def test_folder_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Including those that an earlier release left readable for others."""
    folder = tmp_path / ".perdure"
    folder.mkdir(mode=0o755)
    for name in FILES:
        (folder / name).write_text("{}")
        (folder / name).chmod(0o644)
    await used(folder)
    new = tmp_path / "a" / "new"
    await used(new)

    assert (mode(folder), mode(new)) == (0o700, 0o700)
    assert {mode(path) for path in (*folder.iterdir(), *new.iterdir())} == {0o600}
    assert {path.name for path in new.iterdir()} == {"server.lock", "server.log", "server.json"}
