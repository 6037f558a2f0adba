"""The client in TypeScript, compiled, and programs in Node.js that use it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ..docs.typescript_types import ROOT, modules

PACKAGE = ROOT / "clients/typescript"
HERE = Path(__file__).parent


def tool(name: str) -> str:
    """The path of a program of `make mcp-servers`; a test without it is skipped."""
    found = shutil.which(name, path=str(modules() / ".bin"))
    if found is None or shutil.which("node") is None:
        pytest.skip(f"{name} is not installed: make mcp-servers")
    return found


def compiled(folder: Path, *options: str) -> str:
    """The address of the client's module, compiled into this folder without a check of its types."""
    compile_client = [tool("tsc"), "--project", str(PACKAGE), "--outDir", str(folder), *options]
    subprocess.run([*compile_client, "--noCheck"], check=True)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return (folder / "index.js").as_uri()


@contextlib.asynccontextmanager
async def program(name: str, *arguments: str) -> AsyncIterator[Process]:
    """A program of this folder that runs during the block, or until it ends."""
    process = await asyncio.create_subprocess_exec(
        *("node", str(HERE / name), *arguments), stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def printed(name: str, *arguments: str) -> Any:
    """What a program prints, as JSON."""
    async with program(name, *arguments) as process:
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)
