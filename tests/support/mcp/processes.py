"""Helpers for MCP server processes: which of the recorded process ids are alive, and whether a
server listens.
"""

import asyncio
import contextlib
from pathlib import Path


def pids(folder: Path) -> list[int]:
    """All recorded process ids."""
    file = folder / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(noted: list[int]) -> list[int]:
    """Those that are running; a zombie is not."""
    return [pid for pid in noted if _state(pid) not in ("", "Z", "X")]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


async def accepts(port: int) -> None:
    """Wait until a server listens."""
    for _ in range(300):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the server does not listen")
