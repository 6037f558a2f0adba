"""Stops Temporal's core before the interpreter ends.

Core runs threads of its own, which call into Python when an answer has arrived. One that does so
while the interpreter shuts down aborts the process, after its work: Temporal's library has no way
to close a client. So its handles are let go at exit, while Python is whole. The last handle ends
the threads and waits for them.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os

from temporalio.bridge.client import Client
from temporalio.bridge.runtime import Runtime
from temporalio.bridge.testing import EphemeralServer
from temporalio.bridge.worker import Worker

_HANDLES = frozenset({Client, EphemeralServer, Runtime, Worker})
"""Each holds the threads in `_ref`. Programs keep them in variables of modules, and in cycles."""


@functools.cache
def stop_core_at_exit() -> None:
    """Have this process end without a signal from Temporal's core."""
    atexit.register(_stop, os.getpid())


def _stop(process: int) -> None:
    if os.getpid() != process:  # a fork has the handles without the threads
        return
    gc.unfreeze()
    for handle in gc.get_objects():
        if type(handle) in _HANDLES:
            handle._ref = None  # noqa: SLF001 - there is no other way
