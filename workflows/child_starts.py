"""Starts of children that a cancelled workflow does not wait for any more.

When a workflow is cancelled in the task in which it starts a child, the SDK raises the cancellation
from the start, and tells its own future that the child was cancelled. Nobody can await that future,
so Python reports its exception as an error when it is collected.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.exceptions import ChildWorkflowError


def ignore_unawaited() -> None:
    """Keep the end of a child that was cancelled before it started out of the worker's log."""
    asyncio.get_running_loop().set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    is_unawaited = isinstance(context.get("future"), asyncio.Future)
    if not (is_unawaited and isinstance(context.get("exception"), ChildWorkflowError)):
        loop.default_exception_handler(context)
