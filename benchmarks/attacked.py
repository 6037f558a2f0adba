"""The worker under attack in `attacks`: an ordinary agent, and one for each kind of attack.

It is limited to 4 GB, so that an attack on memory does not affect the rest of the machine.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from perdure import Agent, MCPServer, Registry, tool
from perdure.activities.providers import OpenAIChat
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, says
from perdure.toolboxes import files
from perdure.values.messages import ToolMessage
from perdure.worker import AgentWorker

URL, FOLDER, QUEUE = "ATTACKS_URL", "ATTACKS_FOLDER", "ATTACKS_QUEUE"
MEMORY_BYTES = 4 * 1024**3
HUGE_CHARACTERS = 50_000_000
MCP_SERVER = Path(__file__).parents[1] / "tests" / "support" / "mcp" / "raw_server.py"


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen " * 1_000


@tool(read_only=True)
def huge() -> str:
    """Return far more than a model may read."""
    return "x" * HUGE_CHARACTERS


def honest(request: ModelRequest) -> Reply:
    """A turn with two model calls and a tool call between them."""
    return says("done") if isinstance(request.messages[-1], ToolMessage) else calls(call("look"))


def make() -> AgentWorker:
    """The worker."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    folder = Path(os.environ[FOLDER])
    agents = [
        Agent(name="honest", model="honest:any", tools=[look]),
        Agent(name="schema", model="evil:plain", tools=[look]),
        Agent(name="unique", model="evil:unique", tools=[look]),
        Agent(name="many", model="evil:calls-1000", tools=[look], parallel_tools=True),
        Agent(name="unknown", model="evil:calls-20000", tools=[look]),
        Agent(name="fence", model="evil:fence", tools=[look], protocol="react_text"),
        Agent(name="pattern", model="evil:pattern", toolboxes=[files(folder)]),
        Agent(name="skills", model="evil:plain", tools=[look], skills=[folder / "skills"]),
        Agent(name="huge", model="evil:huge", tools=[huge]),
        Agent(
            name="mcp",
            model="evil:mcp",
            toolboxes=[MCPServer.stdio("raw", [sys.executable, str(MCP_SERVER), str(folder)])],
        ),
        *(Agent(name=body, model=f"evil:{body}") for body in ("gzip", "large", "values", "drip")),
    ]
    evil = OpenAIChat(base_url=os.environ[URL], api_key_env=None, name="evil")
    return AgentWorker(
        Registry(agents),
        task_queue=os.environ[QUEUE],
        providers={"honest": FunctionModel(honest), "evil": evil},
    )
