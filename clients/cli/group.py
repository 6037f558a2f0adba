"""Commands and their help: commands in groups, options in sections, examples to copy."""

from __future__ import annotations

import re

import click

from perdure.clients.cli.exits import MEANINGS

GROUPS = {
    "Turns": (
        "run",
        "show",
        "list",
        "versions",
        "approvals",
        "answer",
        "login",
        "settle",
        "undo",
        "add-budget",
        "steer",
        "emit",
        "finish",
        "fork",
        "resume",
        "cancel",
        "webhooks",
    ),
    "Sessions": ("chat", "session"),
    "Standing jobs": ("schedule", "batch"),
    "Workers and servers": ("dev", "worker", "deploy", "serve", "hooks", "setup", "doctor"),
    "Privacy": ("audit", "erase", "rewrap", "codec"),
    "Try it": ("ask", "demo"),
    "More": ("mcp", "completion"),
}
"""The commands, in the order of the help."""
_LAST_SECTION = "Temporal"
"""The section of a command's help that comes after the others."""
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class FirstSentence(click.Command):
    """A command whose entry in a list of commands is the first sentence of its docstring."""

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first sentence without its full stop, whatever its length."""
        sentence, *_ = re.split(r"\.(?=\s|$)", self.help or "", maxsplit=1)
        return " ".join(sentence.split())


class CommandGroup(click.Group):
    """The commands of `perdure`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        return [name for names in GROUPS.values() for name in names if name in self.commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups."""
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    (f"{name:<{width}}", self.commands[name].get_short_help_str())
                    for name in names
                    if name in self.commands
                )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog and the exit codes."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl((str(code), meaning) for code, meaning in MEANINGS.items())


class Command(FirstSentence):
    """A command, whose options are listed in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their sections, in the same order for each command.

        `--json` and `--help` come last among the options, and `Temporal` after all sections.
        """
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        last = self.get_help_option(ctx)
        for parameter in sorted(
            self.get_params(ctx), key=lambda each: (each is last, each.name == "as_json")
        ):
            if isinstance(parameter, click.Argument):
                continue
            record = parameter.get_help_record(ctx)
            if record is not None:
                section = getattr(parameter, "section", "Options")
                sections.setdefault(section, []).append(record)
        for title, records in sorted(sections.items(), key=lambda item: item[0] == _LAST_SECTION):
            with formatter.section(title):
                formatter.write_dl(records)


def examples(*lines: str) -> str:
    """Format commands to copy, for the end of a command's help."""
    return "\n".join([f"\b\nExample{'s' * (len(lines) > 1)}:", *(f"  {line}" for line in lines)])
