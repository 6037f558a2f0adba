"""The event loop where async tools and the lifespan live: a thread of its own, so that a tool that blocks hurts no model call.

What the lifespan yields is opened and closed in one task of this loop, as connection pools and cancel scopes need it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

from perdure import errors

T = TypeVar("T")

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

CANCEL_GRACE_S = 5.0


class ToolLoop:
    """Runs coroutines on its own thread. `deps` is what the lifespan yielded, once opened."""

    def __init__(self, lifespan: Lifespan | None = None) -> None:
        self._lifespan = lifespan
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure-tools", daemon=True)
        self._keeper: concurrent.futures.Future[None] | None = None
        self._stop = asyncio.Event()
        self.deps: Any = None

    async def open(self) -> None:
        """Start the thread and enter the lifespan.

        Raises:
            ConfigurationError: The lifespan failed.
        """
        self._thread.start()
        opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._keeper = asyncio.run_coroutine_threadsafe(self._keep(opened), self._loop)
        try:
            await asyncio.wrap_future(opened)
        except Exception as error:
            self._end_thread()
            raise errors.ConfigurationError(f"the worker's lifespan failed to open: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Leave the lifespan and end the thread."""
        assert self._keeper is not None
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
        here = asyncio.get_running_loop()
        over = asyncio.Event()

        async def tracked() -> T:
            try:
                return await coroutine
            finally:
                here.call_soon_threadsafe(over.set)

        future = self.submit(tracked())
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            await asyncio.wait({asyncio.create_task(over.wait())}, timeout=CANCEL_GRACE_S)
            raise

    async def _keep(self, opened: concurrent.futures.Future[None]) -> None:
        if self._lifespan is None:
            opened.set_result(None)
            await self._stop.wait()
            return
        async with AsyncExitStack() as stack:
            try:
                self.deps = await stack.enter_async_context(self._lifespan())
            except BaseException as error:  # noqa: BLE001 - whatever it is, the worker must hear of it
                opened.set_exception(error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}"))
                return
            opened.set_result(None)
            await self._stop.wait()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=CANCEL_GRACE_S)
        if not self._thread.is_alive():
            self._loop.close()
