"""All output for people is printed in one place, which escapes terminal control sequences."""

import ast
import io
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from perdure.clients.cli.drawing.screen import lines_of, put

ROOT = Path(__file__).parents[2]
SHOWING = [
    *sorted((ROOT / "clients").rglob("*.py")),
    ROOT / "worker" / "commands.py",
    ROOT / "perdure" / "__main__.py",
]
MAY_PRINT = {
    "clients/cli/drawing/screen.py: put",
    "clients/cli/drawing/screen.py: erase",
    "worker/commands.py: _say",
    "worker/commands.py: _introduce",
    "worker/commands.py: _tell",
}
"""`erase` moves the cursor; `_say` and `_tell` escape; `_introduce` prints JSON of our own in
ASCII.
"""


class Terminal(io.StringIO):
    """A terminal that keeps its output."""

    def isatty(self) -> bool:
        return True


def writers(path: Path) -> set[str]:
    """The functions of a file that print or write to a standard stream."""
    found = set()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
            if any(
                ast.unparse(call) == "print"
                or ast.unparse(call).endswith(("stdout.write", "stderr.write"))
                for call in calls
            ):
                found.add(f"{path.relative_to(ROOT)}: {function.name}")
    return found


@pytest.mark.accepts("G7")
def test_commands_print_in_one_place() -> None:
    """A print anywhere else would bypass it."""
    assert set().union(*map(writers, SHOWING)) == MAY_PRINT


@pytest.mark.accepts("G7")
def test_what_was_not_escaped_is_escaped() -> None:
    """On a terminal, line breaks and tabs are kept; a pipe gets the text unchanged."""
    screen, pipe = Terminal(), io.StringIO()
    put("\x1b[31mred\n\t\x1b[2J\x1b[5m\r\x9b\u202e", screen)
    put("\x1b[2J\x07", pipe)

    assert screen.getvalue() == "\\u001b[31mred\n\t\\u001b[2J\\u001b[5m\\u000d\\u009b\\u202e\n"
    assert pipe.getvalue() == "\x1b[2J\x07\n"


@pytest.mark.accepts("G7")
def test_what_rich_draws_is_escaped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of a table, and a `Text` with a style."""
    monkeypatch.setenv("NO_COLOR", "1")
    table, screen = Table.grid(), Terminal()
    table.add_row(Text("\x1b[2J\u202e"))
    for line in (*lines_of(table, screen), Text("\x1b[2J\u202e", "red")):
        put(line, screen)

    assert screen.getvalue().startswith("\\u0")
    assert screen.getvalue().endswith("\n\\u001b[2J\\u202e\n")
    assert {"\x1b", "\u202e"} & set(screen.getvalue()) == set()


@pytest.mark.accepts("G20")
@pytest.mark.parametrize(
    "text",
    [
        "[red]x[/red]",
        ":smile: [link=http://evil]y[/link]",
        "\\[bold]",
        "[/]",
        "1 http://x 'y' None",
    ],
)
def test_markup_of_others_is_text(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """It becomes no style, no link and no emoji, and nothing of it is lost or highlighted."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table, screen = Table.grid(), Terminal()
    table.add_row(Text(text))
    lines: list[str | Text] = [text, Text(text), *lines_of(table, screen)]
    for line in lines:
        put(line, screen)

    assert screen.getvalue() == f"{text}\n" * 3


@pytest.mark.accepts("G20")
def test_rich_is_given_no_strings() -> None:
    """`Text` is never parsed as markup; a string is, unless the console is configured not to."""
    readers = ("from_markup", "rich.print", "rich.markup")
    assert [
        str(path)
        for path in SHOWING
        if any(reader in path.read_text(encoding="utf-8") for reader in readers)
    ] == []
    assert [
        str(path)
        for path in SHOWING
        if "rich.console import" in path.read_text(encoding="utf-8") and path.name != "screen.py"
    ] == []
