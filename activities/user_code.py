"""Calls user functions that are not tools: policies, checks, observers, factories.

Sync functions run in a thread of their own: blocking the worker's loop would stop the heartbeats of
all its activities, and every turn of the worker would lose its calls. The threads are daemons, so a
thread that never ends does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from perdure.agents.tracebacks import raised_unquoted
from perdure.errors import PerdureError


async def called(function: Callable[..., Any], *arguments: object, limit: timedelta) -> Any:
    """Call a sync or async function and return its result.

    Raises:
        PerdureError: It takes longer than `limit`, or raises something that is not an `Exception`,
            such as `SystemExit` or `KeyboardInterrupt`, which would stop the worker, or an
            unrequested cancellation.
        Exception: Whatever the function raises.
    """
    deadline = asyncio.timeout(limit.total_seconds())
    try:
        async with deadline:
            result = (
                function(*arguments)
                if inspect.iscoroutinefunction(function)
                else await _in_thread(function, *arguments)
            )
            return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise PerdureError("it cancelled itself") from None
    except TimeoutError:
        if deadline.expired():
            raise PerdureError(f"it took longer than {limit.total_seconds():g} s") from None
        raise
    except SystemExit:
        raise PerdureError("it called sys.exit") from None
    except Exception:
        raise
    except BaseException as error:
        raise PerdureError(raised_unquoted(error)) from error


async def _in_thread(function: Callable[..., Any], *arguments: object) -> Any:
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def tell(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value: Any = None
        raised: BaseException | None = None
        try:
            value = context.run(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised in the caller
            raised = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, value, raised)

    threading.Thread(target=run, name="perdure-user-code", daemon=True).start()
    value, raised = await ended
    if raised is not None:
        raise raised
    return value
