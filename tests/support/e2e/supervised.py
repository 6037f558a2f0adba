"""Worker processes with a supervisor: when they are ready, and their end."""

import asyncio
import signal

import pytest

from ...conftest import eventually
from .stories import Process, Story

TWO = {"PERDURE_PROCESSES": "2"}


@pytest.fixture
def has_supervisor() -> bool:
    """Here they all have one."""
    return True


async def ready(story: Story, processes: int = 2) -> None:
    """Wait until the worker processes take work."""
    await eventually(
        lambda: story.said().count("Ctrl-C drains it") >= processes, "they serve", within_s=30
    )


async def drained(worker: Process) -> None:
    """Stop a supervisor, which must exit with code 0."""
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(worker.wait(), 60) == 0
