"""The toolbox `files`: it reads like the tools in `test_folder_tools`, and writes only inside its
folder.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from perdure import errors
from perdure.activities.toolboxes.files import Written
from perdure.agents.tool_context import encode
from perdure.agents.tools import as_tools
from perdure.toolboxes import files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a document, and a secret next to it."""
    docs = tmp_path / "docs"
    (docs / "guides").mkdir(parents=True)
    (docs / "shop.md").write_text("# Shop\n")
    (tmp_path / "secret.txt").write_text("the password is swordfish")
    return docs


def run(root: Path, name: str, **arguments: object) -> Any:
    """Call a tool as a turn does, with arguments as JSON."""
    tool = {item.name: item for item in as_tools(files(root, write=True).tools)}[name]
    return tool.function(**tool.arguments.parse(encode(arguments)))


def refusal(root: Path, path: str, text: str = "new") -> str:
    """The error for writing `path`."""
    with pytest.raises(ValueError) as caught:
        run(root, "write_file", path=path, text=text)
    return str(caught.value)


def everything(folder: Path) -> dict[str, str]:
    """The files inside a folder, including hidden ones."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_writing_is_only_there_when_asked_for_and_waits_for_approval(root: Path) -> None:
    """Reading is safe to repeat; writing the same text again is, too."""
    reading, writing = (as_tools(files(root, write=write).tools) for write in (False, True))

    assert [item.name for item in reading] == ["list_files", "search_files", "read_file"]
    assert [(item.name, item.read_only, item.requires_approval) for item in writing] == [
        ("list_files", True, False),
        ("search_files", True, False),
        ("read_file", True, False),
        ("write_file", False, True),
    ]
    assert writing[-1].idempotent


def test_folder_may_be_given_as_text_and_has_to_be_one(root: Path) -> None:
    """A wrong path is an error before a turn starts."""
    assert files(str(root)).name == "files"
    with pytest.raises(errors.ConfigurationError, match="is not a folder"):
        files(root / "shop.md", write=True)


def test_what_is_written_can_be_read(root: Path) -> None:
    """A new file, with its parent folders, and the replacement of an existing one; no other file is
    left behind.
    """
    made = run(root, "write_file", path="a/b/new.md", text="Gebühr\n")
    again = run(root, "write_file", path="shop.md", text="")

    assert made == Written(path="a/b/new.md", bytes=8, replaced=False)
    assert again == Written(path="shop.md", bytes=0, replaced=True)
    assert run(root, "read_file", path="a/b/new.md").text == "Gebühr"
    assert everything(root) == {"a/b/new.md": "Gebühr\n", "shop.md": ""}


def test_rights_of_a_file_stay_and_a_new_one_has_the_usual(root: Path) -> None:
    """A script stays executable; a new file follows the umask."""
    (root / "shop.md").chmod(0o750)
    run(root, "write_file", path="shop.md", text="x")
    run(root, "write_file", path="new.md", text="x")
    (root / "plain").touch()

    assert stat.S_IMODE((root / "shop.md").stat().st_mode) == 0o750
    assert (root / "new.md").stat().st_mode == (root / "plain").stat().st_mode


def test_reader_has_the_old_text_or_the_new_one(root: Path) -> None:
    """A reader with an open file keeps the old text: the file is replaced, not overwritten."""
    with (root / "shop.md").open() as old:
        run(root, "write_file", path="shop.md", text="new")

        assert (old.read(), (root / "shop.md").read_text()) == ("# Shop\n", "new")


def test_other_name_of_a_file_outside_is_not_written_through(root: Path) -> None:
    """A hard link looks like a regular file; it is replaced, so the other name keeps its
    content.
    """
    os.link(root.parent / "secret.txt", root / "same.md")
    run(root, "write_file", path="same.md", text="new")

    assert (root.parent / "secret.txt").read_text() == "the password is swordfish"


@pytest.mark.accepts("G6")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.txt", "leads out of the folder"),
        ("guides/../../secret.txt", "leads out of the folder"),
        ("guides/../shop.md", "leads out of the folder"),
        ("..", "leads out of the folder"),
        ("/etc/passwd", "leads out of the folder"),
        ("shop.md\0.txt", "cannot hold a NUL"),
        ("", "is no name of a file"),
        (".", "is no name of a file"),
        ("new/", "is no name of a file"),
        (".env", "is hidden"),
        (".git/hooks/pre-commit", "is hidden"),
        ("node_modules/x/index.js", "is hidden"),
        ("two\nlines.md", "is hidden"),
        ("guides", "is there and not a regular file"),
        ("shop.md/new.md", "cannot be written: Not a directory"),
        ("n" * 5000, "cannot be written: File name too long"),
        ("a/" * 40 + "deep.md", "is more than 32 folders deep"),
    ],
)
def test_path_that_is_none_of_the_folder_is_refused(root: Path, path: str, reason: str) -> None:
    """The error for the model does not contain the path of the folder; nothing is written."""
    before = everything(root.parent)
    said = refusal(root, path)

    assert reason in said
    assert str(root.parent) not in said
    assert everything(root.parent) == before


@pytest.mark.accepts("G6")
@pytest.mark.parametrize("target", ["../secret.txt", "/etc/passwd", "shop.md", "nowhere.md"])
def test_link_is_not_written_through(root: Path, target: str) -> None:
    """It is not replaced either, because that is hardly intended."""
    (root / "link.md").symlink_to(target)

    assert refusal(root, "link.md") == "'link.md' is there and not a regular file"
    assert (root / "link.md").is_symlink()
    assert not (root / "nowhere.md").exists()


@pytest.mark.accepts("G6")
@pytest.mark.parametrize("target", ["..", "/tmp", "guides"])
def test_folder_that_is_a_link_is_not_walked_through(root: Path, target: str) -> None:
    """Each part is opened relative to the one above it without following links, so it does not
    matter when the link was created.
    """
    (root / "up").symlink_to(target, target_is_directory=True)
    before = everything(root.parent)

    assert "'up/secret.txt' cannot be written" in refusal(root, "up/secret.txt")
    assert everything(root.parent) == before


@pytest.mark.accepts("G6")
@pytest.mark.timeout(60)
def test_what_is_no_regular_file_is_not_replaced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO is not opened, so the call does not block; a socket is kept."""
    os.mkfifo(root / "pipe.md")
    monkeypatch.chdir(root)  # a socket's path may have about 100 characters
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.md")
        for name in ("pipe.md", "s.md"):
            assert refusal(root, name) == f"{name!r} is there and not a regular file"
    with pytest.raises(ValueError, match="'null' is there and not a regular file"):
        run(Path("/dev"), "write_file", path="null", text="x")


def test_text_that_could_not_be_read_is_not_written(root: Path) -> None:
    """The same limits as for reading."""
    assert (
        refusal(root, "new.md", "é" * 500_001)
        == "the text is too large: it has 1000002 bytes, and the limit is 1000000"
    )
    assert refusal(root, "new.md", "a\0b") == "a text cannot hold a NUL character"
    assert run(root, "write_file", path="new.md", text="é" * 500_000).bytes == 1_000_000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_cannot_be_written_is_an_error_result(root: Path) -> None:
    """With the system's message, and no file is left behind."""
    (root / "guides").chmod(0o500)
    try:
        assert (
            refusal(root, "guides/new.md") == "'guides/new.md' cannot be written: Permission denied"
        )
    finally:
        (root / "guides").chmod(0o700)


def test_write_that_fails_leaves_nothing_behind(root: Path) -> None:
    """The temporary file is removed; here a limit of 4 KB acts as a full disk."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert (
            refusal(root, "shop.md", "x" * 10_000) == "'shop.md' cannot be written: File too large"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert everything(root) == {"shop.md": "# Shop\n"}
