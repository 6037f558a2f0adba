"""The commands that run things: `perdure worker` and `perdure dev`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.errors import ConfigurationError, PerdureError, ServerUnreachableError
from perdure.text import harmless, harmless_lines

if TYPE_CHECKING:
    from perdure.worker.agent_worker import AgentWorker
    from perdure.worker.dev_server import ServerAddress
    from perdure.worker.reload import Watcher

STATE = Path(".perdure")
_GRACE_S = "10"
"""In development one waits for a Ctrl-C."""


def register(subparsers: Any) -> None:
    """Add the commands to the command line's parser."""
    worker = subparsers.add_parser(
        "worker",
        help="run the agents of a module",
        description=(
            "Run the agents of a module until SIGTERM or Ctrl-C; then drain: what is in flight gets"
            " PERDURE_GRACE_S seconds."
        ),
        epilog=(
            "examples:\n  perdure worker support:app --health-port 8080\n  perdure worker"
            " support:app --check"
        ),
    )
    worker.add_argument(
        "app",
        metavar="MODULE:NAME",
        help="an Agent, a Registry, an AgentWorker, or a function that returns one",
    )
    worker.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of Temporal (default: Temporal's environment, or localhost:7233)",
    )
    worker.add_argument(
        "--health-port",
        type=int,
        metavar="PORT",
        help="answer /healthz and /readyz there (default: PERDURE_HEALTH_PORT, if set)",
    )
    worker.add_argument(
        "--check",
        action="store_true",
        help="try what the first turn needs, show a table, and run no turn; exit code 0 or 1",
    )
    _attachable(worker)
    worker.set_defaults(run=run_worker)
    dev = subparsers.add_parser(
        "dev",
        help="a Temporal server with web UI, and a worker",
        description=(
            "Run a Temporal server for development, and with MODULE:NAME a worker, until Ctrl-C."
        ),
        epilog=(
            "examples:\n  perdure dev support:app --reload\n  perdure dev --json | jq -r .address"
        ),
    )
    dev.add_argument("app", metavar="MODULE:NAME", nargs="?", help="run these agents too")
    dev.add_argument(
        "--port",
        type=int,
        default=7233,
        help="of the server; the next free one where it is taken (default: 7233)",
    )
    dev.add_argument(
        "--state",
        type=Path,
        metavar="FOLDER",
        default=STATE,
        help="of the database file (default: .perdure)",
    )
    dev.add_argument("--no-ui", action="store_true", help="no web UI")
    dev.add_argument(
        "--reload",
        action="store_true",
        help="start the worker again when a Python file of its agents changes",
    )
    dev.add_argument(
        "--serve", metavar="HOST:PORT", help=argparse.SUPPRESS
    )  # a worker process of --reload
    dev.add_argument("--json", action="store_true", help="where the server is, as one line of JSON")
    _attachable(dev)
    dev.set_defaults(run=run_dev)


def _attachable(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--attached", action="store_true", help=argparse.SUPPRESS
    )  # for a command that starts this one


async def run_worker(arguments: argparse.Namespace) -> int:
    """`perdure worker`."""
    from perdure.worker import logs
    from perdure.worker.settings import WorkerSettings

    if arguments.attached:
        _end_with_input()
    logs.configure(WorkerSettings.from_environment().log_format)
    if arguments.check:
        return await _check(arguments)
    app = _loaded(arguments.app)

    def told() -> None:
        logging.getLogger("perdure").info(
            "worker for %s on task queue %r; Ctrl-C drains it",
            ", ".join(app.registry.list()),
            app.polled_queue,
        )

    await app.run(arguments.address, health_port=arguments.health_port, on_start=told)
    return 0


async def _check(arguments: argparse.Namespace) -> int:
    """`perdure worker --check`."""
    from perdure.worker.check import findings

    tried = [finding async for finding in findings(arguments.app, arguments.address)]
    columns = max(len(finding.subject) for finding in tried)
    for finding in tried:
        _tell(f"{finding.state:<8} {finding.subject:<{columns}}  {finding.words}")
    failed = sum(finding.state == "failed" for finding in tried)
    _tell(f"{failed} of {len(tried)} failed" if failed else "ready")
    return 1 if failed else 0


def _loaded(target: str) -> AgentWorker:
    """The worker that `module:name` names. What the module raises is logged with its traceback."""
    from perdure.activities.error_log import log_cause
    from perdure.worker.loading import load

    try:
        return load(target)
    except PerdureError as error:
        log_cause(error)
        raise


async def run_dev(arguments: argparse.Namespace) -> int:
    """`perdure dev`."""
    from perdure.worker import logs, reload
    from perdure.worker.dev_lock import only_worker
    from perdure.worker.dev_server import DevServer, running
    from perdure.worker.settings import WorkerSettings

    if arguments.serve:
        return await _serve(arguments)
    if arguments.reload and not arguments.app:
        raise ConfigurationError("--reload starts a worker again, so it needs MODULE:NAME")
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:
        del os.environ[name]  # they speak of another server
    os.environ.setdefault("PERDURE_GRACE_S", _GRACE_S)
    if arguments.attached:
        _end_with_input()
    app = _loaded(arguments.app) if arguments.app and not arguments.reload else None
    async with contextlib.AsyncExitStack() as stack:
        stopped = stack.enter_context(_stop_signals()) if app is None else asyncio.Event()
        there = await running(arguments.state)
        where = (
            there
            or (
                await stack.enter_async_context(
                    DevServer(folder=arguments.state, port=arguments.port, ui=not arguments.no_ui)
                )
            ).address
        )
        _introduce(where, is_new=there is None, as_json=arguments.json)
        if arguments.reload:
            code = (
                0
                if stopped.is_set()
                else await reload.supervise(_serving(arguments, where.address))
            )
            _say("stopping …")
            return code
        if app is None and there is not None:
            return 0
        if app is None:
            await stopped.wait()
        else:
            logs.configure(WorkerSettings.from_environment().log_format)
            with only_worker(arguments.state, app.polled_queue, arguments.app):
                await app.run(where.address, on_start=lambda: _say(_serves(app)))
        _say("stopping …")
    return 0


def _serves(app: AgentWorker) -> str:
    return f"worker    {', '.join(app.registry.list())} on task queue {app.polled_queue!r}"


def _serving(arguments: argparse.Namespace, address: str) -> list[str]:
    """The command of a worker process of `perdure dev --reload`."""
    options = ["--serve", address, "--state", str(arguments.state), "--attached"]
    return [sys.executable, "-m", "perdure", "dev", arguments.app, *options]


async def _serve(arguments: argparse.Namespace) -> int:
    """Run the worker of `perdure dev --reload` until its code changes."""
    from perdure.worker import logs, reload
    from perdure.worker.dev_lock import only_worker
    from perdure.worker.settings import WorkerSettings

    _end_with_input()
    watcher = reload.Watcher(Path.cwd(), since=time.time())
    logs.configure(WorkerSettings.from_environment().log_format)
    try:
        app = _loaded(arguments.app)
    except PerdureError as error:
        return _until_mended(error, watcher)
    with only_worker(arguments.state, app.polled_queue, arguments.app):
        try:
            with reload.stopped_by_a_change(watcher, _say):
                await app.run(arguments.serve, on_start=lambda: _say(_serves(app)))
        except ServerUnreachableError:
            raise
        except PerdureError as error:
            return _until_mended(error, watcher)
    return reload.CHANGED if watcher.changed else 0


def _until_mended(error: PerdureError, watcher: Watcher) -> int:
    """Print why the worker cannot run, and wait for a change."""
    from perdure.worker.reload import CHANGED

    _say(f"perdure: {error.message}")
    _say(
        "no worker runs until this is mended, and turns wait; saving a Python file here starts one"
    )
    watcher.wait(for_all=True)
    return CHANGED


def _introduce(where: ServerAddress, *, is_new: bool, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                {
                    "address": where.address,
                    "ui": where.ui,
                    "started": is_new,
                    "server": where.binary,
                }
            ),
            flush=True,
        )
        return
    if not is_new:
        _say("a server runs already on this folder")
    elif where.moved_from:
        _say(
            f"port {where.moved_from} is taken; this is the next free one. For other terminals:"
            f" export TEMPORAL_ADDRESS={where.address}"
        )
    _say(f"Temporal  {where.address}")
    if where.binary:
        _say(f"server    {where.binary}")
    if where.ui:
        _say(f"web UI    {where.ui}")
    if is_new:
        _say("Ctrl-C stops it")


def _end_with_input() -> None:
    """Stop, as at SIGTERM, when standard input ends: the process that started this one is gone."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="perdure-attached", daemon=True).start()


@contextlib.contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _tell(line: str) -> None:
    print(harmless(line.rstrip()), flush=True)


def _say(text: str) -> None:
    print(harmless_lines(text), file=sys.stderr, flush=True)
