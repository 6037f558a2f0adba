"""The commands `perdure worker` and `perdure dev`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perdure import limits
from perdure.clients.cli import options
from perdure.clients.cli.group import Command, examples

if TYPE_CHECKING:
    from perdure.errors import PerdureError
    from perdure.worker.agent_worker import AgentWorker
    from perdure.worker.dev.reload import Watcher
    from perdure.worker.dev.server import ServerAddress
    from perdure.worker.supervision.supervised import Supervised

STATE = Path(".perdure")
_GRACE_S = "10"
"""Seconds to drain at Ctrl-C; in development a person waits for it."""


_ATTACHED = click.option("--attached", is_flag=True, hidden=True)
"""For a command that starts this one."""


@click.command(
    cls=Command,
    epilog=examples(
        "perdure worker support:app --health-port 8080", "perdure worker support:app --check"
    ),
)
@click.argument(
    "app",
    metavar="MODULE:NAME",
    help="An Agent, a Registry, an AgentWorker, or a function that returns one.",
)
@options.ADDRESS
@click.option(
    "--health-port",
    type=int,
    metavar="PORT",
    help="Answer /healthz and /readyz there (default: PERDURE_HEALTH_PORT, if set).",
)
@click.option(
    "--check",
    is_flag=True,
    help="Try what the first turn needs, show a table, and run no turn; exit code 0 or 1.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, limits.WORKER_PROCESSES),
    default=1,
    envvar="PERDURE_PROCESSES",
    metavar="N",
    help="Run this number of worker processes (default: PERDURE_PROCESSES, or 1).",
)
@click.option(
    "--supervisor/--no-supervisor",
    default=True,
    envvar="PERDURE_SUPERVISOR",
    help="Run the worker as a child that is watched and started again (the default).",
)
@click.option("--supervised", hidden=True)
@_ATTACHED
async def worker(
    app: str,
    address: str | None,
    health_port: int | None,
    check: bool,
    processes: int,
    supervisor: bool,
    supervised: str | None,
    attached: bool,
) -> int:
    """Run the agents of a module.

    SIGTERM or Ctrl-C drains the worker: what is in flight gets PERDURE_GRACE_S seconds.
    """
    if supervisor and not (attached or check or supervised):
        return await _supervise(app, address, health_port, processes)
    from perdure.errors import ConfigurationError
    from perdure.worker import logs
    from perdure.worker.settings import WorkerSettings

    if attached:
        _end_with_input()
        _have_no_version()
    logs.configure(WorkerSettings.from_environment().log_format)
    if check:
        return await _check(app, address)
    if supervised:
        return await _supervised(app, address, health_port, supervised)
    if processes > 1 and not attached:
        raise ConfigurationError("--processes needs the supervisor; leave out --no-supervisor")
    await _agents_run(app, address, health_port)
    return 0


async def _supervise(app: str, address: str | None, health_port: int | None, processes: int) -> int:
    """Run worker processes as children.

    Settings are not checked here, as that takes 10 MB; the children report what is wrong with them.
    """
    from perdure.worker import logs
    from perdure.worker.supervision.supervisor import Supervisor, command

    logs.configure(os.environ.get("PERDURE_LOG_FORMAT", "lines"))
    arguments = [
        *(["--address", address] if address else []),
        *(["--health-port", str(health_port)] if health_port else []),
    ]
    return await Supervisor(command(["worker", app, *arguments]), processes, address).run()


async def _supervised(app: str, address: str | None, health_port: int | None, handover: str) -> int:
    """Run a worker as the child of a supervisor."""
    from perdure.errors import ServerUnreachableError
    from perdure.worker.supervision.held_runs import LEFT, NO_SERVER
    from perdure.worker.supervision.supervised import Supervised

    supervised, state = Supervised(*map(int, handover.split(","))), LEFT
    try:
        await _agents_run(app, address, health_port, supervised)
    except ServerUnreachableError:
        state = NO_SERVER
        raise
    finally:
        supervised.held.leave(state)
    return 0


async def _agents_run(
    app: str, address: str | None, health_port: int | None, supervised: Supervised | None = None
) -> None:
    from perdure.worker.agent_worker import serve

    agents = _loaded(app)

    def on_start() -> None:
        logging.getLogger("perdure").info(
            "worker for %s on task queue %r; Ctrl-C drains it",
            ", ".join(agents.registry.list()),
            agents.polled_queue,
        )

    if supervised is None:
        await agents.run(address, health_port=health_port, on_start=on_start)
    else:
        await serve(agents, address, supervised, health_port=health_port, on_start=on_start)


async def _check(app: str, address: str | None) -> int:
    from perdure.worker.check import findings

    tried = [finding async for finding in findings(app, address)]
    columns = max(len(finding.subject) for finding in tried)
    for finding in tried:
        _tell(f"{finding.state:<8} {finding.subject:<{columns}}  {finding.words}")
    failed = sum(finding.state == "failed" for finding in tried)
    _tell(f"{failed} of {len(tried)} failed" if failed else "ready")
    return 1 if failed else 0


def _loaded(target: str) -> AgentWorker:
    """Load the worker named by `module:name`, logging the traceback of a failure."""
    from perdure.activities.error_log import log_cause
    from perdure.errors import PerdureError
    from perdure.worker.loading import load

    try:
        return load(target)
    except PerdureError as error:
        log_cause(error)
        raise


@click.command(
    cls=Command,
    epilog=examples("perdure dev support:app --reload", "perdure dev --json | jq -r .address"),
)
@click.argument("app", metavar="[MODULE:NAME]", required=False, help="Run these agents too.")
@click.option(
    "--port",
    type=int,
    default=7233,
    metavar="PORT",
    help="The server's port; the next free one where it is taken (default: 7233).",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    default=STATE,
    help="The database's folder (default: .perdure).",
)
@click.option("--no-ui", is_flag=True, help="Run no web UI, and no page.")
@click.option(
    "--reload",
    "reloads",
    is_flag=True,
    help="Start the worker again when a Python file of its agents changes.",
)
@click.option(
    "--encrypt",
    "encrypts",
    is_flag=True,
    help="Encrypt what the server stores, with the keys of the environment or a key in the"
    " database's folder; the web UI shows it decrypted.",
)
@click.option("--serve", metavar="HOST:PORT", hidden=True)
@click.option("--parent", type=int, hidden=True)
@options.json_lines("Print where the server is, as one line of JSON.")
@_ATTACHED
async def dev(
    app: str | None,
    port: int,
    state: Path,
    no_ui: bool,
    reloads: bool,
    encrypts: bool,
    serve: str | None,
    parent: int | None,
    as_json: bool,
    attached: bool,
) -> int:
    """Run a development server with its web UI, and your agents.

    The Temporal server keeps its turns in a folder, and ends with this command.
    """
    from perdure.errors import ConfigurationError
    from perdure.worker.dev.lock import only_worker

    if serve is not None:
        return await _serve(app, state, serve, parent)
    if reloads and not app:
        raise ConfigurationError("--reload starts a worker again, so it needs MODULE:NAME")
    _prepare(attached=attached)
    keys = _encrypted(state) if encrypts else None
    agents = _loaded(app) if app and not reloads else None
    async with contextlib.AsyncExitStack() as stack:
        stopped = stack.enter_context(_stop_signals()) if agents is None else asyncio.Event()
        serving = _server(state, port, ui=not no_ui, encrypts=encrypts)
        where, is_new = await stack.enter_async_context(serving)
        if agents is not None:  # a program that is refused prints no address
            stack.enter_context(only_worker(state, agents.polled_queue, app or ""))
        page = None
        if _serves_page(app, is_new=is_new, is_hidden=no_ui or attached):
            page = await _page(stack, where, agents, port)
        introduce = functools.partial(
            _introduce, where, page, is_new=is_new, as_json=as_json, keys=keys
        )
        code = 0
        if reloads and app:
            code = await _reloading(_serving(app, state, where.address), stopped, introduce)
        else:
            introduce()
            if agents is None and not is_new:
                return 0
            await (stopped.wait() if agents is None else _work(agents, where.address))
        _say("stopping …")
    return code


def _prepare(*, attached: bool) -> None:
    """Set up the process for a server of its own: settings of another server do not apply.

    Its workers have no version, because their code changes while turns run.
    """
    _have_no_version()
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:
        del os.environ[name]
    os.environ.setdefault("PERDURE_GRACE_S", _GRACE_S)
    if attached:
        _end_with_input()


def _have_no_version() -> None:
    """Let the workers of this process and of its children be unversioned."""
    from perdure.worker.deployment import DEPLOYMENT

    os.environ[DEPLOYMENT] = ""


def _encrypted(state: Path) -> str | None:
    """Turn encryption on, and return the file with the keys, unless they are the environment's."""
    from perdure.worker.dev import encryption

    return encryption.prepare(state)


@contextlib.asynccontextmanager
async def _server(
    folder: Path, port: int, *, ui: bool, encrypts: bool
) -> AsyncIterator[tuple[ServerAddress, bool]]:
    """Yield the address of the server on a folder, and whether the server is new and ends here."""
    from perdure.worker.dev import encryption
    from perdure.worker.dev.server import DevServer, running

    where = await running(folder)
    if where is not None:
        yield where, False
        return
    async with contextlib.AsyncExitStack() as stack:
        origins, extra = set[str](), list[str]()
        if encrypts and ui:
            codec = await stack.enter_async_context(encryption.served(origins))
            extra = [f"--ui-codec-endpoint={codec}"]
        server = DevServer(folder=folder, port=port, ui=ui, extra_args=extra)
        await stack.enter_async_context(server)
        origins |= encryption.of_ui(server.address.ui)
        yield server.address, True


def _serves_page(app: str | None, *, is_new: bool, is_hidden: bool) -> bool:
    """Whether to serve a page: a server that runs already has a page, but not of these agents."""
    return not is_hidden and (is_new or app is not None)


async def _reloading(
    process: Sequence[str], stopped: asyncio.Event, introduce: Callable[[], None]
) -> int:
    """Run a worker process again and again, unless the command was stopped before."""
    from perdure.worker.dev import reload

    return 0 if stopped.is_set() else await reload.supervise(process, introduce)


async def _page(
    stack: contextlib.AsyncExitStack, where: ServerAddress, agents: AgentWorker | None, port: int
) -> str | None:
    """Serve the page until the stack is closed, and return its address."""
    from perdure.worker.dev import page as dev_page

    return await stack.enter_async_context(dev_page.page(where, agents, any_port=not port))


async def _work(agents: AgentWorker, address: str) -> None:
    from perdure.worker import logs
    from perdure.worker.settings import WorkerSettings

    logs.configure(WorkerSettings.from_environment().log_format)
    await agents.run(address, on_start=lambda: _say(_serves(agents)))


def _serves(agents: AgentWorker) -> str:
    return f"worker    {', '.join(agents.registry.list())} on task queue {agents.polled_queue!r}"


def _serving(app: str, state: Path, address: str) -> list[str]:
    """The command of a worker process of `perdure dev --reload`."""
    arguments = ["--serve", address, "--state", str(state), "--attached"]
    return [sys.executable, "-m", "perdure", "dev", app, *arguments]


async def _serve(app: str | None, state: Path, address: str, parent: int | None) -> int:
    """Run the worker of `perdure dev --reload` until its code changes."""
    assert app is not None
    assert parent is not None  # `_serving` and `supervise` name both
    from perdure.errors import PerdureError, ServerUnreachableError
    from perdure.worker import logs
    from perdure.worker.dev import reload
    from perdure.worker.dev.lock import only_worker
    from perdure.worker.settings import WorkerSettings

    _end_with_input()
    watcher = reload.Watcher(Path.cwd(), since=time.time())
    logs.configure(WorkerSettings.from_environment().log_format)
    try:
        agents = _loaded(app)
    except PerdureError as error:
        reload.admitted(parent)  # it is the file to be mended
        return _until_mended(error, watcher)
    with only_worker(state, agents.polled_queue, app):
        reload.admitted(parent)
        try:
            with reload.stopped_by_a_change(watcher, _say):
                await agents.run(address, on_start=lambda: _say(_serves(agents)))
        except ServerUnreachableError:
            raise
        except PerdureError as error:
            return _until_mended(error, watcher)
    return reload.CHANGED if watcher.changed else 0


def _until_mended(error: PerdureError, watcher: Watcher) -> int:
    """Print why the worker cannot run, and wait for a change."""
    from perdure.worker.dev.reload import CHANGED

    _say(f"perdure: {error.message}")
    _say(
        "no worker runs until this is mended, and turns wait; saving a Python file here starts one"
    )
    watcher.wait(for_all=True)
    return CHANGED


def _introduce(
    where: ServerAddress, page: str | None, *, is_new: bool, as_json: bool, keys: str | None
) -> None:
    if as_json:
        addresses = {"address": where.address, "ui": where.ui, "page": page}
        print(json.dumps({**addresses, "started": is_new, "server": where.binary}), flush=True)
        return
    _introduce_to_people(where, page, is_new=is_new)
    if keys:
        _say(f"encrypted; for other terminals: export PERDURE_ENCRYPTION_KEYS_FILE={keys}")


def _introduce_to_people(where: ServerAddress, page: str | None, *, is_new: bool) -> None:
    if not is_new:
        _say("a server is already running on this folder")
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
    if page:
        _say(f"page      {page}")
    if is_new:
        _say("Ctrl-C stops it")


def _end_with_input() -> None:
    """Stop as on SIGTERM when standard input ends, because the parent process has ended."""

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
    from perdure.text import harmless

    print(harmless(line.rstrip()), flush=True)


def _say(text: str) -> None:
    from perdure.text import harmless_lines

    print(harmless_lines(text), file=sys.stderr, flush=True)
