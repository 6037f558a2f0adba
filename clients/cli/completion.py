"""`perdure completion`: a script by which a shell completes commands, options, choices and folders.

It is made once and costs nothing later.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure import errors
from perdure.clients.cli.arguments import examples
from perdure.clients.cli.screen import put

SHELLS = ("bash", "zsh", "fish")
_NOT_AN_OPTION = {"zsh": "_guard '^-*' ''"}
"""Of an argument that nothing completes.

Else zsh would take the beginning of an option for one, and not complete the option.
"""


def register(subparsers: Any, parser: argparse.ArgumentParser) -> None:
    """Add the command, which completes all that `parser` knows when it runs."""
    command = subparsers.add_parser(
        "completion",
        help="a script for your shell's Tab key",
        description="Print a script that completes commands, options and choices.",
        epilog=examples(
            'eval "$(perdure completion bash)"   # in ~/.bashrc',
            'eval "$(perdure completion zsh)"    # in ~/.zshrc, after compinit',
            "perdure completion fish > ~/.config/fish/completions/perdure.fish",
        ),
    )
    command.add_argument("shell", choices=SHELLS, help="which shell")
    command.set_defaults(run=lambda arguments: complete(arguments, parser))


async def complete(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """`perdure completion SHELL`."""
    put(script(parser, arguments.shell))
    return 0


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """What the shell is to read.

    Raises:
        ConfigurationError: The library that writes it is not installed.
    """
    try:
        import shtab
    except ModuleNotFoundError:
        raise errors.ConfigurationError(
            "completion needs the extra of this name: pip install 'perdure[completion]'"
        ) from None
    for action in _actions(parser):
        if action.type is Path:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # how shtab is told
        elif shell == "zsh" and not action.option_strings and not action.choices:
            action.complete = _NOT_AN_OPTION  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options and arguments, of all commands."""
    for action in parser._actions:  # noqa: SLF001 - shtab reads the parser by the same name
        yield action
        if action.nargs == argparse.PARSER:
            for below in dict(action.choices or {}).values():
                yield from _actions(below)
