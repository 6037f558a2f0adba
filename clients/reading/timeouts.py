"""The longest time that a caller waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated

from annotated_types import Interval

from perdure import errors, validation
from perdure.validation import Must

Timeout = timedelta | float | None
"""The longest wait, as a timedelta or in seconds; None for an unlimited wait."""

_TIMEOUT = (
    Annotated[
        Annotated[timedelta, Interval(ge=timedelta(), le=validation.LONGEST)]
        | Annotated[float, Interval(ge=0, le=validation.LONGEST.total_seconds())],
        Must("a timedelta or a number of seconds, zero or more"),
    ]
    | None
)


@contextlib.asynccontextmanager
async def at_most(timeout: Timeout) -> AsyncIterator[None]:
    """Run a block for at most a time; when that is over, the block ends without an error.

    Raises:
        InvalidRequestError: The timeout is not valid.
    """
    validation.check(
        "the wait", {"timeout": timeout}, {"timeout": _TIMEOUT}, errors.InvalidRequestError
    )
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            yield
