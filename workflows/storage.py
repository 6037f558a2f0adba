"""Whether large values are stored outside of history, as the worker of a workflow knows it."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow

from perdure import limits
from perdure.temporal.names import HAS_STORAGE


def most_unread_bytes() -> int:
    """Return the limit of unread messages with images or files together, as JSON.

    It is for validators, which a replay does not run: workers may have different clients.
    """
    has_storage: Callable[[], bool] | None = workflow.extern_functions().get(HAS_STORAGE)
    is_stored = has_storage is not None and has_storage()
    return limits.MEDIA_BYTES if is_stored else limits.UNREAD_MEDIA_BYTES
