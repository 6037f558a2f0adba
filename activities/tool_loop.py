"""The event loop of async tools and the lifespan.

It runs in a thread of its own, so that a blocking tool does not delay model calls. The lifespan is
entered and exited in one task of this loop, as connection pools and cancel scopes require.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Generic, TypeVar

from temporalio.exceptions import ApplicationError

from perdure import errors
from perdure.activities.error_log import log_raised
from perdure.activities.loop_watchdog import BLOCKED_S, LoopWatchdog
from perdure.agents.tracebacks import place_of, raised
from perdure.errors import PerdureError
from perdure.temporal.names import WORKER_SHUTDOWN
from perdure.text import described

logger = logging.getLogger("perdure")

T = TypeVar("T")

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

CANCEL_GRACE_S = 15.0
"""Longer than a turn waits for a cancelled activity.

A tool that does not stop is therefore still in flight, and named, when the turn ends.
"""

_THREAD_END_S = 5.0
_NAP_S = 0.2


class ToolLoop:
    """Runs coroutines on a thread of its own. `deps` is what the lifespan yielded, once opened."""

    def __init__(
        self,
        lifespan: Lifespan | None = None,
        *,
        name: str = "perdure-tools",
        blocked_s: float = BLOCKED_S,
    ) -> None:
        self._lifespan = lifespan
        self._name = name
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread
        self._keeper: concurrent.futures.Future[None]
        self._stop = asyncio.Event()
        self._ended = False
        self._watch = LoopWatchdog(name, blocked_s)
        self.deps: Any = None

    @property
    def has_lifespan(self) -> bool:
        """Whether a lifespan provides `deps`."""
        return self._lifespan is not None

    async def open(self) -> None:
        """Start the thread and enter the lifespan.

        Raises:
            ConfigurationError: The lifespan failed.
        """
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        self._thread.start()
        self._watch.start(self._loop, self._thread)
        opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._keeper = asyncio.run_coroutine_threadsafe(self._keep(opened), self._loop)
        try:
            await asyncio.wrap_future(opened)
        except BaseException as error:
            await asyncio.to_thread(self._end_thread)
            if not isinstance(error, Exception):
                raise
            reason = error.message if isinstance(error, PerdureError) else raised(error)
            failed = errors.ConfigurationError(f"the worker's lifespan failed to open: {reason}")
            if place_of(error):
                log_raised(failed.message, error)
            raise failed from error

    async def close(self) -> None:
        """Exit the lifespan and end the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        try:
            await asyncio.wrap_future(self._keeper)
        finally:
            await asyncio.to_thread(self._end_thread)

    async def run(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> T:
        """Run `coroutine` on the loop and wait for it.

        A cancellation is passed on and awaited for up to `CANCEL_GRACE_S`. `name` is its name in
        the log.

        Raises:
            CancelledError: This call was cancelled, or the worker was stopped while the coroutine
                ran.
        """
        job = _Job(coroutine, name)
        over = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(job.supervise(), self._loop))
        try:
            await asyncio.shield(over)
        except asyncio.CancelledError:
            if self._ended:
                raise ApplicationError(
                    "the worker was stopped while it ran this", type=WORKER_SHUTDOWN
                ) from None
            self._loop.call_soon_threadsafe(job.stop)
            await asyncio.wait({over}, timeout=CANCEL_GRACE_S)
            raise
        return job.result()

    def run_blocking(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> T:
        """Run `coroutine` from a thread, waiting in short intervals.

        A thread in a long wait cannot be interrupted.
        """
        job = _Job(coroutine, name)
        over = asyncio.run_coroutine_threadsafe(job.supervise(), self._loop)
        try:
            while not concurrent.futures.wait([over], timeout=_NAP_S).done:
                pass
        except BaseException:
            self._loop.call_soon_threadsafe(job.stop)
            concurrent.futures.wait([over], timeout=CANCEL_GRACE_S)
            raise
        return job.result()

    async def _keep(self, opened: concurrent.futures.Future[None]) -> None:
        if self._lifespan is None:
            opened.set_result(None)
            await self._stop.wait()
            return
        task = asyncio.current_task()
        assert task is not None
        task.set_name("lifespan")
        async with AsyncExitStack() as stack:
            try:
                self.deps = await stack.enter_async_context(_managed(self._lifespan()))
            except BaseException as error:  # noqa: BLE001 - whatever it is, it must reach the worker
                opened.set_exception(
                    error if isinstance(error, Exception) else RuntimeError(described(error))
                )
                return
            opened.set_result(None)
            await self._stop.wait()

    def _serve(self) -> None:
        """Run the loop until the end.

        A task that raises SystemExit stops the loop; it is then restarted.
        """
        while not self._ended:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                logger.exception("a task started by a tool tried to end the process, which goes on")
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            self._loop.run_until_complete(_ends_of(tasks))

    def _end_thread(self) -> None:
        self._ended = True
        self._watch.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_THREAD_END_S)
        if not self._thread.is_alive():
            self._loop.close()


def _managed(opened: object) -> AbstractAsyncContextManager[Any]:
    """Return the context manager of a lifespan.

    Raises:
        ConfigurationError: It is not an async context manager.
    """
    if isinstance(opened, AbstractAsyncContextManager):
        return opened
    if inspect.iscoroutine(opened):
        opened.close()
    raise errors.ConfigurationError(
        f"it returned a value of type {type(opened).__name__}, not an async context manager;"
        " decorate it with @contextlib.asynccontextmanager"
    )


class _Job(Generic[T]):
    """A coroutine on the tool loop.

    It is stopped on that loop, so a stop comes before its start, while it runs or after its end,
    and never in between.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], name: str) -> None:
        self._coroutine = coroutine
        self._what = name
        self._task: asyncio.Task[T] | None = None
        self._stopped = False

    async def supervise(self) -> None:
        """Run the coroutine to its end, unless it was stopped before it started."""
        if self._stopped:
            self._coroutine.close()
            return
        self._task = asyncio.create_task(self._coroutine, name=self._what or None)
        await asyncio.wait({self._task})

    def stop(self) -> None:
        """Cancel it. Must be called on the tool loop."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    def result(self) -> T:
        assert self._task is not None
        return self._task.result()


async def _ends_of(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
