"""What people see is printed in one place, which lets nothing through that a terminal would obey."""

import ast
import io
from pathlib import Path

import pytest

from perdure.clients.cli.screen import Paint, put

ROOT = Path(__file__).parents[2]
SHOWING = [
    *sorted((ROOT / "clients").rglob("*.py")),
    ROOT / "worker" / "commands.py",
    ROOT / "perdure" / "__main__.py",
]
MAY_PRINT = {
    "clients/cli/screen.py: put",
    "clients/cli/screen.py: erase",
    "worker/commands.py: _say",
    "worker/commands.py: _introduce",
    "worker/commands.py: _tell",
}
"""`erase` moves the cursor; `_say` and `_tell` escape; `_introduce` prints JSON of our own in
ASCII.
"""


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

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
    """A print anywhere else would be a way around it."""
    assert set().union(*map(writers, SHOWING)) == MAY_PRINT


@pytest.mark.accepts("G7")
def test_what_somebody_forgot_to_escape_is_escaped() -> None:
    """Colours of ours, line breaks and tabs pass; a pipe gets the text as it is."""
    colours = "\x1b[31mred\x1b[0m\n\t"
    screen, pipe = Terminal(), io.StringIO()
    put(f"{colours}\x1b[2J\x1b[5m\r\x9b\u202e", screen)
    put("\x1b[2J", pipe)

    assert screen.getvalue() == f"{colours}\\u001b[2J\\u001b[5m\\u000d\\u009b\\u202e\n"
    assert pipe.getvalue() == "\x1b[2J\n"
    assert Paint(screen)("dim", "x") in ("\x1b[2mx\x1b[0m", "x")
