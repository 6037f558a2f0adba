"""The builds of the workers: whether something is pinned to a build that is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from temporalio.client import Client

from perdure.text import counted
from perdure.worker.deploying.versions import Deployment, VersionStatus, deployments
from perdure.worker.setup_checks import Finding


async def findings(client: Client) -> AsyncIterator[Finding]:
    """Yield what is wrong with each deployment of the namespace; nothing without deployments.

    Raises:
        PerdureError: The server does not answer.
    """
    async for name in deployments(client):
        versions = await Deployment(client, name).versions()
        wrong = [finding for version in versions for finding in _gone(version)]
        for finding in wrong:
            yield finding
        if not wrong:
            found = f"each of its builds that is needed has workers, of {len(versions)}"
            yield Finding(f"deployment {name}", "ok", found)


def _gone(version: VersionStatus) -> Iterator[Finding]:
    """Yield what nobody does, because no worker of a build polls."""
    if version.workers:
        return
    subject = f"build {version.name} of {version.deployment}"
    if version.state == "current":
        yield Finding(
            subject,
            "failed",
            "new work goes to it, and no worker of it polls",
            f"start workers with PERDURE_BUILD_ID={version.build_id}, or `perdure deploy rollback`",
        )
    elif version.pinned:
        yield Finding(
            subject,
            "failed",
            f"{counted(version.pinned, 'workflow')} pinned to it, and no worker of it polls",
            f"start workers with PERDURE_BUILD_ID={version.build_id}, or move them with `perdure"
            f" deploy drain {version.build_id} --override`",
        )
