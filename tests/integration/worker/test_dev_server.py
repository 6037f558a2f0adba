"""The development server as a real process: start, ports, kill and restart."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from perdure import errors
from perdure.worker.dev.server import DevServer, ServerAddress, running
from perdure.worker.dev.server_folder import StateFolder

pytestmark = pytest.mark.slow

PARENT = """
import asyncio, pathlib, sys
from perdure.worker.dev.server import DevServer

async def main():
    address = await DevServer(folder=pathlib.Path(sys.argv[1]), port=0, ui=False).start()
    print(address.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return True


async def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not become true within 10 seconds")


async def status(address: ServerAddress, workflow_id: str) -> WorkflowExecutionStatus | None:
    client = await Client.connect(address.address)
    return (await client.get_workflow_handle(workflow_id).describe()).status


async def start_workflow(address: ServerAddress, workflow_id: str) -> None:
    client = await Client.connect(address.address)
    await client.start_workflow("X", id=workflow_id, task_queue="nobody")


def get(url: str) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as response:
        code: int = response.status
        return code


def port_of(address: ServerAddress) -> int:
    return int(address.address.rpartition(":")[2])


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        yield somebody.getsockname()[1]


async def test_started_server_is_noted_with_everything_a_client_needs(tmp_path: Path) -> None:
    """The state file has the address, another process finds the server by it, and a workflow can be
    started there.
    """
    async with DevServer(folder=tmp_path / "state", port=0) as server:
        found = await running(tmp_path / "state")
        note = json.loads((tmp_path / "state" / "server.json").read_text())
        await start_workflow(server.address, "noted")

        assert found == server.address
        assert note == {
            "address": server.address.address,
            "ui": server.address.ui,
            "pid": server.address.pid,
            "namespace": "default",
            "binary": server.address.binary,
        }
        assert await status(server.address, "noted") == WorkflowExecutionStatus.RUNNING


async def test_web_ui_is_served() -> None:
    """At the printed address."""
    async with DevServer(folder=None, port=0) as server:
        assert server.address.ui is not None

        assert await asyncio.to_thread(get, server.address.ui) == 200


async def test_taken_port_moves_to_the_next_free_one_and_says_so(taken_port: int) -> None:
    """A server whose port is taken uses one of the next ports and names the one that was
    requested.
    """
    async with DevServer(folder=None, port=taken_port, ui=False) as server:
        assert server.address.moved_from == taken_port
        assert taken_port < port_of(server.address) <= taken_port + 50


async def test_taken_ui_port_moves_to_the_next_free_one(taken_port: int) -> None:
    """Like the port of the server."""
    async with DevServer(folder=None, port=0, ui_port=taken_port) as server:
        assert server.address.ui is not None
        assert taken_port < int(server.address.ui.rpartition(":")[2]) <= taken_port + 50


async def test_two_servers_that_want_one_port_at_the_same_moment_both_come_up(
    taken_port: int,
) -> None:
    """The one that loses the race for the port tries another one, and does not mistake the winner's
    answer for its own.
    """
    one, other = (DevServer(folder=None, port=taken_port, ui=False) for _ in range(2))
    try:
        here, there = await asyncio.gather(one.start(), other.start())
        await start_workflow(here, "only-here")

        assert port_of(here) != port_of(there)
        assert await status(here, "only-here") == WorkflowExecutionStatus.RUNNING
    finally:
        await asyncio.gather(one.stop(), other.stop())


async def test_stopped_server_leaves_no_process_and_no_note(tmp_path: Path) -> None:
    """After `stop` the process is gone and no server is found."""
    server = DevServer(folder=tmp_path, port=0, ui=False)
    address = await server.start()

    await server.stop()

    assert not alive(address.pid)
    assert not (tmp_path / "server.json").exists()
    assert await running(tmp_path) is None


async def test_stop_does_nothing_to_a_server_that_never_started(tmp_path: Path) -> None:
    """`stop` may be called at any time."""
    await DevServer(folder=tmp_path / "never").stop()

    assert not (tmp_path / "never").exists()


async def test_workflow_survives_a_killed_server_on_the_same_database_and_port(
    tmp_path: Path,
) -> None:
    """SIGKILL, then a new server on the same file and port: the workflow is still there."""
    first = DevServer(folder=tmp_path, port=0, ui=False)
    address = await first.start()
    await start_workflow(address, "survivor")

    first.kill()
    async with DevServer(folder=tmp_path, port=port_of(address), ui=False) as second:
        assert second.address.pid != address.pid
        assert (second.address.address, second.address.moved_from) == (address.address, None)
        assert await status(second.address, "survivor") == WorkflowExecutionStatus.RUNNING
    await first.stop()


async def test_killed_server_starts_again_as_the_same_object() -> None:
    """`start` after `kill` waits for the old process, so that its port is free again."""
    server = DevServer(folder=None, port=0, ui=False)
    before = await server.start()

    server.kill()
    after = await server.start()
    await server.stop()

    assert not alive(before.pid)
    assert after.pid != before.pid


async def test_search_attributes_are_registered_and_may_be_added_to_a_database(
    tmp_path: Path,
) -> None:
    """A database without an attribute gets it at the next start."""
    async with DevServer(folder=tmp_path, port=0, ui=False, search_attributes={"Agent": "Keyword"}):
        pass
    async with DevServer(
        folder=tmp_path, port=0, ui=False, search_attributes={"Agent": "Keyword", "Cost": "Double"}
    ) as server:
        client = await Client.connect(server.address.address)
        count = await client.count_workflows("Agent = 'writer' AND Cost > 1.5")

        assert count.count == 0


async def test_unknown_type_of_a_search_attribute_is_refused_and_leaves_no_server(
    tmp_path: Path,
) -> None:
    """The error of a typo lists the types."""
    with pytest.raises(errors.ConfigurationError, match="KeywordList"):
        await DevServer(
            folder=tmp_path, port=0, ui=False, search_attributes={"Agent": "Keywrod"}
        ).start()

    assert StateFolder(tmp_path).abandoned()


async def test_stale_note_is_removed(tmp_path: Path) -> None:
    """The state file of a server that has ended is ignored, even if another program uses its
    process id and port.
    """
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        stale = {
            "address": f"127.0.0.1:{somebody.getsockname()[1]}",
            "ui": None,
            "pid": os.getpid(),
            "namespace": "default",
        }
        (tmp_path / "server.json").write_text(json.dumps(stale))
        found = await running(tmp_path)

    assert found is None
    assert not (tmp_path / "server.json").exists()


async def test_nothing_runs_on_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    """The check does not create the folder."""
    found = await running(tmp_path / "nowhere")

    assert found is None
    assert not (tmp_path / "nowhere").exists()


async def test_second_server_on_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    """The error has the address of the server that uses the database, which keeps running."""
    async with DevServer(folder=tmp_path, port=0, ui=False) as server:
        with pytest.raises(errors.ConfigurationError, match=server.address.address):
            await DevServer(folder=tmp_path, port=0, ui=False).start()

        assert await running(tmp_path) == server.address


async def test_started_server_does_not_start_twice() -> None:
    """A second `start` is refused instead of losing the first process."""
    async with DevServer(folder=None, port=0, ui=False) as server:
        with pytest.raises(errors.ConfigurationError, match=server.address.address):
            await server.start()


async def test_server_that_gives_up_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    """The reason is quoted from the server's log."""
    binary = script(tmp_path / "temporal", "echo database is malformed; exit 1")

    with pytest.raises(errors.ConfigurationError, match="database is malformed"):
        await DevServer(folder=tmp_path / "state", port=0, binary=binary).start()


async def test_server_that_stays_silent_is_ended_and_an_error(tmp_path: Path) -> None:
    """The wait is bounded, and the started process is ended."""
    binary = script(
        tmp_path / "temporal", f"echo $$ > {tmp_path}/pid; echo thinking; exec sleep 60"
    )
    server = DevServer(
        folder=tmp_path / "state", port=0, binary=binary, start_timeout=timedelta(seconds=1)
    )

    with pytest.raises(errors.ServerUnreachableError, match="thinking"):
        await server.start()

    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process that its parent died"
)
async def test_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """SIGKILL of the process that started the server ends the server too, and frees the folder."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    server_pid = int(await parent.stdout.readline())
    assert alive(server_pid)

    parent.send_signal(signal.SIGKILL)
    await parent.communicate()
    await until(lambda: not alive(server_pid))

    assert await running(tmp_path) is None
