"""Workflows that an operator pauses with Temporal's command line."""

import asyncio
import subprocess
from collections.abc import AsyncIterator

import pytest

from perdure.temporal import search_attributes
from perdure.worker.dev import server_binary
from perdure.worker.dev.server import DevServer


@pytest.fixture(scope="module")
async def pausable() -> AsyncIterator[str]:
    """The address of a server where operators can pause workflows."""
    switch = ["--dynamic-config-value=frontend.WorkflowPauseEnabled=true"]
    async with DevServer(
        folder=None, port=0, ui=False, search_attributes=search_attributes.TYPES, extra_args=switch
    ) as server:
        yield server.address.address


async def operator(address: str, word: str, turn_id: str) -> None:
    """`temporal workflow pause` or `unpause`."""
    binary = server_binary.find().path
    command = [str(binary), "workflow", word, "--workflow-id", turn_id, "--address", address]
    await asyncio.to_thread(lambda: subprocess.run(command, check=True, capture_output=True))
