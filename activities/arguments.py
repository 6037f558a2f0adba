"""Normalizes the arguments of a model's calls to what their tools will receive.

Tools are lenient: `"5"` is accepted as a number. Converted values are written into the answer
before it is recorded, so that a policy, an approver and the tool all see the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar, cast

from perdure.activities.resolve_agent import Agents
from perdure.activities.user_code import called
from perdure.agents.definitions import AgentDefinition
from perdure.agents.versions import address_of
from perdure.errors import PerdureError
from perdure.schemas.tool_arguments import Arguments
from perdure.text import clean
from perdure.values.messages import AssistantMessage, ToolCall

V = TypeVar("V")

_LONGEST = timedelta(seconds=5)
"""The time limit of lookups and validators; the answer is not recorded before they end."""


async def normal(
    message: AssistantMessage, agent: AgentDefinition, agents: Agents
) -> AssistantMessage:
    """Return the message with the arguments of its calls as their tools will receive them.

    A call that fits no tool, or takes too long to convert, is left unchanged. All calls are
    converted concurrently.
    """
    converting = {
        index: _normal(part, agent, agents)
        for index, part in enumerate(message.parts)
        if isinstance(part, ToolCall)
    }
    if not converting:
        return message
    # a single call, as most answers have, needs no task
    converted = (
        [await only for only in converting.values()]
        if len(converting) == 1
        else await asyncio.gather(*converting.values())
    )
    calls = dict(zip(converting, converted, strict=True))
    return message.model_copy(
        update={"parts": tuple(calls.get(index, part) for index, part in enumerate(message.parts))}
    )


async def read(method: Callable[[str], V], text: str, arguments: Arguments, limit: timedelta) -> V:
    """Return what a method of `arguments` makes of a text: in a thread, if it may block.

    Raises:
        PerdureError: It takes longer than `limit`.
        Exception: Whatever the method raises.
    """
    if arguments.runs_user_code:
        return cast("V", await called(method, text, limit=limit))
    return method(text)


async def _normal(call: ToolCall, agent: AgentDefinition, agents: Agents) -> ToolCall:
    tool = agent.tool(call.name)
    if tool is None or not tool.runs_as:
        return call
    # running the call reports the same problem
    with contextlib.suppress(PerdureError, TimeoutError):
        async with asyncio.timeout(_LONGEST.total_seconds()):
            deployed = await agents.deployed(
                tool.owner or address_of(agent), tool.name, tool.schema_digest
            )
            text = clean(call.arguments)
            written = await read(deployed.arguments.normal, text, deployed.arguments, _LONGEST)
            return call if written == text else call.model_copy(update={"arguments": written})
    return call
