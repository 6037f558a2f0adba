"""Tools in a simulation that the client of a turn runs."""

from __future__ import annotations

from perdure.testing.simulation.choices import Choices
from perdure.values.client_tools import ClientTool
from perdure.values.messages import ToolCall

ABOUT_CLIENTS = "client tools"
"""The sequence of what happens to the calls of the client."""

CLIENT_TOOLS = (
    ClientTool(name="locate", description="Find out where the user is."),
    ClientTool(name="scan", description="Read the document before the user."),
)


def some_client_call(choices: Choices) -> ToolCall:
    """Return a call of a tool of the client, whose arguments may be anything."""
    name = choices.pick([tool.name for tool in CLIENT_TOOLS], beside=ABOUT_CLIENTS)
    arguments = choices.pick(("{}", '{"a": 1}', "["), beside=ABOUT_CLIENTS)
    return ToolCall(id="", name=name, arguments=arguments)
