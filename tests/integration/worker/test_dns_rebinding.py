"""DNS rebinding: a web page whose name now resolves to this machine sends requests to the embedded
server.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from perdure import Agent, tool
from perdure.clients import Turn
from perdure.testing import ScriptedModel, call, calls, local_runtime, says
from perdure.turn.facts import WaitBegan
from perdure.worker.dev.server import DevServer

from ...support.ports import free_port

RAN: list[int] = []
EVIL = "evil.example"


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Refund."""
    RAN.append(euros)
    return "refunded"


@pytest.fixture(scope="module")
def api_port() -> int:
    """A free port for the HTTP API."""
    return free_port()


@pytest.fixture(scope="module")
async def server(api_port: int) -> AsyncIterator[DevServer]:
    async with DevServer(folder=None, port=0, extra_args=[f"--http-port={api_port}"]) as started:
        yield started


@pytest.fixture
async def waiting(server: DevServer) -> AsyncIterator[Turn]:
    """A turn whose refund waits for a person."""
    RAN.clear()
    agent = Agent(name="clerk", model="any:model", tools=[refund])
    model = ScriptedModel(calls(call("refund", euros=3000)), says("done"))
    async with local_runtime(agent, model=model, address=server.address.address) as client:
        turn = await client.start("clerk", "refund", id=f"refund-{secrets.token_hex(4)}")
        async for event in turn.events():
            if isinstance(event.fact, WaitBegan):
                break
        yield turn
        await turn.cancel("the test is over")


async def approve(base: str, host: str, turn: Turn) -> int:
    """The requests of a page: fetch a token, then approve the waiting call with Temporal's own API.

    Returns the status.

    A busy server answers 503. The same update may be sent again.
    """
    (pending,) = await turn.pending_approvals()
    decision = {"call_id": pending.call_id, "digest": pending.digest, "approve": True}
    payload = {
        "metadata": {"encoding": encoded("json/plain")},
        "data": encoded(json.dumps(decision)),
    }
    async with httpx.AsyncClient(base_url=base, trust_env=False, headers={"Host": host}) as page:
        token = (await page.get("/api/v1/namespaces")).cookies.get("_csrf") or ""
        update = {
            "request": {
                "meta": {"update_id": secrets.token_hex(8)},
                "input": {"args": {"payloads": [payload]}},
            }
        }
        headers = {"X-CSRF-TOKEN": token, "Cookie": f"_csrf={token}"}
        status = 503
        while status == 503:
            status = (
                await page.post(
                    f"/api/v1/namespaces/default/workflows/{turn.id}/update/decide",
                    headers=headers,
                    json=update,
                )
            ).status_code
    return status


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.slow
@pytest.mark.accepts("P12")
async def test_rebound_page_cannot_approve_by_the_web_ui(server: DevServer, waiting: Turn) -> None:
    """The same request to `localhost` does approve, so the host name is the reason of the
    refusal.
    """
    assert server.address.ui is not None
    refused = await approve(server.address.ui, f"{EVIL}:{port_of(server.address.ui)}", waiting)
    still = (await waiting.pending_approvals(), list(RAN))
    approved = await approve(server.address.ui, f"localhost:{port_of(server.address.ui)}", waiting)

    assert (refused, len(still[0]), still[1], approved) == (421, 1, [], 200)
    assert ((await waiting.result()).output, RAN) == ("done", [3000])


@pytest.mark.slow
@pytest.mark.accepts("P12")
async def test_rebound_page_cannot_approve_by_the_http_api(api_port: int, waiting: Turn) -> None:
    """The server's own API has a port, too."""
    refused = await approve(f"http://127.0.0.1:{api_port}", f"{EVIL}:{api_port}", waiting)

    assert (refused, len(await waiting.pending_approvals()), RAN) == (403, 1, [])
    assert await approve(f"http://127.0.0.1:{api_port}", f"localhost:{api_port}", waiting) == 200
    assert (await waiting.result()).output == "done"


@pytest.mark.accepts("P12")
async def test_port_of_grpc_answers_no_request_of_a_browser(server: DevServer) -> None:
    """Without TLS, browsers speak HTTP/1.1, which this port does not serve."""
    async with httpx.AsyncClient(trust_env=False, headers={"Host": EVIL}) as page:
        with pytest.raises(httpx.HTTPError):
            await page.get(f"http://{server.address.address}/api/v1/namespaces")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux answers to all of 127.0.0.0/8")
@pytest.mark.accepts("P12")
async def test_web_ui_behind_the_door_is_where_no_page_can_guess(server: DevServer) -> None:
    """None of the server's ports on 127.0.0.1 serves the web UI."""
    ports = listening(server.address.pid)
    found = [port for ip, port in ports if ip == "127.0.0.1" and await serves_pages(port)]

    assert len([ip for ip, _ in ports if ip != "127.0.0.1"]) == 1
    assert found == []


async def serves_pages(port: int) -> bool:
    async with httpx.AsyncClient(
        trust_env=False, headers={"Host": f"{EVIL}:{port}"}, timeout=5
    ) as page:
        try:
            answer = await page.get(f"http://127.0.0.1:{port}/api/v1/namespaces")
        except httpx.HTTPError:
            return False
        return answer.status_code == 200


def listening(pid: int) -> list[tuple[str, int]]:
    """Address and port of each listening socket of a process."""
    sockets = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    listed = [
        row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets
    ]
    return [(socket.inet_ntoa(bytes.fromhex(ip)[::-1]), int(port, 16)) for ip, port in listed]


def port_of(url: str) -> str:
    return url.rpartition(":")[2]
