"""An agent with an MCP server over HTTP whose calls become tasks, in a worker process: `python -m
perdure worker tests.support.e2e.mcp_tasks_app:make`.
"""

import os

from perdure import Agent, MCPServer
from perdure.activities.providers import OpenAIChat
from perdure.worker import AgentWorker

from .app import AGENT


def make() -> AgentWorker:
    """The worker."""
    server = MCPServer.http("works", os.environ["E2E_WORKS"])
    provider = OpenAIChat(base_url=os.environ["E2E_PROVIDER"], api_key_env=None, name="stub")
    agent = Agent(name=AGENT, model="stub:builder", instructions="Do as told.", toolboxes=[server])
    return AgentWorker(agent, providers={"stub": provider})
