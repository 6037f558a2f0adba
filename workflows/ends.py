"""The ends of activities and children, which arrive while other asyncio tasks run."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow

from perdure.turn.keys import ActivityKey

_IN_ORDER = "ends-in-order"
"""The patch id of turns that fold the ends of one workflow task as history has them."""
_TASKS_TO_A_RESULT = 8
"""The number of other asyncio tasks that may run before the task that waits for a result ends.

The SDK needs three.
"""

Handle = workflow.ActivityHandle[Any]


async def has_ended(handle: asyncio.Task[Any]) -> bool:
    """Return whether an activity or a child has ended, including in this very moment.

    Cancelling an activity whose result arrived in the same workflow task, before its own asyncio
    task has processed it, would lose a result that is in history.
    """
    for _ in range(_TASKS_TO_A_RESULT):
        if handle.done():
            break
        await asyncio.sleep(0)
    return handle.done()


class Ends:
    """The order in which history has the ends of activities.

    At a cancel or a deadline in the same workflow task, activities are looked at in the order of
    their calls. Earlier releases folded their ends in that order.
    """

    def __init__(self) -> None:
        self._open: dict[ActivityKey, Handle] = {}
        self._ended: list[ActivityKey] = []

    def watch(self, key: ActivityKey, handle: Handle) -> None:
        """Note when an activity ends, until it is forgotten."""
        self._open[key] = handle
        handle.add_done_callback(lambda _: self._note(key, handle))

    def _note(self, key: ActivityKey, handle: Handle) -> None:
        if self._open.get(key) is handle:  # and not another attempt that has the same key
            self._ended.append(key)

    def before(self, key: ActivityKey) -> list[tuple[ActivityKey, Handle]]:
        """Return what has ended before an activity, in order."""
        keys = self._ended[: self._ended.index(key)] if key in self._ended else []
        if not keys or not workflow.patched(_IN_ORDER):
            return []
        return [(earlier, self._open[earlier]) for earlier in keys]

    def forget(self, key: ActivityKey) -> None:
        """Forget an activity whose end is folded, or that never left the workflow."""
        self._open.pop(key, None)
        if key in self._ended:
            self._ended.remove(key)
