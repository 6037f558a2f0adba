"""The rollouts of a worker: which versions are stopped, and what has become of their turns."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from temporalio.client import Client
from temporalio.service import RPCError

from perdure.activities.rollouts import stopped, tally
from perdure.agents.versions import Rollout
from perdure.errors import PerdureError
from perdure.worker.agent_worker import AgentWorker
from perdure.worker.setup_checks import Finding


async def findings(client: Client, app: AgentWorker) -> AsyncIterator[Finding]:
    """Yield a finding for each version that a rollout of the worker gives turns."""
    for name in app.registry.list():
        rollout = app.rollouts.get(name)
        if rollout is not None:
            with contextlib.suppress(PerdureError):  # reported for the program
                checked = rollout.among(name, app.registry.versions(name))
                for version in checked.weights:
                    yield await _of_version(client, name, version, checked)


async def _of_version(client: Client, agent: str, version: str, rollout: Rollout) -> Finding:
    subject = f"version {version} of {agent}"
    share = f"its share is {rollout.weights[version]:.0%}"
    try:
        reason = await stopped(client, agent, version, rollout)
        if reason:
            remedy = "mend it and give it another name, or set its share to 0"
            return Finding(subject, "warning", f"{reason}; its turns get {rollout.default}", remedy)
        ours = await tally(client, agent, version)
    except RPCError as error:
        return Finding(subject, "skipped", f"{share}; its turns cannot be counted: {error.message}")
    return Finding(subject, "ok", f"{share}; {ours} of its turns have failed")
