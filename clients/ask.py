"""`perdure ask`: a question about a folder, answered by a turn. Server and worker are started where there are none, and stopped afterwards."""

from __future__ import annotations

import contextlib
import secrets
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.clients import processes
from perdure.clients.agent_client import AgentClient
from perdure.clients.processes import Server
from perdure.clients.progress import Paint, Progress, address_in_ui, figures
from perdure.reports import AgentReport

APP = "perdure.worker.librarian:make"
AGENT = "librarian"
NOT_A_LANGUAGE_MODEL = "offline:librarian is not a language model: it searches, opens the best file and quotes the passage."


@dataclass(frozen=True)
class Session:
    """A server, a client, and what workers are started with."""

    server: Server
    client: AgentClient
    settings: Mapping[str, str]

    async def worker(self) -> processes.Process:
        """Start a worker process."""
        return await processes.worker(APP, self.server.address, self.settings)


@contextlib.asynccontextmanager
async def session(settings: Mapping[str, str], *, state: Path, address: str | None) -> AsyncIterator[Session]:
    """A server (embedded without an address), and a task queue of one's own."""
    server = Server(address, None) if address else await processes.embedded_server(state)
    queue = f"ask-{secrets.token_hex(4)}"
    try:
        client = await AgentClient.connect(server.address, task_queue=queue)
        yield Session(server, client, {**settings, "PERDURE_TASK_QUEUE": queue, "PERDURE_GRACE_S": "2"})
    finally:
        await server.stop()


async def ask(question: str, folder: Path, settings: Mapping[str, str], *, state: Path, address: str | None) -> int:
    """Ask, show the steps, print the answer."""
    introduce(folder, settings["PERDURE_ASK_MODEL"])
    async with session(settings, state=state, address=address) as here:
        worker = await here.worker()
        try:
            turn = await here.client.start(AGENT, question)
            progress = Progress()
            async for event in turn.events():
                progress.show(event)
            conclude(await turn.result(), here.server)
        finally:
            await processes.stop(worker, signal.SIGTERM)
    return 0


def introduce(folder: Path, model: str) -> None:
    """Say what is about to happen."""
    say = Paint()
    print(f"{say('bold', 'documents')}  {folder}\n{say('bold', 'model')}      {model}")
    if model.startswith("offline:"):
        print(say("dim", f"           {NOT_A_LANGUAGE_MODEL}"))
    print(flush=True)


def conclude(report: AgentReport, server: Server) -> None:
    """Print the answer, the figures, and where the turn can be looked at."""
    say = Paint()
    print(f"\n{report.output}\n\n{say('dim', figures(report))}")
    if server.ui:
        print(say("dim", f"turn {report.turn_id}: {address_in_ui(server.ui, 'default', report.turn_id)}"))
        if server.process is not None:
            print(say("dim", "The server stops now; `perdure dev` in this folder serves the turn again."))
