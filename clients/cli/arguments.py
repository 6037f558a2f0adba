"""The parser of the command line.

Commands in groups, an example for each, and mistakes said in one line with what to do.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Iterable
from typing import Any, NoReturn

from perdure.clients.cli.exits import USAGE
from perdure.text import one_line

GROUPS = {
    "turns": ("run", "show", "list", "approvals", "add-budget", "resume", "cancel"),
    "workers and servers": ("dev", "worker", "setup"),
    "to try it": ("ask", "demo"),
}
_MOST_COLUMNS = 100
_NO_COMMAND = re.compile(r"argument COMMAND: invalid choice: '(.*?)' \(")
_WORDS = (
    (re.compile(r"invalid int value: (.*)"), r"\1 is no whole number"),
    (re.compile(r"invalid float value: (.*)"), r"\1 is no number"),
)
"""How argparse refuses a value of these types, and how it is said here."""


class Help(argparse.RawDescriptionHelpFormatter):
    """Help that is no wider than one reads, with the commands in groups."""

    def __init__(self, prog: str) -> None:
        super().__init__(
            prog,
            max_help_position=28,
            width=min(shutil.get_terminal_size().columns, _MOST_COLUMNS) - 2,
        )

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """One paragraph is filled; what has lines of its own keeps them."""
        return super()._fill_text(
            text if "\n" in text else textwrap.fill(text, width), width, indent
        )

    def _format_action(self, action: argparse.Action) -> str:
        if action.nargs != argparse.PARSER:
            return super()._format_action(action)
        helps = {one.dest: one.help or "" for one in self._iter_indented_subactions(action)}
        named = {name for names in GROUPS.values() for name in names}
        groups = {**GROUPS, "more": tuple(name for name in helps if name not in named)}
        return "\n".join(
            _group(title, {name: helps[name] for name in names if name in helps})
            for title, names in groups.items()
        )


class Parser(argparse.ArgumentParser):
    """Says a mistake in one line.

    An option is known by its whole name alone, as a new option may begin with the same letters.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Help, "allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is left over here: the parser of a command knows which help describes it."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left

    def error(self, message: str) -> NoReturn:
        """End with what is wrong, and where to read on."""
        unknown = _NO_COMMAND.match(message)
        said = (
            self._unknown(unknown[1])
            if unknown
            else re.sub(r"^argument (\S+?)(/\S+)?: ", r"\1: ", message)
        )
        for pattern, words in _WORDS:
            said = pattern.sub(words, said)
        self.exit(USAGE, f"{self.prog}: {one_line(said, 500)}; see {self.prog} --help\n")

    def _unknown(self, name: str) -> str:
        names = [
            known
            for action in self._actions
            if action.nargs == argparse.PARSER
            for known in action.choices or ()
        ]
        meant = difflib.get_close_matches(name, names, 1)
        return f"there is no command {name!r}" + (f" (did you mean {meant[0]!r}?)" if meant else "")


def examples(*lines: str) -> str:
    """Commands to copy, for the end of a command's help."""
    return "\n".join([f"example{'s' * (len(lines) > 1)}:", *(f"  {line}" for line in lines)])


def whole_number(text: str) -> int:
    """The type of an option that counts something."""
    if not text.lstrip("-").isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def _group(title: str, helps: dict[str, str]) -> str:
    return "\n".join([f"  {title}", *_rows(helps.items()), ""]) if helps else ""


def _rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"    {name:<12} {text}" for name, text in pairs]
