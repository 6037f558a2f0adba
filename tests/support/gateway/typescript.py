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


def compiled(folder: Path) -> str:
    """The address of the client's module, compiled into this folder; its types are not checked."""
    compile_client = [tool("tsc"), "--project", str(PACKAGE), "--outDir", str(folder)]
    subprocess.run([*compile_client, "--noCheck"], check=True)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return (folder / "index.js").as_uri()


def installed(folder: Path) -> Path:
    """Put the package into the `node_modules` of a project, as npm does, and return its folder."""
    package = folder / "node_modules" / "perdure-client"
    compiled(package / "dist")
    shutil.copy(PACKAGE / "package.json", package)
    return package


def program_of(text: str, folder: Path) -> str:
    """Compile a program with strict types in a project that has the package; the path of it."""
    installed(folder)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (folder / "program.ts").write_text(text, encoding="utf-8")
    options = json.loads((PACKAGE / "tsconfig.json").read_text(encoding="utf-8"))["compilerOptions"]
    options |= {"rootDir": ".", "outDir": ".", "declaration": False, "noUnusedLocals": False}
    project = {"compilerOptions": options, "files": ["program.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(project), encoding="utf-8")
    checked = [tool("tsc"), "--project", str(folder)]
    done = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return str(folder / "program.js")


@contextlib.asynccontextmanager
async def program(path: str, *arguments: str) -> AsyncIterator[Process]:
    """A program of this folder, or with a complete path, that runs during the block."""
    process = await asyncio.create_subprocess_exec(
        *("node", str(HERE / path), *arguments), stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def printed(path: str, *arguments: str) -> Any:
    """What a program prints, as JSON."""
    async with program(path, *arguments) as process:
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)
