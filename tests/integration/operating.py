"""What an operator does to a turn with Temporal's own command line."""

import asyncio
import os
import subprocess
import sysconfig
from pathlib import Path

from perdure.worker.dev_server import find_binary


async def temporal(address: str, *words: str) -> None:
    """Run a command of `temporal`."""
    binary = find_binary(Path(sysconfig.get_path("scripts")), os.environ["PATH"])
    command = [str(binary), *words, "--address", address]
    await asyncio.to_thread(lambda: subprocess.run(command, check=True, capture_output=True))


async def on_activity(address: str, word: str, turn_id: str, key: str, *more: str) -> None:
    """`temporal activity pause`, `unpause`, `reset`, `fail` or `complete`."""
    await temporal(address, "activity", word, "--workflow-id", turn_id, "--activity-id", key, *more)
