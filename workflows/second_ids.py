"""The second id of a turn, for when another workflow has the first one, as after a reset.

A run that was reset has another run id, and replays what the run before it had begun. So the id is
made from the workflow's random numbers, which a reset changes and a replay repeats.
"""

from __future__ import annotations

from temporalio import workflow

_REPEATED = "second-ids-are-repeated"
"""The patch id of runs whose second ids are the same in a run that was reset to a later point."""


def second_id(first: str) -> str:
    """Return another id, which a run that is reset later makes again, and one reset earlier not."""
    if workflow.patched(_REPEATED):
        return f"{first}-{workflow.random().getrandbits(16):04x}"
    return f"{first}-{workflow.info().run_id[-4:]}"
