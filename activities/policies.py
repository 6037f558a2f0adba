"""Policies: user functions that decide about calls before they run.

All policies that apply to a tool run concurrently, and the strictest verdict counts. They see what
the tool would receive; a call whose arguments the tool would reject is denied without them.
"""

from __future__ import annotations

import asyncio
import logging

from perdure import limits, validation
from perdure.activities import tool_compatibility
from perdure.activities.arguments import read
from perdure.activities.error_log import log_raised
from perdure.activities.resolve_agent import Agents
from perdure.activities.user_code import called
from perdure.agents.policy import Allow, Deny, ProposedCall, RequireApproval, strictest
from perdure.agents.tools import Tool
from perdure.agents.tracebacks import named, raised
from perdure.errors import ConfigurationError, PerdureError
from perdure.schemas.tool_arguments import Arguments, GivenArguments
from perdure.text import clean, described
from perdure.turn.approvals import PolicyCall, Ruling

logger = logging.getLogger("perdure")


class Policies:
    """Runs the policies of agents."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def ask_policy(self, call: PolicyCall) -> Ruling:
        """Return the verdict of the policies about a call. A policy that fails denies it."""
        try:
            proposed = await self._proposed(call)
        except ValueError as error:
            return Ruling(verdict=Deny(reason=f"its arguments are not valid: {error}"))
        except PerdureError as error:
            return Ruling(verdict=Deny(reason=error.message))
        names = call.policies or (call.agent,)
        verdicts = (self._verdict(proposed.model_copy(update={"agent": name})) for name in names)
        return Ruling(verdict=strictest(await asyncio.gather(*verdicts)))

    async def _proposed(self, call: PolicyCall) -> ProposedCall:
        """Return the call as policies see it.

        Raises:
            ValueError: The tool would reject its arguments.
            PerdureError: The tool is not available.
        """
        text = clean(call.arguments)
        arguments: Arguments = GivenArguments({})
        fields = call.model_dump(include=set(ProposedCall.model_fields) - {"arguments"})
        has_changed = False
        if call.owner:  # the turn itself runs delegation tools, which take JSON
            item = await self._agents.deployed(
                call.owner, call.undoes or call.tool, call.schema_digest
            )
            item = _undo_of(item) if call.undoes else item
            arguments, has_changed = item.arguments, call.schema_digest not in ("", item.digest)
            fields["read_only"] = call.read_only and tool_compatibility.only_reads(item)
        try:
            values = await read(arguments.values, text, arguments, limits.USER_CODE)
        except ValueError as error:
            raise ValueError(
                f"the tool has changed since this turn began: {error}"
                if has_changed
                else str(error)
            ) from None
        normal = await read(arguments.normal, text, arguments, limits.USER_CODE)
        return ProposedCall(**fields, arguments=normal, values=values)

    async def _verdict(self, call: ProposedCall) -> Allow | Deny | RequireApproval:
        agent = await self._agents.of_this_activity(call.agent)
        if agent.policy is None:
            return Deny(reason="the deployed agent has no policy any more")
        try:
            about = call.model_copy(update={"agent": agent.name})  # without its version
            verdict = await called(agent.policy, about, limit=limits.USER_CODE)
        except Exception as error:  # noqa: BLE001 - it is logged
            log_raised(f"the policy of agent {call.agent} failed: {raised(error)}", error)
            reason = error.message if isinstance(error, PerdureError) else described(error)
            return Deny(reason=f"the policy failed: {reason}")
        if not isinstance(verdict, Allow | Deny | RequireApproval):
            wrong = (
                f"the policy {named(agent.policy)} of agent {call.agent} returned"
                f" {validation.sort(verdict)}"
            )
            wrong += "; it must return Allow(), Deny(reason) or RequireApproval()"
            logger.error("%s", wrong)
            return Deny(reason=wrong)
        return verdict


def _undo_of(item: Tool) -> Tool:
    """Return the tool that takes calls of a tool back.

    Raises:
        ConfigurationError: The deployed tool has none.
    """
    if item.undo is None:
        raise ConfigurationError(f"the deployed tool {item.name} does not have undo= any more")
    return item.undo
