"""Agents with the tools of an MCP server, in a worker process: `python -m perdure worker
tests.support.e2e.mcp_app:make`.
"""

import os
import sys
from pathlib import Path

from perdure import Agent, MCPServer
from perdure.activities.providers import OpenAIChat
from perdure.worker import AgentWorker

from .app import AGENT

SERVER = Path(__file__).parents[2] / "support/mcp/raw_server.py"


def make() -> AgentWorker:
    """The worker."""
    server = MCPServer.stdio("notes", [sys.executable, "-S", str(SERVER), os.environ["E2E_NOTES"]])
    agent = Agent(name=AGENT, model="stub:keeper", toolboxes=[server])
    return AgentWorker(
        agent,
        providers={
            "stub": OpenAIChat(base_url=os.environ["E2E_PROVIDER"], api_key_env=None, name="stub")
        },
    )
