"""Functions of the user, as a worker calls them: they may block, hang, and raise any exception."""

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure.activities.user_code import called
from perdure.errors import PerdureError

LONG = timedelta(seconds=60)
where = contextvars.ContextVar("where", default="nowhere")


async def test_function_that_blocks_does_not_block_the_loop() -> None:
    """It is released by the loop that waits for it; it has the caller's context."""
    free = threading.Event()
    where.set("here")
    asyncio.get_running_loop().call_soon(free.set)

    said = await called(lambda word: (word, free.wait(60), where.get()), "go", limit=LONG)

    assert said == ("go", True, "here")


async def test_coroutine_of_either_kind_is_awaited() -> None:
    """Of an async function, and one that a plain function returns."""

    async def double(number: int) -> int:
        return 2 * number

    assert [await called(double, 2, limit=LONG), await called(lambda: double(3), limit=LONG)] == [
        4,
        6,
    ]


async def _hang() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "function", [_hang, lambda: threading.Event().wait(5)], ids=["async", "sync"]
)
async def test_function_that_hangs_is_given_up(function: Callable[[], Any]) -> None:
    """The error has the time."""
    with pytest.raises(PerdureError, match=r"it took longer than 0\.05 s"):
        await called(function, limit=timedelta(seconds=0.05))


async def _cancels_itself() -> None:
    raise asyncio.CancelledError


def _interrupts() -> None:
    raise KeyboardInterrupt("enough")


async def _interrupts_later() -> None:
    raise KeyboardInterrupt("enough")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (sys.exit, "it called sys.exit"),
        (_cancels_itself, "it cancelled itself"),
        (_interrupts, r"^KeyboardInterrupt \(test_user_code\.py:\d+ in _interrupts\)$"),
        (_interrupts_later, r"^KeyboardInterrupt \(test_user_code\.py:\d+ in _interrupts_later\)$"),
    ],
    ids=["exits", "cancels itself", "interrupts", "interrupts later"],
)
async def test_what_would_stop_the_worker_is_an_error(
    function: Callable[[], Any], words: str
) -> None:
    """No exception of the user has a class that the worker treats as its own. Its message may quote
    anything and is not passed on.
    """
    with pytest.raises(Exception, match=words) as caught:
        await called(function, limit=LONG)

    assert not isinstance(caught.value, asyncio.CancelledError)


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), TimeoutError("of its own"), KeyError("x"), StopIteration("over")],
    ids=repr,
)
async def test_other_exceptions_are_its_own(error: Exception) -> None:
    """Including a TimeoutError, which differs from that of the limit."""

    def fail() -> None:
        raise error

    with pytest.raises(Exception) as caught:
        await called(fail, limit=LONG)

    assert caught.value is error or caught.value.__cause__ is error


async def test_cancel_of_the_caller_is_a_cancel() -> None:
    """For a function that waits, and for one that blocks."""
    free = threading.Event()
    tasks = [
        asyncio.create_task(called(_hang, limit=LONG)),
        asyncio.create_task(called(free.wait, 5, limit=LONG)),
    ]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    free.set()

    assert [type(one) for one in ended] == [asyncio.CancelledError] * 2
