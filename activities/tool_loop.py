"""The event loop where async tools and the lifespan live: a thread of its own, so that a tool that blocks hurts no model call.

What the lifespan yields is opened and closed in one task of this loop, as connection pools and cancel scopes need it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

from perdure import errors
from perdure.text import described

logger = logging.getLogger("perdure")

T = TypeVar("T")

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

CANCEL_GRACE_S = 5.0


class ToolLoop:
    """Runs coroutines on its own thread. `deps` is what the lifespan yielded, once opened."""

    def __init__(self, lifespan: Lifespan | None = None) -> None:
        self._lifespan = lifespan
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread
        self._keeper: concurrent.futures.Future[None]
        self._stop = asyncio.Event()
        self._ended = False
        self.deps: Any = None

    async def open(self) -> None:
        """Start the thread and enter the lifespan.

        Raises:
            ConfigurationError: The lifespan failed.
        """
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="perdure-tools", daemon=True)
        self._thread.start()
        opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._keeper = asyncio.run_coroutine_threadsafe(self._keep(opened), self._loop)
        try:
            await asyncio.wrap_future(opened)
        except Exception as error:
            self._end_thread()
            raise errors.ConfigurationError(f"the worker's lifespan failed to open: {described(error)}") from error

    async def close(self) -> None:
        """Leave the lifespan and end the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        try:
            await asyncio.wrap_future(self._keeper)
        finally:
            self._end_thread()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `coroutine` there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` there and wait. A cancel reaches it, and is waited for, but not for ever."""
        task = await asyncio.wrap_future(self.submit(_as_task(coroutine)))
        over = asyncio.wrap_future(self.submit(_end_of(task)))
        try:
            await asyncio.shield(over)
        except asyncio.CancelledError:
            if not self._ended:
                self._loop.call_soon_threadsafe(task.cancel)
                await asyncio.wait({over}, timeout=CANCEL_GRACE_S)
            raise
        return task.result()

    async def _keep(self, opened: concurrent.futures.Future[None]) -> None:
        if self._lifespan is None:
            opened.set_result(None)
            await self._stop.wait()
            return
        async with AsyncExitStack() as stack:
            try:
                self.deps = await stack.enter_async_context(self._lifespan())
            except BaseException as error:  # noqa: BLE001 - whatever it is, the worker must hear of it
                opened.set_exception(error if isinstance(error, Exception) else RuntimeError(described(error)))
                return
            opened.set_result(None)
            await self._stop.wait()

    def _serve(self) -> None:
        """Run the loop until it is to end. A task of a tool that raises SystemExit stops a loop; it must not stop this one."""
        while not self._ended:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                logger.exception("a task that a tool has started tried to end the process; it goes on")
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            self._loop.run_until_complete(_ends_of(left))

    def _end_thread(self) -> None:
        self._ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=CANCEL_GRACE_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _as_task(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.ensure_future(coroutine)


async def _end_of(task: asyncio.Task[Any]) -> None:
    await asyncio.wait({task})


async def _ends_of(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
