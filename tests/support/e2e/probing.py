"""Probes of the health port of a worker process."""

import asyncio
import http.client
import time

import pytest

from perdure.worker import health

from ..ports import free_port

Answer = tuple[int, str]
READY: Answer = (200, "ready")
ALIVE: Answer = (200, "alive")


class Probe:
    """Probes a worker as kubelet does: a new connection each time, with a short timeout."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def get(self, path: str, method: str = "GET") -> Answer:
        """Status and text of the answer."""
        return await asyncio.to_thread(self._get, path, method)

    def _get(self, path: str, method: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode().strip()
        finally:
            connection.close()

    async def send(self, raw: bytes) -> bytes:
        """The response to these bytes, until the worker closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(raw)
            writer.write_eof()
            return await asyncio.wait_for(reader.read(), health.HEAD_S + health.ANSWER_S + 5)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def wait(self, path: str, expected: Answer, *, within_s: float = 60.0) -> None:
        """Probe until this is the response."""
        deadline = time.monotonic() + within_s
        last: object = None
        while last != expected:
            assert time.monotonic() < deadline, (
                f"{path}: {last}, not {expected} within {within_s:g} s"
            )
            await asyncio.sleep(0.05)
            try:
                last = await self.get(path)
            except OSError as error:
                last = error


@pytest.fixture
def probe() -> Probe:
    """A probe of a free port."""
    return Probe(free_port())
