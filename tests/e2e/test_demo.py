"""`perdure demo`, the first command that a new user runs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ..support.e2e.command_line import CommandLine

TOOLS = """# Tools

A tool is a typed function.

## What happens when a worker dies

A tool call whose worker dies runs again only if the tool is idempotent. Otherwise the model is \
told that the outcome is unknown.
"""


@pytest.mark.slow
@pytest.mark.accepts("Y1")
def test_demo_survives_its_kill_and_says_what_it_checked(tmp_path: Path) -> None:
    """In a folder with a few documents: exit code 0, the kill is shown, four checks pass, the
    answer names its source, and no process is left.
    """
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "tools.md").write_text(TOOLS, encoding="utf-8")
    (docs / "models.md").write_text(
        "# Models\n\nA model answers or asks for tools.\n", encoding="utf-8"
    )
    (docs / "start.md").write_text("# Start\n\nRun the demo.\n", encoding="utf-8")

    done = CommandLine(tmp_path)("demo")

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^([✓✗]) ", done.stdout, re.MULTILINE) == ["✓"] * 4
    assert "kill -9" in done.stdout
    assert "Source: tools.md:" in done.stdout
    assert "\x1b" not in done.stdout
    assert not (tmp_path / ".perdure/server.json").exists()


@contextlib.asynccontextmanager
async def lagging(address: str, by_s: float) -> AsyncIterator[str]:
    """A port in front of a server.

    The server's data on the first connection arrives late, on others at once.
    """
    host, _, port = address.rpartition(":")
    connections = itertools.count()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        late_s = 0.0 if next(connections) else by_s
        from_server, to_server = await asyncio.open_connection(host, int(port))
        with contextlib.suppress(OSError):
            await asyncio.gather(
                passed_on(reader, to_server, 0.0), passed_on(from_server, writer, late_s)
            )

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def passed_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late_s: float
) -> None:
    """Forward each piece of data with this delay, and the end."""
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def write() -> None:
        while (piece := await pieces.get())[1]:
            await asyncio.sleep(piece[0] - loop.time())
            writer.write(piece[1])
        writer.close()

    async def read() -> None:
        data = b"-"
        while data:
            data = await reader.read(65_536)
            pieces.put_nowait((loop.time() + late_s, data))

    await asyncio.gather(read(), write())


@pytest.mark.slow
@pytest.mark.accepts("E28")
async def test_kill_is_printed_below_what_was_recorded_before_it(
    tmp_path: Path, perdure_server: str
) -> None:
    """Even if the events arrive half a second after the line in the journal."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/tools.md").write_text(TOOLS, encoding="utf-8")
    async with lagging(perdure_server, by_s=0.5) as address:
        done = await asyncio.to_thread(CommandLine(tmp_path), "demo", "--address", address)

    told = re.findall(
        r"step-1\.call-1  →|✗ the worker|✓ another worker|its worker was lost", done.stdout
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert told == ["step-1.call-1  →", "✗ the worker", "✓ another worker", "its worker was lost"]
