"""The command line: `perdure`.

The commands for callers are in `perdure.clients.cli`, those that run workers in
`perdure.worker.commands`, those that release them in `perdure.worker.deploy_commands`, those that
serve agents in `perdure.worker.gateway_commands`, and the codec server in
`perdure.worker.codec_commands`. `perdure doctor` is in
`perdure.worker.doctor`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any

import click
from click.exceptions import Exit, NoArgsIsHelpError
from click.shell_completion import shell_complete

from perdure.clients.cli import exits
from perdure.clients.cli.ask import ask, demo
from perdure.clients.cli.audit import audit
from perdure.clients.cli.batches import batch
from perdure.clients.cli.calls import finish
from perdure.clients.cli.completion import VARIABLE, completion
from perdure.clients.cli.emit import emit
from perdure.clients.cli.erase import erase
from perdure.clients.cli.group import SETTINGS, CommandGroup
from perdure.clients.cli.login import login
from perdure.clients.cli.rewrap import rewrap
from perdure.clients.cli.schedules import schedule
from perdure.clients.cli.sessions import chat, session
from perdure.clients.cli.setup import setup
from perdure.clients.cli.turns import turns
from perdure.clients.cli.versions import versions
from perdure.worker.codec_commands import codec
from perdure.worker.commands import dev, worker
from perdure.worker.deploy_commands import deploy
from perdure.worker.doctor.command import doctor
from perdure.worker.gateway_commands import hooks, mcp, serve

EPILOG = """\
Temporal's environment variables (TEMPORAL_ADDRESS, TEMPORAL_PROFILE, …) set its address;
the default is localhost:7233.
Run `perdure COMMAND --help` for more, with examples.
"""
COMMANDS = (
    *turns.commands.values(),
    *(versions, finish, emit, login, erase, rewrap, chat, session, schedule, batch),
    *(dev, worker, deploy, serve, codec, hooks, setup, audit, doctor),
    *(ask, demo, mcp, completion),
)


def commands() -> CommandGroup:
    """Return every command with its options."""

    @click.group(
        "perdure",
        cls=CommandGroup,
        context_settings=SETTINGS,
        epilog=EPILOG,
    )
    @click.version_option(
        package_name="perdure", message="perdure %(version)s", help="Show the version and exit."
    )
    @click.option("--verbose", is_flag=True, help="Show what the libraries log.")
    @click.pass_context
    def perdure(context: click.Context, verbose: bool) -> None:
        """Agents that must finish: each turn is a Temporal workflow."""
        context.obj["verbose"] = verbose

    assert isinstance(perdure, CommandGroup)
    for command in COMMANDS:
        perdure.add_command(command)
    return perdure


def parsed(argv: Sequence[str], flags: dict[str, bool]) -> Coroutine[Any, Any, int] | None:
    """Return the command for these arguments as a coroutine; None if it is already done.

    Args:
        argv: The arguments after the program's name.
        flags: Contains `verbose` and `json` afterwards.

    Raises:
        click.UsageError: The arguments are not valid.
        Exit: There is nothing to run, as after `--help`.
    """
    group = commands()
    with group.make_context("perdure", list(argv), obj=flags) as context:
        begun: Coroutine[Any, Any, int] | None = group.invoke(context)
        return begun


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code, as defined in `perdure.clients.cli.exits`."""
    flags = {"verbose": False, "json": False}
    try:
        command = parsed(argv, flags)
        return exits.DONE if command is None else _run(command, **flags)
    except NoArgsIsHelpError as without_command:
        click.echo(without_command.ctx.get_help())
        return exits.USAGE
    except click.UsageError as mistake:
        return _refuse(mistake)
    except Exit as done:
        return done.exit_code
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        return exits.NO_READER


def _interrupted() -> int:
    from perdure.clients.cli.drawing.screen import note

    note("perdure: interrupted")
    return exits.INTERRUPTED


def _refuse(mistake: click.UsageError) -> int:
    """Print a usage error in one line, with a reference to the help."""
    from perdure.clients.cli.drawing.screen import fail
    from perdure.text import one_line

    path = mistake.ctx.command_path if mistake.ctx else "perdure"
    message = one_line(mistake.format_message(), 500)
    end = "" if message.endswith((".", "?", "?)")) else "."
    fail(path, f"{message}{end} See {path} --help.")
    return exits.USAGE


def _run(command: Coroutine[Any, Any, int], *, verbose: bool, json: bool) -> int:
    import asyncio
    import logging

    from perdure.worker.logs import Lines

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(dated=False))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    try:
        return asyncio.run(command)
    except asyncio.CancelledError:
        return _interrupted()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else exits.FAILED
    except Exception as error:
        code = _failed(error, json=json)
        if code is None:
            raise
        return code


def _failed(error: Exception, *, json: bool) -> int | None:
    """Print an error of Perdure and return its exit code; None for any other.

    Its imports take a third of the memory of a supervisor, which rarely needs them.
    """
    from perdure.clients.cli.drawing.screen import fail
    from perdure.errors import PerdureError, TurnNotFoundError

    if not isinstance(error, PerdureError):
        return None
    is_unknown = isinstance(error, TurnNotFoundError)
    hint = "; `perdure list` shows those that there are" if is_unknown else ""
    fail("perdure", f"{error.message}{hint}")
    if json:
        from perdure.clients.cli.drawing.json_lines import tell_error

        tell_error(error)
    return exits.of_error(error)


def _unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an exception that is a bug. Its message may contain any text."""
    import traceback

    from perdure.clients.cli.drawing.screen import put
    from perdure.text import harmless_lines

    put(harmless_lines("".join(traceback.format_exception(kind, error, trace))), sys.stderr, end="")


def main() -> None:
    """Run, then exit at once.

    Temporal's client may abort an interpreter that takes long to shut down.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # do not fail on a terminal with a small character set
    sys.excepthook = _unexpected
    completion_request = os.environ.get(VARIABLE)
    code = (
        shell_complete(commands(), {"obj": {}}, "perdure", VARIABLE, completion_request)
        if completion_request
        else run(sys.argv[1:])
    )
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
