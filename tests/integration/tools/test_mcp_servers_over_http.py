"""MCP servers over HTTP: one written with the package `mcp`, and ports without a server."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, MCPServer, errors
from perdure.activities.provider import ModelRequest
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.answers import ModelAnswer

from ...conftest import Run, Runtime
from ...support.mcp.processes import accepts
from ...support.ports import free_port

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

SERVER = str(Path(__file__).parents[2] / "support/mcp/server.py")
KEY = "planted-secret-0123456789"


class Served:
    """The server as a process that can be killed and restarted."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        command = (sys.executable, SERVER, "http", str(self.port))
        self._process = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.DEVNULL
        )
        await accepts(self.port)

    async def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Served]:
    """One server for all tests that leave it alone."""
    async with serving() as found:
        yield found


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    """The server while the block runs."""
    served = Served()
    try:
        await served.start()
        yield served
    finally:
        await served.kill()


class Between(ScriptedModel):
    """A scripted model with actions before some of its answers."""

    def __init__(self, *said: Any, before: Mapping[int, Callable[[], Awaitable[None]]]) -> None:
        super().__init__(*said)
        self._before = before

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The next answer, after the action before it."""
        if len(self.requests) in self._before:
            await self._before[len(self.requests)]()
        return await super().complete(request)


def stock(served: Served, **options: Any) -> MCPServer:
    """The toolbox."""
    return MCPServer.http("stock", f"http://127.0.0.1:{served.port}/mcp", **options)


@pytest.mark.accepts("T15")
@pytest.mark.parametrize("way", ["http", "stdio"])
@pytest.mark.slow
async def test_tools_of_a_server_are_called(run: Run, served: Served, way: str) -> None:
    """Texts, values and errors come back as text, over both transports."""
    stdio = MCPServer.stdio("stock", [sys.executable, SERVER, "stdio"])
    model = ScriptedModel(
        calls(
            call("stock__count", item="apples"),
            call("stock__prices"),
            call("stock__refuse"),
            call("stock__count"),
        ),
        says("done"),
    )
    report = await run(model, toolboxes=[stock(served) if way == "http" else stdio])

    count, prices, refused, unfit = report.steps[0].results
    assert (count.content, count.is_error) == ("3", False)
    assert prices.content.replace(" ", "").replace("\n", "") == '{"apples":0.5}'
    assert refused.is_error
    assert unfit.is_error
    assert "item" in unfit.content


@pytest.mark.slow
async def test_key_of_the_environment_reaches_the_server_and_is_nowhere_else(
    runtime: Runtime, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value without a space becomes a bearer token. A tool returns its key, and the result has
    the variable's name instead; so has history.
    """
    monkeypatch.setenv("STOCK_KEY", KEY)
    server = stock(served, headers_env={"authorization": "STOCK_KEY"}, allowed=["key"])
    agent = Agent(name="clerk", model="scripted:x", toolboxes=[server])
    model = ScriptedModel(calls(call("stock__key")), says("done"))
    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        report = await turn.result()
        history = (await client.history(turn)).to_json()

    assert report.steps[0].results[0].content == "Bearer [STOCK_KEY]"
    assert ("stock__key" in history, KEY in history) == (True, False)


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_server_that_is_gone_is_an_error_result_and_one_that_is_back_is_used(
    run: Run,
) -> None:
    """Between the steps of one turn."""
    ask = calls(call("stock__count", item="apples"))
    async with serving() as served:
        model = Between(ask, ask, ask, says("done"), before={1: served.kill, 2: served.start})
        report = await run(model, toolboxes=[stock(served)], on_loop="ignore")

    there, gone, back = (step.results[0] for step in report.steps[:3])
    assert (there.content, back.content) == ("3", "3")
    assert gone.is_error
    assert gone.content.startswith("stock__count failed: the MCP server 'stock': ")


@pytest.mark.accepts("T15")
@pytest.mark.slow
async def test_call_over_http_is_stopped_at_its_timeout_and_a_long_answer_at_its_limit(
    run: Run, served: Served
) -> None:
    """Each is an error result, and the connection is still used."""
    asked = (
        call("stock__take_stock", seconds=60),
        call("stock__large"),
        call("stock__count", item="apples"),
    )
    report = await run(
        ScriptedModel(calls(*asked), says("done")),
        toolboxes=[stock(served, timeout=timedelta(seconds=2))],
    )

    late, large, count = report.steps[0].results
    assert late.content.startswith("stock__take_stock: stopped because it took longer than 2 s")
    assert large.is_error
    assert count.content == "3"


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_port_that_says_nothing_fails_the_turn_in_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts connections and never answers."""
    monkeypatch.setenv("STOCK_KEY", KEY)
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    server = MCPServer.http(
        "stock",
        f"http://127.0.0.1:{port}/mcp",
        headers_env={"authorization": "STOCK_KEY"},
        start_timeout=timedelta(seconds=1),
    )
    with (
        silent,
        pytest.raises(
            errors.ConfigurationError, match="the MCP server 'stock': it did not start within 1 s"
        ),
    ):
        await run(ScriptedModel(), toolboxes=[server])


@pytest.mark.slow
async def test_progress_of_a_server_is_a_heartbeat(runtime: Runtime) -> None:
    """The pending activity shows the progress."""
    async with serving() as served:
        agent = Agent(name="clerk", model="scripted:x", toolboxes=[stock(served)])
        async with runtime(
            agent, model=ScriptedModel(calls(call("stock__take_stock", seconds=6)), says("done"))
        ) as client:
            turn = await client.start(agent, "go")
            handle = client.temporal.get_workflow_handle(turn.id)
            notes = ""
            while "counting" not in notes:
                pending = (await handle.describe()).raw_description.pending_activities
                notes = "".join(
                    str(payload.data)
                    for item in pending
                    for payload in item.heartbeat_details.payloads
                )
                await asyncio.sleep(0.1)
            report = await turn.result()

    assert report.steps[0].results[0].content == "counted"
