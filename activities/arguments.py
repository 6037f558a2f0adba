"""The arguments of a model's calls, as their tools will get them.

Tools are lenient: `"5"` does for a number. What is converted is written into the answer before it
is recorded, so a policy, a person who approves, and the tool all see the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from perdure.activities.resolve_agent import Agents
from perdure.activities.user_code import called
from perdure.agents.definitions import AgentDefinition
from perdure.errors import PerdureError
from perdure.text import clean
from perdure.values.messages import AssistantMessage, ToolCall

_LONGEST = timedelta(seconds=5)
"""Looking a tool up and the validators of its types may take their time, and the answer is not recorded yet."""


async def normal(
    message: AssistantMessage, agent: AgentDefinition, agents: Agents
) -> AssistantMessage:
    """The message, each of its calls with the values that its tool gets.

    A call that fits no tool stays, and so does one that takes too long to be converted. All are
    converted at once, so together they take no longer than one.
    """
    told = {
        index: _normal(part, agent, agents)
        for index, part in enumerate(message.parts)
        if isinstance(part, ToolCall)
    }
    if not told:
        return message
    calls = dict(zip(told, await asyncio.gather(*told.values()), strict=True))
    return message.model_copy(
        update={"parts": tuple(calls.get(index, part) for index, part in enumerate(message.parts))}
    )


async def _normal(call: ToolCall, agent: AgentDefinition, agents: Agents) -> ToolCall:
    tool = agent.tool(call.name)
    if tool is None or not tool.activity:
        return call
    with contextlib.suppress(
        PerdureError, TimeoutError
    ):  # the call itself meets what is wrong, and says it
        async with asyncio.timeout(_LONGEST.total_seconds()):
            deployed = await agents.deployed(
                tool.owner or agent.name, tool.name, tool.schema_digest
            )
            text = clean(call.arguments)
            written = await called(deployed.arguments.normal, text, limit=_LONGEST)
            return call if written == text else call.model_copy(update={"arguments": written})
    return call
