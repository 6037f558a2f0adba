"""`perdure completion`: a script for tab completion in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from perdure.clients.cli.group import Command, examples

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_PERDURE_COMPLETE"
"""The environment variable with which the scripts request completions."""


@click.command(
    cls=Command,
    epilog=examples(
        'eval "$(perdure completion bash)"   # in ~/.bashrc',
        'eval "$(perdure completion zsh)"    # in ~/.zshrc, after compinit',
        "perdure completion fish > ~/.config/fish/completions/perdure.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS), help="Which shell.")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and choices."""
    click.echo(script(context.find_root().command, shell), nl=False)


def script(commands: click.Command, shell: str) -> str:
    """Return the script for a shell."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None, shell
    return completion_class(commands, {}, "perdure", VARIABLE).source()
