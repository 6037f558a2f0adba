"""The arguments of a model's calls, as their tools will get them.

Tools are lenient: `"5"` does for a number. What is converted is written into the answer before it is
recorded, so a policy, a person who approves, and the tool all see the same.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta

from perdure.activities.agents import Agents
from perdure.activities.user_code import called
from perdure.definitions import AgentDefinition
from perdure.errors import PerdureError
from perdure.messages import AssistantMessage, ToolCall
from perdure.text import clean

_LONGEST = timedelta(seconds=5)
"""The validators of a tool's own types may take their time, and the answer is not recorded yet."""


async def normal(message: AssistantMessage, agent: AgentDefinition, agents: Agents) -> AssistantMessage:
    """The message, each of its calls with the values that its tool gets; a call that fits no tool stays."""
    if not message.calls:
        return message
    parts = [await _normal(part, agent, agents) if isinstance(part, ToolCall) else part for part in message.parts]
    return message.model_copy(update={"parts": tuple(parts)})


async def _normal(call: ToolCall, agent: AgentDefinition, agents: Agents) -> ToolCall:
    tool = agent.tool(call.name)
    if tool is None or not tool.activity:
        return call
    with contextlib.suppress(PerdureError):  # the call itself meets what is wrong, and says it
        accepted = await agents.arguments(tool.owner or agent.name, tool.name, tool.schema_digest)
        text = clean(call.arguments)
        written = await called(accepted.normal, text, limit=_LONGEST)
        return call if written == text else call.model_copy(update={"arguments": written})
    return call
