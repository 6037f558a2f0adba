"""Which connections to the health port are closed to make room for others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from perdure.worker.health import CONNECTIONS, PER_ADDRESS, Readiness, _Responder


class Silent:
    """An asyncio connection that has sent nothing yet."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_aborted = False
        self.written = b""
        self.transport = self

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self.address, 1

    def abort(self) -> None:
        self.is_aborted = True

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


def opened(responder: _Responder, address: str, count: int) -> list[Silent]:
    """This number of connections from an address, in order."""
    made = [Silent(address) for _ in range(count)]
    for one in made:
        responder._make_room(cast("Any", one))
    return made


@pytest.mark.accepts("P13")
def test_connection_that_was_silent_for_longest_makes_room_for_a_new_one() -> None:
    """The oldest one of the same address if that has its share, otherwise the oldest of all."""
    responder = _Responder(cast("Readiness", None))
    first = opened(responder, "a", PER_ADDRESS)
    others = opened(responder, "b", CONNECTIONS - PER_ADDRESS)
    assert not any(one.is_aborted for one in (*first, *others))

    [of_b] = opened(responder, "b", 1)
    assert [one for one in (*first, *others) if one.is_aborted] == others[:1]
    [of_c] = opened(responder, "c", 1)

    assert [one for one in (*first, *others) if one.is_aborted] == [first[0], others[0]]
    assert not of_b.is_aborted
    assert not of_c.is_aborted


@pytest.mark.accepts("P13")
async def test_probe_takes_the_place_of_a_silent_connection_and_is_answered() -> None:
    """Its request arrives at once."""
    responder = _Responder(cast("Readiness", None))
    silent = opened(responder, "a", PER_ADDRESS)
    probe, request = Silent("a"), asyncio.StreamReader()
    request.feed_data(b"GET /healthz HTTP/1.1\r\n\r\n")

    await responder.answer(request, cast("Any", probe))

    assert [one for one in silent if one.is_aborted] == silent[:1]
    assert probe.written.endswith(b"alive\n")
