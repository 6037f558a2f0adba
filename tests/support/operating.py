"""Operations on a turn with Temporal's own command line."""

import asyncio
import subprocess

from perdure.worker.dev import server_binary


async def temporal(address: str, *words: str) -> None:
    """Run a command of `temporal`."""
    command = [str(server_binary.find().path), *words, "--address", address]
    await asyncio.to_thread(lambda: subprocess.run(command, check=True, capture_output=True))


async def on_activity(address: str, word: str, turn_id: str, key: str, *more: str) -> None:
    """`temporal activity pause`, `unpause`, `reset`, `fail` or `complete`."""
    await temporal(address, "activity", word, "--workflow-id", turn_id, "--activity-id", key, *more)
