"""Gateways as processes that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from pathlib import Path

from .command_line import CommandLine, Started
from .stories import Story

TOKEN = "0123456789abcdef" * 2
"""The bearer token of the gateway."""
SERVES_S = 60.0


async def serve(
    processes: contextlib.AsyncExitStack,
    story: Story,
    address: str,
    folder: Path,
    port: str = "0",
    *options: str,
) -> Started:
    """Start a gateway, with more options of the command."""
    here = CommandLine(folder)
    here.environment["PERDURE_TOKEN"] = TOKEN
    queue = ("--task-queue", story.client.task_queue)
    command = ("serve", "--address", address, "--port", port, *queue, *options)
    return processes.enter_context(here.started(*command))


async def url_of(started: Started, within_s: float = SERVES_S) -> str:
    """The address that a gateway has printed."""
    waits = partial(started.wait_for, r"(http://\S+); Ctrl-C", within_s=within_s)
    return (await asyncio.to_thread(waits))[1]
