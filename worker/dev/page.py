"""The gateway of `perdure dev`: turns over HTTP, and the page for people, on loopback."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from perdure.clients.client import AgentClient
from perdure.temporal.names import TASK_QUEUE

if TYPE_CHECKING:
    from perdure.worker.agent_worker import AgentWorker
    from perdure.worker.dev.server import ServerAddress

PORT = 8000
_TRIED = 50
_TASK_QUEUE = "PERDURE_TASK_QUEUE"


@contextlib.asynccontextmanager
async def page(
    where: ServerAddress, agents: AgentWorker | None, *, any_port: bool = False
) -> AsyncIterator[str | None]:
    """Serve the page during the block, and yield its address; None without the extra `http`.

    The address has the token, unless it is the token of `PERDURE_TOKEN`.

    Args:
        where: The server.
        agents: The agents of this process, if they are known, for their task queue and their data
            converter.
        any_port: Whether any port is taken, and not the first free port from `PORT` on.

    Raises:
        ServerUnreachableError: The server does not answer.
        ConfigurationError: No port is free, or the data converter is not valid.
    """
    try:
        from perdure.clients.gateway import app, known_callers, one_token, serving
    except ImportError:
        yield None
        return
    client = await AgentClient.connect(
        where.address,
        task_queue=agents.polled_queue if agents else os.environ.get(_TASK_QUEUE, TASK_QUEUE),
        data_converter=agents.data_converter if agents else None,
    )
    ports = (0,) if any_port else range(PORT, PORT + _TRIED)
    token, fragment = known_callers.own_token()
    application = app(client, one_token(token), temporal_ui=where.ui or None)
    async with serving.served(application, ports) as url:
        yield f"{url}/ui/{fragment}"
