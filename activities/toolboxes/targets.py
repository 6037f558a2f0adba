"""Decides which URLs may be read, and which addresses they may lead to.

A name is resolved here, once for each request, and the connection goes to the address that was
checked. A name that resolves differently between the check and the connection has no effect.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from perdure.activities.toolboxes.addresses import Network, may_connect
from perdure.text import one_line

if TYPE_CHECKING:
    import httpx

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host, for a port. It may raise OSError."""

_URL_CHARACTERS, _HOST_CHARACTERS = 2_000, 253
_ADDRESSES = 4
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """A checked URL.

    `host` is a name or an IP address; `addresses` are the allowed addresses, in order.
    """

    url: httpx.URL
    host: str
    addresses: Sequence[str]


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What may be reached.

    If `hosts` is None, all hosts are allowed; a name that begins with `*.` allows all subdomains.
    """

    hosts: frozenset[str] | None
    ports: frozenset[int]
    networks: Sequence[Network]
    resolve: Resolver

    async def target(self, url: str) -> FetchTarget:
        """Check and resolve a URL.

        Raises:
            ValueError: It may not be read; the message is written for the model, and names no
                address that the URL does not.
        """
        parsed = parse(url)
        host = parsed.raw_host.decode("ascii").lower().rstrip(".")
        port = parsed.port or _PORTS[parsed.scheme]
        self._check_host(host)
        if port not in self.ports:
            raise ValueError(
                f"port {port} is not allowed; allowed: {', '.join(map(str, sorted(self.ports)))}"
            )
        addresses = [host] if is_address(host) else await self._resolved(host, port)
        if not addresses or not all(may_connect(address, self.networks) for address in addresses):
            raise ValueError(
                f"{_shown(host)} is not on the public internet, or not only there; it is not read"
            )
        return FetchTarget(parsed, host, addresses[:_ADDRESSES])

    def _check_host(self, host: str) -> None:
        if not is_address(host):
            _check_name(host)
        if self.hosts is not None and not any(
            host == name or (name[:2] == "*." and host.endswith(name[1:])) for name in self.hosts
        ):
            raise ValueError(
                f"the host {_shown(host)} is not allowed; allowed:"
                f" {one_line(', '.join(sorted(self.hosts)), 300)}"
            )

    async def _resolved(self, host: str, port: int) -> Sequence[str]:
        try:
            return list(dict.fromkeys(await self.resolve(host, port)))
        except (OSError, UnicodeError):
            raise ValueError(f"the host {_shown(host)} is not known") from None


def parse(url: str, base: httpx.URL | None = None) -> httpx.URL:
    """Parse an http or https URL without user and password, relative to `base` if given.

    Raises:
        ValueError: It is not such a URL.
    """
    import httpx

    if len(url) > _URL_CHARACTERS:
        raise ValueError(f"the URL has {len(url)} characters, and the limit is {_URL_CHARACTERS}")
    try:
        parsed = base.join(url) if base else httpx.URL(url.strip())
        host = parsed.raw_host.decode("ascii")
    except (httpx.InvalidURL, ValueError, TypeError):
        raise ValueError(f"{_shown(url)} is no URL") from None
    if parsed.scheme not in _PORTS or not host:
        raise ValueError(f"{_shown(url)} is no http or https URL with a host")
    if parsed.userinfo:
        raise ValueError("a URL with a user or a password is not read")
    return parsed


def _check_name(host: str) -> None:
    """Refuse a string that is not a host name.

    Raises:
        ValueError: It is not.
    """
    if len(host) > _HOST_CHARACTERS or not _HOST.fullmatch(host):
        raise ValueError(f"{_shown(host)} is no name of a host")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        raise ValueError(
            f"{_shown(host)} is an IP address in an unusual form; write four decimal numbers"
        )


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, by the machine's own resolver."""
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in addresses]


def is_address(host: str) -> bool:
    """Whether a host is an IP address, and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(one_line(text, 200))
