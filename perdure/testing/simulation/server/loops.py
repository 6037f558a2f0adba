"""An event loop that asks the operating system for nothing while there is something to run."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any


class _Selector(selectors.DefaultSelector):
    """A selector that looks for I/O only if there is nothing else to do, and waits for no timer.

    Attributes:
        passed_s: The seconds that were not waited for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            return super().select(timeout)
        self.passed_s += timeout
        return []


class QuickLoop(asyncio.SelectorEventLoop):
    """An event loop that has no executor: what would run in one runs at once.

    Its timers fire at once, too, as soon as nothing else can run. Its time is what was not waited
    for, whatever the machine does meanwhile.
    """

    def __init__(self) -> None:
        self._quick = _Selector()
        super().__init__(self._quick)

    def time(self) -> float:
        """Return the seconds that were not waited for."""
        return self._quick.passed_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function at once."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - the caller of the function gets it
            future.set_exception(error)
        return future


@functools.cache
def loop_of(use: str) -> QuickLoop:
    """Return the event loop of one use in all simulations of this process.

    One may run while another one does: an activity may start a workflow.
    """
    return QuickLoop()
