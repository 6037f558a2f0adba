"""Sessions that soon go on in a new run."""

import contextlib
from collections.abc import AsyncIterator

from perdure.worker.dev.server import DevServer

RUN_EVENTS = 10
"""The number of events of a run after which the server of these tests suggests a new one."""


@contextlib.asynccontextmanager
async def short_runs() -> AsyncIterator[str]:
    """A server that suggests new runs soon."""
    soon = f"--dynamic-config-value=limit.historyCount.suggestContinueAsNew={RUN_EVENTS}"
    async with DevServer(folder=None, port=0, ui=False, extra_args=[soon]) as server:
        yield server.address.address
