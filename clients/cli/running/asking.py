"""`perdure ask`: a question about a folder, answered by a turn.

A server and a worker are started if there are none, and stopped afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.text import Text

from perdure import errors
from perdure.clients.cli.common import Display, sender
from perdure.clients.cli.drawing.progress import address_in_ui
from perdure.clients.cli.drawing.screen import note, put, wrapped
from perdure.clients.cli.running import processes
from perdure.clients.cli.running.following import conclude, follower
from perdure.clients.cli.running.processes import ChildProcess, TemporalServer
from perdure.clients.client import AgentClient
from perdure.clients.turns.handle import Turn
from perdure.temporal.acts import sources
from perdure.temporal.connect import connect, connect_local
from perdure.text import harmless, one_line, word

APP = "perdure.worker.librarian:make"
AGENT = "librarian"
_GOODBYE_S = 5.0
_INDENT = len("documents  ")
NOT_A_LANGUAGE_MODEL = (
    "offline:librarian is not a language model: it searches, opens the best file and quotes the"
    " passage."
)


@dataclass(frozen=True)
class FolderQuestion:
    """A question about a folder, and the model that answers it."""

    text: str
    folder: Path
    model: str | None = None
    base_url: str | None = None
    address: str | None = None

    def settings(self) -> dict[str, str]:
        """Return the environment of the librarian's process.

        Raises:
            ConfigurationError: The question is empty, or the folder does not exist.
        """
        if not self.text.strip():
            raise errors.ConfigurationError("the question is empty")
        if not self.folder.is_dir():
            raise errors.ConfigurationError(
                f"{one_line(str(self.folder), 200)} is not a folder; name the folder of the"
                " documents with --folder"
            )
        with_key = "openai:gpt-5-mini" if os.environ.get("OPENAI_API_KEY") else "offline:librarian"
        settings = {
            "PERDURE_ASK_FOLDER": str(self.folder.resolve()),
            "PERDURE_ASK_MODEL": self.model or with_key,
        }
        return {**settings, "PERDURE_ASK_BASE_URL": self.base_url} if self.base_url else settings


@dataclass(frozen=True)
class LibrarianSession:
    """A server, a client, and the settings for workers."""

    server: TemporalServer
    client: AgentClient
    settings: Mapping[str, str]

    async def worker(self) -> ChildProcess:
        """Start a worker process."""
        return await processes.worker(APP, self.server, self.settings)


@contextlib.asynccontextmanager
async def session(
    settings: Mapping[str, str], *, state: Path, address: str | None
) -> AsyncIterator[LibrarianSession]:
    """Start a session with its own task queue, on an embedded server if there is no address.

    SIGTERM and SIGHUP end it like Ctrl-C.
    """
    server = TemporalServer(address) if address else await processes.embedded_server(state)
    queue = f"ask-{secrets.token_hex(4)}"
    try:
        client = (
            await connect_local(server.address)
            if server.is_embedded
            else await connect(server.address)
        )
        with _interruptible():
            sources.go_through("cli")
            agents = AgentClient.from_temporal(client, task_queue=queue)
            yield LibrarianSession(
                server, agents, {**settings, "PERDURE_TASK_QUEUE": queue, "PERDURE_GRACE_S": "2"}
            )
    finally:
        await server.stop()


async def ask(question: FolderQuestion, display: Display, *, state: Path) -> int:
    """Ask, show the steps, print the answer and return the exit code.

    Raises:
        PerdureError: There is no answer.
    """
    settings = question.settings()
    if not display.as_json:
        introduce(question.folder, settings["PERDURE_ASK_MODEL"], sys.stderr)
    async with session(settings, state=state, address=question.address) as here:
        if not display.as_json:
            introduce_server(here.server, sys.stderr)
        worker = await here.worker()
        try:
            turn = await here.client.start(
                AGENT, question.text, live=display.stream, by=sender(None)
            )
            printer = follower(display, answers=True)
            async with cancelled_if_interrupted(turn):
                await first_of(printer.follow(turn, here.client.turn), gives_up(worker))
                code = await conclude(turn, printer)
        finally:
            await worker.stop(signal.SIGTERM)
        if not display.as_json:
            say_where(turn.id, here.server, sys.stderr)
    return code


async def gives_up(worker: ChildProcess) -> None:
    """Wait until a worker ends unexpectedly.

    Raises:
        ConfigurationError: The worker ended; the message contains its last output.
    """
    await worker.process.wait()
    error = worker.last_output().rpartition("perdure: ")[2]
    raise errors.ConfigurationError(f"the worker ended: {error or 'it printed nothing'}")


async def first_of(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Wait for the first coroutine to end, raise its exception if any, and cancel the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def cancelled_if_interrupted(turn: Turn) -> AsyncIterator[None]:
    """Cancel the turn when this command is interrupted or its worker ends.

    No other worker would continue it.
    """
    try:
        yield
    except (asyncio.CancelledError, errors.ConfigurationError):
        note(f"turn {word(turn.id)} is cancelled: no worker would continue it")
        with contextlib.suppress(errors.PerdureError, TimeoutError):
            await turn.cancel("the command that asked was interrupted")
            await asyncio.wait_for(turn.result(), _GOODBYE_S)
        raise


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


def introduce(folder: Path, model: str, out: TextIO) -> None:
    """Print the folder and the model before the turn starts."""
    put(Text.assemble(("documents", "bold"), f"  {harmless(str(folder))}"), out)
    put(Text.assemble(("model", "bold"), f"      {harmless(model)}"), out)
    if model.startswith("offline:"):
        put(wrapped(Text(f"{' ' * _INDENT}{NOT_A_LANGUAGE_MODEL}", "dim"), out, _INDENT), out)


def introduce_server(server: TemporalServer, out: TextIO) -> None:
    """Print which server is used, once it is available."""
    put(
        Text.assemble(
            ("server", "bold"), f"     {harmless(str(server.binary or server.address))}\n"
        ),
        out,
    )


def say_where(turn_id: str, server: TemporalServer, out: TextIO) -> None:
    """Print where the turn can be viewed."""
    if server.ui:
        put(
            Text(f"turn {word(turn_id)}: {address_in_ui(server.ui, 'default', turn_id)}", "dim"),
            out,
        )
        if server.child is not None:
            put(
                Text(
                    "The server stops now; `perdure dev` in this folder serves the turn again.",
                    "dim",
                ),
                out,
            )
