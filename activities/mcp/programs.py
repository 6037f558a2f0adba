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
    program, path = server.command[0], os.environ.get(server.variables.get("PATH", "PATH"))
    if "/" in program:
        return (
            "" if shutil.which(Path(server.cwd) / program) else f"there is no program {program!r}"
        )
    return (
        ""
        if shutil.which(program, path=path)
        else f"there is no program {program!r} on the PATH of this worker"
    )
