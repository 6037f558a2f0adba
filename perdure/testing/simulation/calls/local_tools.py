"""Tools in a simulation that run within a workflow task."""

from __future__ import annotations

from perdure.agents.tools import tool
from perdure.testing.simulation.choices import Choices
from perdure.values.messages import ToolCall

ABOUT_LOCAL = "local tools"
"""The sequence of the calls of local tools."""


@tool(read_only=True, local=True)
def peek(a: int = 0) -> str:
    """Change nothing, at once."""
    return f"peeked {a}"


@tool(read_only=True, local=True)
async def recall(a: int = 0) -> str:
    """Change nothing, at once, in an event loop."""
    return f"recalled {a}"


LOCAL_TOOLS = (peek, recall)


def some_local_call(choices: Choices) -> ToolCall:
    """Return a call of a local tool."""
    name = choices.pick(("peek", "peek", "recall"), beside=ABOUT_LOCAL)
    arguments = choices.pick(("{}", '{"a": 1}', '{"a": 2}', '{"a": 3}'), beside=ABOUT_LOCAL)
    return ToolCall(id="", name=name, arguments=arguments)
