"""The liveness and readiness probes of a real worker process."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from perdure.worker import health
from perdure.worker.dev.server import DevServer

from ..support.e2e.probing import ALIVE, READY, Probe, probe
from ..support.e2e.stories import Process, Story, Tell, asks, kill_all, says, use

__all__ = ["probe"]

pytestmark = pytest.mark.slow


SLOW_APP = """
import asyncio, contextlib
from perdure import Agent
from perdure.worker import AgentWorker

@contextlib.asynccontextmanager
async def lifespan():
    await asyncio.sleep(2)
    yield None

app = AgentWorker(Agent(name="slow", model="offline:librarian"), lifespan=lifespan)
"""


async def pollers(story: Story) -> list[str]:
    """The pollers of the test's task queue according to Temporal."""
    question = DescribeTaskQueueRequest(
        namespace="default",
        task_queue=TaskQueue(name=story.client.task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    return [
        poller.identity
        for poller in (await story.temporal.workflow_service.describe_task_queue(question)).pollers
    ]


async def test_worker_that_is_ready_polls(tell: Tell, probe: Probe) -> None:
    """Temporal lists it as a poller by then, or a moment later, and it runs a turn."""
    story = await tell(says("done"))
    worker = await story.worker(PERDURE_HEALTH_PORT=str(probe.port))
    await probe.wait("/readyz", READY)
    seen: list[str] = []
    async with asyncio.timeout(60):
        while not seen:
            seen = await pollers(story)
    report = await (await story.start()).result()

    assert [identity.partition("@")[0] for identity in seen] == [str(worker.pid)]
    assert report.output == "done #1"
    assert await probe.get("/healthz") == ALIVE


async def test_worker_that_drains_is_alive_and_not_ready(tell: Tell, probe: Probe) -> None:
    """From SIGTERM to its exit it starts no new work, and is not reported as hanging."""
    story = await tell(asks(use("charge", "one"), delay_s=3), says("done"))
    worker = await story.worker(PERDURE_HEALTH_PORT=str(probe.port), PERDURE_GRACE_S="60")
    await probe.wait("/readyz", READY)
    await story.start()
    await story.asked(1)
    worker.send_signal(signal.SIGTERM)
    await probe.wait("/readyz", (503, "draining"))
    answers = await asyncio.gather(*(probe.get(path) for path in ("/healthz", "/readyz") * 5))
    code = await asyncio.wait_for(worker.wait(), 60)

    assert answers == [ALIVE, (503, "draining")] * 5
    assert code == 0


@pytest.fixture
async def slow_worker(perdure_server: str, probe: Probe, tmp_path: Path) -> AsyncIterator[Process]:
    """A worker whose lifespan takes two seconds to open."""
    (tmp_path / "slow.py").write_text(SLOW_APP, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "perdure",
            "worker",
            "slow:app",
            "--address",
            perdure_server,
            "--health-port",
            str(probe.port),
        ),
        cwd=tmp_path,
        env={**os.environ, "PERDURE_TASK_QUEUE": f"e2e-{secrets.token_hex(6)}"},
        stderr=asyncio.subprocess.PIPE,
    )
    yield process
    await kill_all(process)


@pytest.mark.usefixtures("slow_worker")
async def test_worker_that_opens_its_lifespan_is_alive_and_not_ready(probe: Probe) -> None:
    """A slow database is no reason to kill the process."""
    await probe.wait("/healthz", ALIVE)
    early = await probe.get("/readyz")
    await probe.wait("/readyz", READY)

    assert early == (503, "starting")


async def test_worker_without_a_server_is_alive_and_not_ready(
    tell: Tell, probe: Probe, tmp_path: Path
) -> None:
    """It keeps polling, so a restart would not help; it is reported as not ready within seconds."""
    server = DevServer(folder=tmp_path / "state", port=0, ui=False)
    story = await tell(says("done"), address=(await server.start()).address)
    try:
        await story.worker(PERDURE_HEALTH_PORT=str(probe.port))
        await probe.wait("/readyz", READY)
    finally:
        server.kill()
        await server.stop()

    await probe.wait("/readyz", (503, "Temporal does not answer within 2 s"))
    assert await probe.get("/healthz") == ALIVE


async def test_only_the_two_probes_can_be_asked(tell: Tell, probe: Probe) -> None:
    """Everything else gets the appropriate HTTP status."""
    story = await tell()
    await story.worker(PERDURE_HEALTH_PORT=str(probe.port))
    await probe.wait("/healthz", ALIVE)
    asked = [
        ("/", "GET"),
        ("/healthz/", "GET"),
        ("/healthz?verbose", "GET"),
        ("/healthz", "HEAD"),
        ("/healthz", "POST"),
    ]

    answers = [await probe.get(path, method) for path, method in asked]

    nothing = (404, "there are /healthz and /readyz")
    assert answers == [nothing, nothing, ALIVE, (200, ""), (405, "GET or HEAD")]


async def test_garbage_does_not_hurt(tell: Tell, probe: Probe, tmp_path: Path) -> None:
    """Neither garbage nor large requests nor silence delay the next probe."""
    story = await tell(says("done"))
    worker = await story.worker(PERDURE_HEALTH_PORT=str(probe.port))
    await probe.wait("/healthz", ALIVE)
    garbage = [
        b"",
        b"\x00\xff" * 500 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET /healthz\r\n\r\n",
        b"GET /" + b"a" * 5_000_000,
        b"\r\n\r\n",
    ]
    answers = [(await probe.send(raw))[:12] for raw in garbage]
    silent = [
        await asyncio.open_connection("127.0.0.1", probe.port)
        for _ in range(health.CONNECTIONS // 2)
    ]
    with_silent = await probe.get("/healthz")
    for _, writer in silent:
        writer.close()
    report = await (await story.start()).result()

    assert set(answers) <= {b"", b"HTTP/1.1 400"}
    assert answers[1] == answers[3] == b"HTTP/1.1 400"
    assert (with_silent, await probe.get("/healthz")) == (ALIVE, ALIVE)
    assert report.output == "done #1"
    assert worker.returncode is None
    assert "Traceback" not in (tmp_path / "worker-0.log").read_text()


@pytest.mark.accepts("P13")
@pytest.mark.parametrize("silent", [80, health.PER_ADDRESS + 40])
async def test_silent_connections_keep_no_probe_from_its_answer(
    tell: Tell, probe: Probe, silent: int
) -> None:
    """They are reopened as fast as they are closed, and all thirty probes are answered."""
    story = await tell()
    await story.worker(PERDURE_HEALTH_PORT=str(probe.port))
    await probe.wait("/healthz", ALIVE)
    opened = asyncio.Event()
    attack = asyncio.create_task(keep_silent(probe.port, silent, opened))
    await asyncio.wait_for(opened.wait(), 60)
    answers = [await probe.get("/healthz") for _ in range(30)]
    attack.cancel()
    await asyncio.wait([attack])

    assert answers == [ALIVE] * 30


async def keep_silent(port: int, count: int, opened: asyncio.Event) -> None:
    """Keep this number of connections with half a request open; each is reopened when it is
    closed.
    """
    held = iter(range(count - 1))

    async def hold() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(b"GET /healthz HTTP/1.1")
                    if next(held, None) is None:
                        opened.set()
                    await reader.read()
                finally:
                    writer.close()
                    await writer.wait_closed()

    await asyncio.gather(*(hold() for _ in range(count)))


async def test_silence_is_hung_up_on(tell: Tell, probe: Probe) -> None:
    """A silent connection is closed without an answer."""
    story = await tell()
    await story.worker(PERDURE_HEALTH_PORT=str(probe.port))
    await probe.wait("/healthz", ALIVE)
    silent = [await asyncio.open_connection("127.0.0.1", probe.port) for _ in range(10)]
    async with asyncio.timeout(60):
        said = [await reader.read() for reader, _ in silent]

    assert said == [b""] * 10
    for _, writer in silent:
        writer.close()


async def test_port_that_is_taken_is_said(tell: Tell, probe: Probe, tmp_path: Path) -> None:
    """The worker does not run without its probes."""
    story = await tell()
    with socket.socket() as taken:
        taken.bind(("", probe.port))
        taken.listen()
        worker = await story.worker(PERDURE_HEALTH_PORT=str(probe.port))
        code = await asyncio.wait_for(worker.wait(), 60)

    assert code == 2
    assert (
        f"perdure: the health port {probe.port} is not available"
        in (tmp_path / "worker-0.log").read_text()
    )
