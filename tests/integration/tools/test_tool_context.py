"""The context of a tool call: ids, idempotency key, secrets, heartbeats."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import Agent, ToolContext, tool
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import RecordingClient, Run, Runtime
from ...support.tooling import results_of


@pytest.mark.accepts("T12")
async def test_context_is_injected_and_hidden_from_the_model(runtime: Runtime) -> None:
    """Turn, call, attempt, labels, deps and a key of 32 hexadecimal digits, in sync and async
    tools.
    """
    seen: list[ToolContext[str]] = []

    @tool
    def note(ctx: ToolContext[str], word: str) -> str:
        seen.append(ctx)
        return word

    @tool
    async def keep(word: str, ctx: ToolContext[str]) -> str:
        seen.append(ctx)
        return word

    agent = Agent(name="clerk", model="scripted:x", tools=[note, keep])
    model = ScriptedModel(
        calls(call("note", call_id="c1", word="a"), call("keep", call_id="c2", word="b")),
        says("done"),
    )

    async with runtime(agent, model=model, deps="shelf") as client:
        await client.run(agent, "go", id="note-1", labels={"team": "maths"})

    assert [(ctx.turn_id, ctx.call_id, ctx.attempt, ctx.labels, ctx.deps) for ctx in seen] == [
        ("note-1", "c1", 1, {"team": "maths"}, "shelf"),
        ("note-1", "c2", 1, {"team": "maths"}, "shelf"),
    ]
    assert all(len(ctx.idempotency_key) == 32 and int(ctx.idempotency_key, 16) for ctx in seen)
    assert [item.parameters["properties"] for item in model.requests[0].tools] == [
        {"word": {"type": "string"}}
    ] * 2


@pytest.mark.slow
@pytest.mark.accepts("T12")
async def test_each_call_has_an_idempotency_key_of_its_own(runtime: Runtime) -> None:
    """Equal calls of one turn differ, and so does the same call of a turn that is restarted under
    its id.
    """
    keys: list[str] = []

    @tool
    def pay(ctx: ToolContext[None], amount: int) -> str:
        keys.append(ctx.idempotency_key)
        return "paid"

    agent = Agent(name="clerk", model="scripted:x", tools=[pay], on_loop="ignore")
    script = [
        calls(call("pay", amount=1), call("pay", amount=1)),
        calls(call("pay", amount=1)),
        says("done"),
    ]

    async with runtime(agent, model=ScriptedModel(*script, *script)) as client:
        await client.run(agent, "go", id="pay-1")
        await client.run(agent, "go", id="pay-1", if_exists="restart")

    assert len(keys) == len(set(keys)) == 6


@pytest.mark.slow
@pytest.mark.accepts("T12")
async def test_tool_reads_a_secret_from_the_environment_of_the_worker(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing one is an error result that names the variable."""
    monkeypatch.setenv("SHELF_KEY", "k-123")
    seen: list[str] = []

    @tool
    def unlock(ctx: ToolContext[None], name: str) -> str:
        seen.append(ctx.secret(name))
        return "open"

    results = await results_of(
        run, call("unlock", name="SHELF_KEY"), call("unlock", name="SHELF_KEY_2"), tools=[unlock]
    )

    message = (
        "unlock failed: ConfigurationError: the environment variable SHELF_KEY_2 is not set; the"
        " worker needs it"
    )
    assert results == [("open", False), (message, True)]
    assert seen == ["k-123"]


@pytest.mark.slow
@pytest.mark.accepts("T12")
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_heartbeat_of_a_tool_is_seen_while_it_runs(runtime: Runtime, kind: str) -> None:
    """Temporal shows its note on the pending activity, and Perdure's own heartbeats keep it."""
    over = threading.Event()

    @tool(name="sync")
    def work(ctx: ToolContext[None]) -> str:
        ctx.heartbeat("page 3", {"of": 7})
        over.wait(10)
        return "read"

    @tool(name="async")
    async def work_async(ctx: ToolContext[None]) -> str:
        ctx.heartbeat("page 3", {"of": 7})
        await asyncio.to_thread(over.wait, 10)
        return "read"

    agent = Agent(name="reader", model="scripted:x", tools=[work, work_async])

    async with runtime(agent, model=ScriptedModel(calls(call(kind)), says("done"))) as client:
        turn = await client.start(agent, "go")
        try:
            await _until(lambda: _heartbeat(client, turn.id), ["page 3", {"of": 7}])
        finally:
            over.set()
        report = await turn.result()

    assert report.steps[0].results[0].content == "read"


@pytest.mark.slow
@pytest.mark.accepts("T12")
async def test_heartbeat_works_from_a_thread_that_the_tool_made(run: Run) -> None:
    """`ThreadPoolExecutor` and `run_in_executor` do not copy context variables."""
    problems: list[Exception] = []

    @tool
    def read(ctx: ToolContext[None]) -> str:
        def page() -> None:
            try:
                ctx.heartbeat("page 1")
            except Exception as error:  # noqa: BLE001 - the test is about whatever it raises
                problems.append(error)

        thread = threading.Thread(target=page)
        thread.start()
        thread.join()
        return "read"

    await results_of(run, call("read"), tools=[read])

    assert problems == []


async def _heartbeat(client: RecordingClient, turn_id: str) -> list[Any]:
    description = await client.temporal.get_workflow_handle(turn_id).describe()
    details = [
        item.heartbeat_details.payloads for item in description.raw_description.pending_activities
    ]
    return await client.temporal.data_converter.decode(details[0]) if details and details[0] else []


async def _until(
    read: Callable[[], Awaitable[object]], value: object, within_s: float = 10.0
) -> None:
    deadline = time.monotonic() + within_s
    while (seen := await read()) != value:
        assert time.monotonic() < deadline, f"{seen!r} is not {value!r} within {within_s:g} s"
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.accepts("T12")
async def test_heartbeat_that_is_no_json_or_too_long_fails_in_the_tool(run: Run) -> None:
    """The model gets the error; the worker is not considered lost, and the tool runs once."""
    ran: list[str] = []

    @tool(read_only=True)
    def beats(ctx: ToolContext[None], kind: str) -> str:
        ran.append(kind)
        ctx.heartbeat("x" * 5_000 if kind == "long" else object())  # type: ignore[arg-type]
        return "never"

    results = await results_of(
        run, call("beats", kind="long"), call("beats", kind="object"), tools=[beats]
    )

    assert ran == ["long", "object"]
    assert [
        (content.startswith("beats failed: ValueError: "), is_error)
        for content, is_error in results
    ] == [(True, True), (True, True)]
