"""Checks that the program of an MCP server exists."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from perdure.agents.mcp_servers import MCPServer


def missing(server: MCPServer) -> str:
    """Return what is wrong with a server's command; empty if its program is found."""
    if not server.command:
        return ""
    program = server.command[0]
    if "/" in program:
        executable = shutil.which(Path(server.cwd) / program)
        return "" if executable else f"there is no program {program!r}"
    path = os.environ.get(server.variables.get("PATH", "PATH"))
    executable = shutil.which(program, path=path)
    return "" if executable else f"there is no program {program!r} on the PATH of this worker"
