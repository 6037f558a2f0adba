"""The lifespan of a worker: opened once per process, available to every tool, closed at the end."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from temporalio.client import Client

from perdure import Agent, Registry, ToolContext, errors, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ...conftest import Runtime, eventually

PROMPTLY_S = 20.0


class Shelf:
    """A resource that can be opened and closed, and records where it was used."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.loops: set[int] = set()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator["Shelf"]:
        self.log.append("open")
        self.loops.add(id(asyncio.get_running_loop()))
        try:
            yield self
        finally:
            self.log.append("close")
            self.loops.add(id(asyncio.get_running_loop()))


@tool
def take(ctx: ToolContext[Shelf], book: str) -> str:
    """Take a book from the shelf."""
    ctx.deps.log.append(f"take {book}")
    return book


@tool
async def put(ctx: ToolContext[Shelf], book: str) -> str:
    """Put a book on the shelf."""
    ctx.deps.log.append(f"put {book}")
    ctx.deps.loops.add(id(asyncio.get_running_loop()))
    return book


LIBRARIAN = Agent(name="librarian", model="scripted:x", tools=[take, put])
READER = Agent(name="reader", model="scripted:x", tools=[take])


def busy() -> ScriptedModel:
    return ScriptedModel(
        calls(call("take", book="a"), call("put", book="b")),
        says("done"),
        calls(call("take", book="c")),
        says("done"),
    )


@pytest.mark.slow
@pytest.mark.accepts("T19")
async def test_lifespan_is_opened_once_for_all_turns_and_closed_at_shutdown(
    runtime: Runtime,
) -> None:
    """Every tool of every agent gets the same object, sync or async, from the first turn to the
    last.
    """
    shelf = Shelf()
    app = AgentWorker(Registry([LIBRARIAN, READER]), lifespan=shelf.opened)
    models = {
        "librarian": busy(),
        "reader": ScriptedModel(calls(call("take", book="d")), says("done")),
    }

    async with runtime(app, model=models) as client:
        await eventually(lambda: shelf.log == ["open"], "it is opened before any turn")
        await client.run(LIBRARIAN, "first")
        await client.run(LIBRARIAN, "second")
        await client.run(READER, "third")
        during = list(shelf.log)

    assert during == ["open", "take a", "put b", "take c", "take d"]
    assert shelf.log == [*during, "close"]
    assert tool_threads() == []


@pytest.mark.slow
@pytest.mark.accepts("T19", "T11")
async def test_lifespan_lives_on_the_loop_of_the_async_tools(runtime: Runtime) -> None:
    """A connection pool belongs to one loop: it is opened, used and closed there."""
    shelf = Shelf()

    async with runtime(AgentWorker(LIBRARIAN, lifespan=shelf.opened), model=busy()) as client:
        await client.run(LIBRARIAN, "go")

    assert len(shelf.loops) == 1
    assert id(asyncio.get_running_loop()) not in shelf.loops


@pytest.mark.slow
@pytest.mark.accepts("T19")
async def test_test_replaces_the_deps_without_patching(runtime: Runtime) -> None:
    """The declared lifespan is not opened, and tools get the test's object."""
    real, fake = Shelf(), Shelf()

    async with runtime(
        AgentWorker(LIBRARIAN, lifespan=real.opened), model=busy(), deps=fake
    ) as client:
        await client.run(LIBRARIAN, "go")

    assert (real.log, fake.log) == ([], ["take a", "put b"])


@pytest.mark.slow
@pytest.mark.accepts("T19")
async def test_deps_are_none_without_a_lifespan(runtime: Runtime) -> None:
    """And the tool runs."""
    seen: list[object] = []

    @tool
    def look(ctx: ToolContext[None]) -> None:
        seen.append(ctx.deps)

    agent = Agent(name="looker", model="scripted:x", tools=[look])
    async with runtime(agent, model=ScriptedModel(calls(call("look")), says("done"))) as client:
        await client.run(agent, "go")

    assert seen == [None]


@pytest.mark.slow
@pytest.mark.accepts("T19")
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_lifespan_is_closed_after_the_tools_in_flight(runtime: Runtime, kind: str) -> None:
    """A tool that ends within the grace period of the shutdown still has its deps; they are closed
    after it.
    """
    shelf = Shelf()
    go = threading.Event()

    @tool(name="sync")
    def read(ctx: ToolContext[Shelf]) -> str:
        ctx.deps.log.append("begin")
        go.wait(5)
        ctx.deps.log.append("end")
        return "read"

    @tool(name="async")
    async def read_async(ctx: ToolContext[Shelf]) -> str:
        ctx.deps.log.append("begin")
        await asyncio.to_thread(go.wait, 5)
        ctx.deps.log.append("end")
        return "read"

    agent = Agent(name="reader", model="scripted:x", tools=[read, read_async])
    app = AgentWorker(agent, lifespan=shelf.opened)

    async with runtime(app, model=ScriptedModel(calls(call(kind)), says("done"))) as client:
        await client.start(agent, "go")
        await eventually(lambda: shelf.log == ["open", "begin"], "the tool runs")
        asyncio.get_running_loop().call_later(0.3, go.set)

    assert shelf.log == ["open", "begin", "end", "close"]


def raise_(error: BaseException) -> None:
    raise error


@contextlib.asynccontextmanager
async def fails() -> AsyncIterator[None]:
    raise_(OSError("no database"))
    yield


@contextlib.asynccontextmanager
async def exits() -> AsyncIterator[None]:
    raise_(SystemExit(3))
    yield


@contextlib.asynccontextmanager
async def yields_nothing() -> AsyncIterator[None]:
    empty: tuple[None, ...] = ()
    for nothing in empty:
        yield nothing


@contextlib.contextmanager
def sync() -> Iterator[None]:
    yield


async def undecorated() -> AsyncIterator[None]:
    yield


def needs_arguments(url: str) -> Any: ...


FAILING = pytest.mark.parametrize(
    ("lifespan", "reason"),
    [
        (fails, "OSError: no database"),
        (exits, ".*SystemExit: 3"),
        (yields_nothing, "RuntimeError: generator didn't yield"),
        (sync, ".* not an async context manager; decorate it with @contextlib.asynccontextmanager"),
        (
            undecorated,
            ".*type async_generator, .*; decorate it with @contextlib.asynccontextmanager",
        ),
        (needs_arguments, "TypeError: .*missing 1 required positional argument"),
    ],
    ids=["fails", "exits", "yields nothing", "sync", "undecorated", "needs arguments"],
)


@pytest.mark.accepts("T19", "U6", "O23")
@FAILING
async def test_lifespan_that_fails_is_a_configuration_error_of_the_running_worker(
    runtime: Runtime, lifespan: Any, reason: str
) -> None:
    """It quotes the exception, and no turn is started."""
    model = ScriptedModel(says("never"))

    with pytest.raises(
        errors.ConfigurationError, match=f"the worker's lifespan failed to open: {reason}"
    ):
        async with (
            asyncio.timeout(PROMPTLY_S),
            runtime(AgentWorker(LIBRARIAN, lifespan=lifespan), model=model),
        ):
            await asyncio.Event().wait()

    assert model.call_count == 0


@pytest.mark.table(2)
@pytest.mark.accepts("T19", "U6")
@FAILING
async def test_lifespan_that_fails_ends_the_worker_process_with_a_configuration_error(
    perdure_server: str, lifespan: Any, reason: str
) -> None:
    """`app.run()`, as `perdure worker` calls it."""
    app = AgentWorker(
        LIBRARIAN,
        lifespan=lifespan,
        task_queue="test-failing-lifespan",
        providers={"scripted": ScriptedModel()},
    )

    with pytest.raises(
        errors.ConfigurationError, match=f"the worker's lifespan failed to open: {reason}"
    ):
        async with asyncio.timeout(PROMPTLY_S):
            await app.run(perdure_server)

    assert tool_threads() == []


@pytest.mark.accepts("T19")
async def test_worker_that_is_cancelled_while_it_starts_can_be_shut_down(
    perdure_server: str,
) -> None:
    """It never ran. Its lifespan is left, and no thread remains."""
    log: list[str] = []

    @contextlib.asynccontextmanager
    async def never_opens() -> AsyncIterator[None]:
        log.append("opens")
        try:
            await asyncio.Event().wait()
            yield
        finally:
            log.append("left")

    app = AgentWorker(
        LIBRARIAN,
        lifespan=never_opens,
        task_queue="test-cancelled-start",
        providers={"scripted": ScriptedModel()},
    )
    worker = app.build(await Client.connect(perdure_server))
    running = asyncio.create_task(worker.run())
    await eventually(lambda: log == ["opens"], "the lifespan is opened")
    running.cancel()
    async with asyncio.timeout(PROMPTLY_S):
        await asyncio.wait({running})
        await worker.shutdown()

    assert running.cancelled()
    assert log == ["opens", "left"]
    assert tool_threads() == []


@pytest.mark.slow
@pytest.mark.accepts("T19")
async def test_lifespan_whose_close_fails_does_not_hold_up_the_shutdown(runtime: Runtime) -> None:
    """Earlier turns are not affected, and the thread of the tools ends."""

    @contextlib.asynccontextmanager
    async def stuck() -> AsyncIterator[Shelf]:
        yield Shelf()
        raise OSError("cannot close")

    reports = []
    with contextlib.suppress(OSError):
        async with (
            asyncio.timeout(PROMPTLY_S),
            runtime(AgentWorker(LIBRARIAN, lifespan=stuck), model=busy()) as client,
        ):
            reports.append(await client.run(LIBRARIAN, "go"))

    assert [report.output for report in reports] == ["done"]
    assert tool_threads() == []


def tool_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "perdure-tools"]
