"""Which version of an agent a turn gets, by the rollouts of the worker and the turns that ended.

The result is recorded with the definition of the agent, so it is asked once for each turn. How many
turns of a version have failed is counted by Temporal's lists, and known for some seconds. While
they do not answer, what they said last counts; before that, no version is stopped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest
from temporalio.client import Client
from temporalio.converter import DefaultPayloadConverter
from temporalio.service import RPCError

from perdure.agents.registry import Registry
from perdure.agents.versions import PinnedVersion, Rollout, Tally, parts_of
from perdure.errors import UnknownAgentError
from perdure.temporal import search_attributes
from perdure.temporal.names import TURN
from perdure.turn.agent_call import AgentCall

logger = logging.getLogger("perdure")

_FRESH_S = 10.0
_PATIENCE = timedelta(seconds=1)
_FAILED = ("Failed", "TimedOut")
_ENDED = ("Completed", *_FAILED)


class Rollouts:
    """Chooses the versions of the agents of a worker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._stops: dict[tuple[str, str], _LastAnswer] = {}
        self._counting = asyncio.Lock()

    async def choice(self, client: Client, call: AgentCall, turn_id: str) -> PinnedVersion:
        """Return the version of the agent of a turn, with the reason if it is a fallback.

        Raises:
            UnknownAgentError: There is no agent of this name, or no version that the caller names.
        """
        name, version = parts_of(call.agent)
        if name != call.agent:  # an address is for activities: it would pass over permissions
            raise UnknownAgentError(
                f"no agent named {call.agent!r}; name the agent, and the version with"
                f" version={version!r}",
                context={"agent": call.agent},
            )
        if call.version:
            self._registry.check_version(call.agent, call.version)
            return PinnedVersion(name=call.version)
        rollout = self._registry.rollout(call.agent)
        if rollout is None:
            return PinnedVersion()
        version = rollout.choice(call.agent, call.subject or turn_id)
        if rollout.stop is None or version == rollout.default:
            return PinnedVersion(name=version)
        reason = await self._reason(client, call.agent, version, rollout)
        if not reason:
            return PinnedVersion(name=version)
        return PinnedVersion(name=rollout.default or "", fell_back_from=version, reason=reason)

    def is_at_hand(self, name: str) -> bool:
        """Return whether the versions of an agent are chosen without a request to Temporal."""
        rollout = self._registry.rollout(name)
        return rollout is None or rollout.stop is None or not any(rollout.weights.values())

    async def _reason(self, client: Client, agent: str, version: str, rollout: Rollout) -> str:
        """Return why a version is stopped; empty if it is not."""
        async with self._counting:
            known = self._stops.get((agent, version))
            if known is not None and time.monotonic() - known.asked_at < _FRESH_S:
                return known.reason
            try:
                reason = await stopped(client, agent, version, rollout)
            except RPCError as error:
                reason = known.reason if known else ""
                logger.warning(
                    "the turns of agent %s by version cannot be counted (%s): version %s %s",
                    *(agent, error.message, version, "is stopped" if reason else "goes on"),
                )
            before = known.reason if known else ""
            if reason and not before:
                logger.warning(
                    "rollout of agent %s: %s; its turns get %s", agent, reason, rollout.default
                )
            elif before and not reason:
                logger.warning("rollout of agent %s: version %s gets turns again", agent, version)
            self._stops[agent, version] = _LastAnswer(reason, time.monotonic())
            return reason


@dataclass(frozen=True)
class _LastAnswer:
    """Why a version is stopped, empty if it is not, and when that was asked."""

    reason: str
    asked_at: float


async def stopped(client: Client, agent: str, version: str, rollout: Rollout) -> str:
    """Return why the rule of a rollout stops a version, by the turns that Temporal lists.

    It is empty if it does not.

    Raises:
        RPCError: Temporal does not count them.
    """
    if rollout.stop is None or rollout.default is None:
        return ""
    ours, theirs = await asyncio.gather(
        tally(client, agent, version), tally(client, agent, rollout.default)
    )
    if not rollout.stop.stops(ours, theirs):
        return ""
    return (
        f"version {version} is stopped: {ours} of its turns have failed, and {theirs} of version"
        f" {rollout.default}"
    )


async def tally(client: Client, agent: str, version: str) -> Tally:
    """Return how many turns of a version have ended by themselves, and how many have failed.

    Raises:
        RPCError: Temporal does not count them.
    """
    query = (
        f"WorkflowType = '{TURN}' AND {search_attributes.AGENT.name} ="
        f" '{search_attributes.keyword(agent)}' AND {search_attributes.LABELS.name} ="
        f" '{search_attributes.version(version)}' AND ExecutionStatus IN"
        f" ({', '.join(map(repr, _ENDED))}) GROUP BY ExecutionStatus"
    )
    request = CountWorkflowExecutionsRequest(namespace=client.namespace, query=query)
    counts = await client.workflow_service.count_workflow_executions(request, timeout=_PATIENCE)
    by_status = {
        str(DefaultPayloadConverter().from_payload(group.group_values[0])): group.count
        for group in counts.groups
    }
    return Tally(sum(by_status.values()), sum(by_status.get(name, 0) for name in _FAILED))
