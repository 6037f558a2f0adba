"""Programs with a client or a worker end with their own exit code, and not with a signal."""

from __future__ import annotations

import asyncio
import sys
import textwrap

import pytest

BEFORE = """
import asyncio, atexit, gc, os, signal, sys
from pathlib import Path

def said():
    print("threads at the end:", len(list(Path("/proc/self/task").iterdir())))

atexit.register(said)
address = sys.argv[1]

from temporalio.client import Client
from perdure import Agent
from perdure.clients import AgentClient
from perdure.worker import AgentWorker
"""
"""The hook is registered first, so that it runs last."""

AWAITED = """
async def main():
    global client
    client = await AgentClient.connect(address)
    await asyncio.gather(*(client.temporal.count_workflows("") for _ in range(5)))

asyncio.run(main())
"""
BLOCK = """
async def main():
    async with AgentClient.connect(address) as client:
        [_ async for _ in client.turns(limit=2)]

asyncio.run(main())
"""
TEMPORALS = """
async def main():
    global client
    client = AgentClient.from_temporal(await Client.connect(address))
    [_ async for _ in client.turns(limit=2)]

asyncio.run(main())
"""
FROZEN = f"""{AWAITED}
gc.freeze()
"""
FAILS = f"""{AWAITED}
sys.exit(3)
"""
UNREACHABLE = """
try:
    asyncio.run(AgentClient.connect("127.0.0.1:1"))
except Exception as error:
    print(type(error).__name__)
"""
WORKER = """
def stop():
    os.kill(os.getpid(), signal.SIGTERM)

worker = AgentWorker(Agent(name="a", model="openai:gpt-5-mini"), task_queue=f"q{os.getpid()}")
asyncio.run(worker.run(address, on_start=stop))
"""
LOCAL = """
from perdure.testing import ScriptedModel, local_runtime

async def main():
    agent = Agent(name="a", model="openai:gpt-5-mini")
    async with local_runtime(agent, model=ScriptedModel("Hello.")) as client:
        report = await client.run("a", "Hello?")
    print(report.output)

asyncio.run(main())
"""
"""A server of its own and a worker in the process of the client."""

END = "threads at the end: 1\n"


async def run(program: str, address: str) -> tuple[int | None, str]:
    """Run a program; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BEFORE + textwrap.dedent(program), address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


@pytest.mark.accepts("Y80")
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
async def test_temporals_threads_end_before_the_interpreter_does(perdure_server: str) -> None:
    """One that calls into Python while the interpreter shuts down would abort the process."""
    end = await run(AWAITED, perdure_server)

    assert end == (0, END)


@pytest.mark.slow
@pytest.mark.accepts("Y80")
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
async def test_threads_end_wherever_the_program_keeps_its_client(perdure_server: str) -> None:
    """In a block, with a client of Temporal's own, frozen objects, an exit code, a worker, no
    server, and all of them in one process.
    """
    programs = (BLOCK, TEMPORALS, FROZEN, FAILS, WORKER, UNREACHABLE, LOCAL)

    ends = [await run(program, perdure_server) for program in programs]

    refused, answered = f"ServerUnreachableError\n{END}", f"Hello.\n{END}"
    assert ends[:3] == [(0, END)] * 3
    assert ends[3:] == [(3, END), (0, END), (0, refused), (0, answered)]


@pytest.mark.slow
@pytest.mark.accepts("Y80")
async def test_fifty_short_programs_end_without_a_signal(perdure_server: str) -> None:
    """Eight at once, as the threads are late then: before, five of a hundred were aborted."""
    places = asyncio.Semaphore(8)

    async def one() -> int | None:
        async with places:
            code, _ = await run(AWAITED, perdure_server)
            return code

    codes = await asyncio.gather(*(one() for _ in range(50)))

    assert codes == [0] * 50


CONNECTIONS = """
def connections():
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return len({line[9] for line in lines if line[3] == "01"} & inodes())

def inodes():
    links = [os.readlink(f"/proc/self/fd/{file}") for file in os.listdir("/proc/self/fd")
             if os.path.exists(f"/proc/self/fd/{file}")]
    return {link[8:-1] for link in links if link.startswith("socket:")}

async def main():
    async with AgentClient.connect(address) as client:
        [_ async for _ in client.turns(limit=2)]
        print("in the block:", connections())
    for _ in range(500):
        if not connections():
            break
        await asyncio.sleep(0.01)
    print("after it:", connections())
    [_ async for _ in client.turns(limit=2)]
    print("used again:", connections())

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.accepts("Y81")
@pytest.mark.skipif(sys.platform != "linux", reason="connections are counted in /proc")
async def test_connection_is_closed_at_the_end_of_its_block(perdure_server: str) -> None:
    """A client that is used afterwards connects again."""
    code, said = await run(CONNECTIONS, perdure_server)

    assert (code, said) == (0, f"in the block: 1\nafter it: 0\nused again: 1\n{END}")
