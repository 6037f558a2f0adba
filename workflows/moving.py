"""How a workflow that is pinned to a version of its workers moves on to another one.

It goes on in a new run, which begins on the version that is current then
(docs/decisions/0138). A workflow that waits has no task in which it could see that this version has
changed, so it is asked with the signal `move_on`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow

ONE_TASK = timedelta(milliseconds=1)
"""The timer of a run that waits for its next workflow task only."""
_PATCH = "moves-on"
"""The patch id of workflows that move on; those of an earlier release stay on their version."""


def is_due() -> bool:
    """Return whether another version is to go on with this workflow. False without versions."""
    is_changed = workflow.info().is_target_worker_deployment_version_changed()
    return is_changed and workflow.patched(_PATCH)


async def next_task(summary: str) -> None:
    """Wait until the next workflow task."""
    await workflow.sleep(ONE_TASK, summary=summary)


def options() -> dict[str, Any]:
    """Return the options of `workflow.continue_as_new` about versions; none if nothing changes."""
    if not is_due():
        return {}
    upgrade = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
    return {"initial_versioning_behavior": upgrade}
