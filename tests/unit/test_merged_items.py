"""One iterator over the items of several."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from perdure.clients.reading.merged import Merged
from perdure.errors import PerdureError


async def given(
    *items: str, gate: asyncio.Event | None = None, error: Exception | None = None
) -> AsyncGenerator[str, None]:
    """These items; the last one after a gate, and an error at the end."""
    for item in items[:-1]:
        yield item
    if gate is not None:
        await gate.wait()
    yield items[-1]
    if error is not None:
        raise error


@pytest.mark.accepts("E189")
async def test_items_come_as_they_are_there_and_those_that_were_waited_for_before() -> None:
    merged, gate, before = Merged[str](), asyncio.Event(), asyncio.all_tasks()

    async def first() -> AsyncGenerator[str, None]:
        yield "begins"
        merged.add("other", given("a", "b", gate=gate))
        yield "runs"
        gate.set()
        await merged.over("other")
        yield "is over"

    assert [item async for item in merged.items(first())] == ["begins", "runs", "a", "b", "is over"]
    assert not asyncio.all_tasks() - before


@pytest.mark.accepts("E189")
async def test_other_that_fails_ends_and_the_first_goes_on() -> None:
    """An error of the first is raised, after the items that came before it."""
    merged, heard, before = Merged[str](), list[str](), asyncio.all_tasks()

    async def first() -> AsyncGenerator[str, None]:
        merged.add("other", given("a", error=PerdureError("gone")))
        await merged.over("other")
        await merged.over("unknown")
        yield "goes on"
        raise PerdureError("over")

    async def hear() -> None:
        async for item in merged.items(first()):
            heard.append(item)

    with pytest.raises(PerdureError, match="over"):
        await hear()

    assert heard == ["a", "goes on"]
    assert not asyncio.all_tasks() - before


@pytest.mark.accepts("E189")
async def test_nothing_runs_after_the_consumer_has_gone() -> None:
    """It leaves while all wait, or is cancelled; one that is dropped is not waited for."""
    merged, never, before = Merged[str](), asyncio.Event(), asyncio.all_tasks()

    async def first() -> AsyncGenerator[str, None]:
        merged.add("other", given("a", gate=never))
        merged.add("dropped", given("b", gate=never))
        merged.drop("dropped")
        await merged.over("dropped")
        yield "waits"
        await never.wait()

    items = merged.items(first())
    assert await anext(items) == "waits"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(items)
    with contextlib.suppress(StopAsyncIteration):
        await items.aclose()

    assert not asyncio.all_tasks() - before
