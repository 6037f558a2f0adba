"""The tools of a folder, on real folders."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from perdure import errors
from perdure.activities.toolboxes import folder, search
from perdure.activities.toolboxes.folder import Excerpt, FolderListing, Matches, folder_toolbox
from perdure.activities.toolboxes.search import Match
from perdure.agents.tool_context import encode
from perdure.agents.tools import as_tools

REFUNDS = """# Shop

## Refunds

Money comes back within 14 days.

## Shipping

Parcels leave on Mondays.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two documents, and a secret next to it."""
    docs = tmp_path / "docs"
    (docs / "guides").mkdir(parents=True)
    (docs / "shop.md").write_text(REFUNDS)
    (docs / "guides" / "setup.md").write_text("# Setup\n\nInstall it, then start the worker.\n")
    (tmp_path / "secret.txt").write_text("the password is swordfish")
    return docs


def run(root: Path, name: str, **arguments: object) -> Any:
    """Call a tool as a turn does, with arguments as JSON."""
    tool = {item.name: item for item in as_tools(folder_toolbox(root).tools)}[name]
    return tool.function(**tool.arguments.parse(encode(arguments)))


def refusal(root: Path, path: str) -> str:
    """The error for reading `path`."""
    with pytest.raises(ValueError) as caught:
        run(root, "read_file", path=path)
    return str(caught.value)


def test_tools_are_read_only_and_described(root: Path) -> None:
    """They are safe to repeat, and each argument has a description."""
    box = folder_toolbox(root)
    tools = as_tools(box.tools)
    schemas: list[Any] = [item.arguments.schema for item in tools]

    assert (box.name, [item.name for item in tools]) == (
        "folder",
        ["list_files", "search_files", "read_file"],
    )
    assert all(item.read_only and not item.is_async and item.description for item in tools)
    assert all(
        argument["description"] for schema in schemas for argument in schema["properties"].values()
    )


def test_root_that_is_no_folder_is_a_configuration_error(root: Path) -> None:
    """A wrong path is an error before a turn starts."""
    with pytest.raises(errors.ConfigurationError, match="is not a folder"):
        folder_toolbox(root / "shop.md")


def test_file_is_read_with_its_place(root: Path) -> None:
    """Lines are counted from 1, and the result has their number."""
    excerpt = run(root, "read_file", path="shop.md", first_line=3, lines=3)

    assert excerpt == Excerpt(
        path="shop.md",
        first_line=3,
        last_line=5,
        total_lines=9,
        text="## Refunds\n\nMoney comes back within 14 days.",
    )


def test_windows_lines_and_byte_order_mark_are_taken_off(root: Path) -> None:
    """They are invisible in an editor, and the model does not get them."""
    (root / "notes.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")

    assert run(root, "read_file", path="notes.txt").text == "one\ntwo"


def test_reading_past_the_end_says_where_the_end_is(root: Path) -> None:
    """The model can correct itself."""
    with pytest.raises(ValueError, match="ends at line 9"):
        run(root, "read_file", path="shop.md", first_line=10)


@pytest.mark.parametrize("arguments", [{"first_line": 0}, {"lines": 0}, {"first_line": -5}])
def test_line_numbers_below_one_are_refused(root: Path, arguments: dict[str, int]) -> None:
    """There is no line 0, and a negative one would count from the end."""
    with pytest.raises(ValueError, match="count from 1"):
        run(root, "read_file", path="shop.md", **arguments)


def test_long_lines_are_cut_before_the_result_would_be_clipped(root: Path) -> None:
    """A truncated result would be invalid JSON."""
    (root / "wide.txt").write_text("\n".join(["x" * 1000] * 100))
    (root / "widest.txt").write_text('"\x01' * 100_000)

    wide, widest = (
        run(root, "read_file", path="wide.txt"),
        run(root, "read_file", path="widest.txt"),
    )

    assert wide.last_line == 49
    assert widest.text.endswith("[this line is longer]")
    assert all(len(encode(excerpt)) < 60_000 for excerpt in (wide, widest))


@pytest.mark.parametrize(
    "path", ["../secret.txt", "guides/../../secret.txt", "guides/../shop.md", ".."]
)
def test_path_with_two_dots_is_refused(root: Path, path: str) -> None:
    """Even if it leads back into the folder."""
    assert "leads out of the folder" in refusal(root, path)


def test_absolute_path_is_refused_even_into_the_folder(root: Path) -> None:
    """The model has no use for the location of the folder."""
    assert "leads out of the folder" in refusal(root, "/etc/passwd")
    assert "leads out of the folder" in refusal(root, str(root / "shop.md"))


def test_path_with_nul_is_refused(root: Path) -> None:
    """The system would cut the path there."""
    assert refusal(root, "shop.md\0.txt") == "a path cannot hold a NUL character"


@pytest.mark.parametrize("target", ["../secret.txt", "/etc/passwd", "../nowhere.txt"])
def test_link_to_a_file_outside_is_refused(root: Path, target: str) -> None:
    """The error does not reveal whether the file outside exists."""
    (root / "link.md").symlink_to(target)

    assert refusal(root, "link.md") == "'link.md' is a link that leads out of the folder"


def test_link_to_a_folder_outside_is_refused_in_the_middle_of_a_path(root: Path) -> None:
    """Every part of the path is checked, not only the last one."""
    (root / "guides" / "up").symlink_to(root.parent, target_is_directory=True)

    assert "leads out of the folder" in refusal(root, "guides/up/secret.txt")


def test_link_that_appears_after_the_check_is_not_followed(root: Path) -> None:
    """The file is opened without following links, so there is no race."""
    (root / "late").symlink_to(root.parent, target_is_directory=True)

    with pytest.raises(OSError):
        folder._open(root, PurePosixPath("late/secret.txt"))


def test_link_inside_the_folder_is_read(root: Path) -> None:
    """Its target could be read anyway."""
    (root / "alias.md").symlink_to("guides/setup.md")

    assert run(root, "read_file", path="alias.md").text.startswith("# Setup")


def test_links_in_a_circle_are_refused(root: Path) -> None:
    """The system's own error does not reach the model."""
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")

    assert "is not a regular file" in refusal(root, "a")


def test_folder_given_through_a_link_is_the_folder_itself(root: Path) -> None:
    """Only the paths of the model are untrusted."""
    (root.parent / "shortcut").symlink_to(root, target_is_directory=True)

    assert run(root.parent / "shortcut", "read_file", path="shop.md").total_lines == 9


@pytest.mark.timeout(60)
def test_fifo_is_refused_without_waiting_for_a_writer(root: Path) -> None:
    """Opening a FIFO blocks until there is a writer; search and list skip it, too."""
    os.mkfifo(root / "pipe.md")

    assert refusal(root, "pipe.md") == "'pipe.md' is not a regular file"
    assert "pipe.md" not in run(root, "list_files").files
    assert run(root, "search_files", query="refunds").files == 2


@pytest.mark.timeout(60)
def test_fifo_is_not_opened_so_its_writer_does_not_notice(root: Path) -> None:
    """A writer would be woken by a reader that closes it at once."""
    os.mkfifo(root / "pipe.md")
    writer = threading.Thread(target=(root / "pipe.md").write_text, args=("hello",), daemon=True)
    writer.start()

    assert "is not a regular file" in refusal(root, "pipe.md")
    assert (root / "pipe.md").read_text() == "hello"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty"])
def test_device_through_a_link_is_refused(root: Path, device: str) -> None:
    """A device has no end."""
    (root / "endless.md").symlink_to(device)

    assert "leads out of the folder" in refusal(root, "endless.md")


@pytest.mark.timeout(60)
def test_device_in_the_folder_itself_is_refused() -> None:
    """Even if the folder is one that has devices."""
    assert refusal(Path("/dev"), "zero") == "'zero' is not a regular file"


def test_socket_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only regular files are read."""
    monkeypatch.chdir(root)  # a socket's path may have about 100 characters
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.md")

        assert refusal(root, "s.md") == "'s.md' is not a regular file"


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("image.md", b"GIF89a\0\0\0", "is a binary file"),
        ("latin.md", "Gebühr".encode("latin-1"), "is not text in UTF-8"),
        (
            "large.md",
            b"refunds " * 125_001,
            "is too large: it has 1000008 bytes, and the limit is 1000000",
        ),
    ],
)
def test_what_is_no_text_or_too_large_is_refused_and_left_out_of_search(
    root: Path, name: str, data: bytes, reason: str
) -> None:
    """Reading gives the reason; search gives the number of files that it skipped."""
    (root / name).write_bytes(data)

    assert refusal(root, name) == f"{name!r} {reason}"
    assert (
        run(root, "search_files", query="refunds").note
        == "1 file was left out: not UTF-8 text, or over 1 MB"
    )


def test_file_of_exactly_one_megabyte_is_read(root: Path) -> None:
    """The limit is inclusive."""
    (root / "full.txt").write_bytes(b"x\n" * 500_000)

    assert run(root, "read_file", path="full.txt").total_lines == 500_000


def test_folder_and_missing_file_are_refused_with_a_way_on(root: Path) -> None:
    """The error suggests what to do instead, and reveals nothing of the machine."""
    reasons = [
        refusal(root, path) for path in ("guides", "", "nothing.md", "shop.md/x", "n" * 5000)
    ]

    assert reasons[0] == "'guides' is a folder; list_files shows what is in it"
    assert "is a folder" in reasons[1]
    assert reasons[2] == "'nothing.md' is not in the folder; list_files shows what is"
    assert "is not in the folder" in reasons[3]
    assert "cannot be read: File name too long" in reasons[4]
    assert not any(str(root) in reason for reason in reasons)


@pytest.mark.parametrize(
    "path", [".env", ".git/config", "node_modules/it/index.md", "guides/.venv/lib.md"]
)
def test_hidden_files_are_neither_listed_nor_searched_nor_read(root: Path, path: str) -> None:
    """Keys and other people's code are not part of a folder of documents."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("refunds refunds refunds")
    (root / "alias.md").symlink_to(path)

    assert path not in run(root, "list_files").files
    assert [match.path for match in run(root, "search_files", query="refunds").matches] == [
        "shop.md"
    ]
    assert "is hidden" in refusal(root, path)
    assert "is hidden" in refusal(root, "alias.md")


def test_files_are_listed_in_order_and_links_are_not(root: Path) -> None:
    """Those of the folder first, then those of its subfolders."""
    (root / "alias.md").symlink_to("shop.md")
    (root / "outside").symlink_to(root.parent, target_is_directory=True)
    (root / "zebra.txt").write_text("")

    assert run(root, "list_files") == FolderListing(
        files=("shop.md", "zebra.txt", "guides/setup.md")
    )


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*.md", ("shop.md", "guides/setup.md")),
        ("**/*.md", ("shop.md", "guides/setup.md")),
        ("guides", ("guides/setup.md",)),
        ("guides/*", ("guides/setup.md",)),
        ("./guides/**/*.md", ("guides/setup.md",)),
        ("", ("shop.md", "guides/setup.md")),
    ],
)
def test_pattern_chooses_files(root: Path, pattern: str, files: tuple[str, ...]) -> None:
    """Common patterns have their usual meaning."""
    assert run(root, "list_files", pattern=pattern).files == files


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "guides/../../*", "*\0"])
def test_pattern_cannot_leave_the_folder(root: Path, pattern: str) -> None:
    """A pattern is checked like a path."""
    with pytest.raises(ValueError):
        run(root, "list_files", pattern=pattern)


@pytest.mark.timeout(60)
def test_pattern_of_many_stars_ends_promptly(root: Path) -> None:
    """A pattern of a model must never take a minute."""
    (root / ("a" * 200)).write_text("")

    assert run(root, "list_files", pattern="*a" * 60 + "b").note == "no file fits this pattern"


def test_long_listing_is_cut_and_says_how_many_there_are(root: Path) -> None:
    """500 names at most."""
    for number in range(600):
        (root / f"{number:03}.txt").touch()
    listing = run(root, "list_files", pattern="*.txt")

    assert len(listing.files) == 500
    assert listing.note == "the first 500 of 600 files; a narrower pattern shows the others"


def test_name_that_cannot_be_shown_is_left_out(root: Path) -> None:
    """A name that is not UTF-8 would make the whole result invalid."""
    try:
        (root / os.fsdecode(b"bad\xff.md")).write_text("refunds")
    except OSError:
        pytest.skip("this file system has UTF-8 names only")

    assert encode(run(root, "list_files")) == '{"files":["shop.md","guides/setup.md"],"note":""}'
    assert run(root, "search_files", query="refunds").files == 2


def test_search_finds_the_section_with_its_heading_and_line(root: Path) -> None:
    """The complete result, as the model gets it."""
    found = run(root, "search_files", query="refunds")

    assert found == Matches(
        matches=(
            Match(
                path="shop.md",
                line=3,
                heading="Refunds",
                text="## Refunds\n\nMoney comes back within 14 days.",
            ),
        ),
        files=2,
    )


@pytest.mark.parametrize(
    ("query", "heading"),
    [
        ("When will my parcel leave?", "Shipping"),
        ("how do I get a refund", "Refunds"),
        ("installing", "Setup"),
        ("Where is the WORKER started?", "Setup"),
    ],
)
def test_question_finds_the_section_that_answers_it(root: Path, query: str, heading: str) -> None:
    """Endings, capitals and common words do not matter."""
    assert run(root, "search_files", query=query).matches[0].heading == heading


def test_word_in_the_heading_counts_more_than_words_in_passing(root: Path) -> None:
    """The heading states the topic of a section."""
    (root / "a.md").write_text("# News\n\nA budget was mentioned, and the budget again.\n")
    (root / "b.md").write_text(
        "# Budget\n\nIt is agreed upon each spring, by everybody together.\n"
    )

    assert [match.path for match in run(root, "search_files", query="budget").matches] == [
        "b.md",
        "a.md",
    ]


def test_rare_word_counts_more_than_a_frequent_one(root: Path) -> None:
    """A word that every file has is not distinctive."""
    for number in range(5):
        (root / f"{number}.md").write_text("The worker does things, as a worker does.")
    (root / "z.md").write_text(
        "Sometimes a lighthouse is needed, and it takes many more words to say so than one would"
        " think."
    )

    assert run(root, "search_files", query="worker lighthouse").matches[0].path == "z.md"


def test_passage_with_all_the_words_comes_first(root: Path) -> None:
    """Even if another one has a rare word in its heading."""
    (root / "a.md").write_text("# Twice\n\nThe same request twice starts one turn.\n")
    (root / "b.md").write_text(
        "# Safety\n\n" + "Much is said here, and at length. " * 15 + "A tool may run twice.\n"
    )

    assert [
        match.path for match in run(root, "search_files", query="may a tool run twice").matches
    ] == ["b.md", "a.md"]


def test_equal_passages_come_by_path_then_line(root: Path) -> None:
    """The same folder and query give the same result."""
    for path in ("c.txt", "a.txt", "b.txt"):
        (root / path).write_text("lighthouse")
    (root / "twice.md").write_text("## X\n\nlantern\n\n## X\n\nlantern\n")

    assert [match.path for match in run(root, "search_files", query="lighthouse").matches] == [
        "a.txt",
        "b.txt",
        "c.txt",
    ]
    assert [match.line for match in run(root, "search_files", query="lantern").matches] == [1, 5]


def test_long_section_is_found_by_its_paragraph(root: Path) -> None:
    """The line is the passage's, the heading the section's."""
    filler = "\n\n".join(
        ["Nothing much is said here, at some length, so that it fills the page."] * 30
    )
    (root / "long.md").write_text(f"# Manual\n\n{filler}\n\nThe lighthouse is white.\n\n{filler}\n")
    match = run(root, "search_files", query="lighthouse").matches[0]

    assert (match.path, match.heading) == ("long.md", "Manual")
    assert match.line > 50
    assert "The lighthouse is white." in match.text


@pytest.mark.parametrize(
    ("name", "text", "headings"),
    [
        (
            "a.md",
            "# A\n\n## B\n\nx\n\n```sh\n# no heading\n```\n\n## C ##\n\ny\n",
            [(3, ("A", "B")), (11, ("A", "C"))],
        ),
        ("a.rst", "A\n===\n\nx\n\nB b\n---\n\ny\n", [(1, ("A",)), (6, ("A", "B b"))]),
        ("a.py", "# a comment\nx = 1\n", [(1, ())]),
        ("a.md", "---\ntitle: T\n---\n\nx\n", [(1, ())]),
        ("a.md", "", [(1, ())]),
    ],
)
def test_text_is_cut_at_its_headings(
    name: str, text: str, headings: list[tuple[int, tuple[str, ...]]]
) -> None:
    """A comment in code and front matter are not headings; a heading with only subsections is not a
    section.
    """
    assert [(section.line, section.headings) for section in search.sections(name, text)] == headings


@pytest.mark.timeout(60)
def test_hostile_text_is_searched_promptly(root: Path) -> None:
    """Adversarial input takes no longer than other input of its size."""
    (root / "evil.md").write_text("# " * 200_000 + "x\n" + "=" * 300_000 + "x\n" + " " * 200_000)

    assert run(root, "search_files", query="refunds").files == 3


def test_search_for_what_is_nowhere_finds_nothing(root: Path) -> None:
    """An empty result is not an error."""
    assert run(root, "search_files", query="xyzzy") == Matches(matches=(), files=2)


@pytest.mark.parametrize("query", ["", "  ?! "])
def test_query_without_words_is_refused(root: Path, query: str) -> None:
    """The error says what is missing."""
    with pytest.raises(ValueError, match="has no words"):
        run(root, "search_files", query=query)


@pytest.mark.parametrize(
    "query",
    [
        'refunds" OR "',
        "NEAR(refunds, 2)",
        "heading: refunds",
        "^refunds*",
        "NOT refunds AND - {",
        "refunds\0",
    ],
)
def test_query_is_words_and_no_syntax(root: Path, query: str) -> None:
    """Operators of the search engine are searched for, or left out."""
    assert [match.heading for match in run(root, "search_files", query=query).matches] == [
        "Refunds"
    ]


def test_accents_and_case_do_not_matter(root: Path) -> None:
    """In either direction."""
    (root / "menu.txt").write_text("Crème brûlée is served.")

    assert [match.path for match in run(root, "search_files", query="CREME BRULEE").matches] == [
        "menu.txt"
    ]
    assert [match.heading for match in run(root, "search_files", query="réfunds").matches] == [
        "Refunds"
    ]


def test_python_without_full_text_search_is_refused_before_any_turn() -> None:
    """The error names what is missing and a solution."""
    with pytest.raises(
        errors.ConfigurationError,
        match=(
            r"search_files needs SQLite's FTS0, and this Python has SQLite .* without it; use a"
            r" Python"
        ),
    ):
        search.check_index("fts0")


@pytest.mark.timeout(60)
def test_query_of_many_words_ends_promptly(root: Path) -> None:
    """A model may send a whole page; only its first words are used."""
    for number in range(50):
        (root / f"{number}.txt").write_text("\n\n".join(["lighthouse " * 80] * 20))
    query = "refunds " + " ".join(f"word{number}" for number in range(50_000))

    assert run(root, "search_files", query=query).matches[0].heading == "Refunds"


def test_limit_is_at_least_one_and_at_most_25(root: Path) -> None:
    """More than 25 are not returned, fewer than 1 is invalid."""
    for number in range(40):
        (root / f"{number}.txt").write_text("lighthouse")

    assert len(run(root, "search_files", query="lighthouse", limit=3).matches) == 3
    assert len(run(root, "search_files", query="lighthouse", limit=1000).matches) == 25
    with pytest.raises(ValueError, match="limit must be 1 to 25"):
        run(root, "search_files", query="lighthouse", limit=0)


@pytest.mark.slow
def test_search_that_stops_early_says_so(root: Path) -> None:
    """5,000 files are searched at most."""
    for number in range(5_000):
        (root / f"{number:04}.txt").touch()
    found = run(root, "search_files", query="worker")

    assert found == Matches(
        matches=(), files=5_000, note="stopped early, after 5000 files; there are more"
    )


def test_long_result_stays_json(root: Path) -> None:
    """The largest search result is below the limit of a tool result."""
    for number in range(30):
        (root / f"{number}.txt").write_text(("lighthouse " + '"é\\' * 20) * 30)
    found = run(root, "search_files", query="lighthouse", limit=25)

    assert len(encode(found).encode()) < 64 * 1024
    assert Matches.model_validate_json(encode(found)) == found


def test_pattern_and_path_have_a_length(root: Path) -> None:
    """Python's translation of brackets takes quadratic time, and so does resolving a path."""
    for tool, words in (
        ("list_files", "a pattern has at most 500 characters, not 20000"),
        ("read_file", "a path has at most 10000 characters, not 20000"),
    ):
        with pytest.raises(ValueError, match=words):
            run(root, tool, **{"pattern" if tool == "list_files" else "path": "[" * 20_000})
