"""The server of notes, which can misbehave, as an MCP server of an agent."""

import sys
from pathlib import Path
from typing import Any

from perdure import MCPServer

RAW = str(Path(__file__).with_name("raw_server.py"))


def notes(folder: Path, manner: str = "", **options: Any) -> MCPServer:
    """The hand-written server."""
    return MCPServer.stdio(
        "notes", [sys.executable, "-S", RAW, str(folder), *([manner] if manner else [])], **options
    )
