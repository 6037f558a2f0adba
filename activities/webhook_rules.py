"""Which webhooks a worker sends: the hosts that it allows, and the secrets that it signs with.

Both are settings of the worker, so that neither a caller nor a model chooses where it connects to.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perdure import errors
from perdure.activities.toolboxes.addresses import may_connect
from perdure.activities.toolboxes.targets import Resolver, is_address, resolve
from perdure.delivery.signatures import digest, key_of, signed_before_body
from perdure.text import is_loopback, one_line

if TYPE_CHECKING:
    import httpx

HOSTS, SECRETS = "PERDURE_WEBHOOK_HOSTS", "PERDURE_WEBHOOK_SECRETS"
_PRIVATE = "private:"
_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_PORTS = {"http": 80, "https": 443}
_ADDRESSES = 4


@dataclass(frozen=True, slots=True)
class Host:
    """An allowed host.

    Attributes:
        name: A name, an IP address, or `*.` and the end of names.
        port: The port; None for the port of the scheme.
        is_private: Whether it may have addresses that are not public.
    """

    name: str
    port: int | None
    is_private: bool

    def fits(self, host: str, port: int | None) -> bool:
        """Return whether it is this host and port."""
        is_named = host.endswith(self.name[1:]) if self.name[:2] == "*." else host == self.name
        return is_named and port == self.port


@dataclass(frozen=True, slots=True)
class Receiver:
    """The receiver of a webhook.

    Attributes:
        url: The URL.
        host: The name of the host.
        is_private: Whether it may have addresses that are not public.
    """

    url: httpx.URL
    host: str
    is_private: bool


@dataclass(frozen=True, slots=True)
class WebhookRules:
    """The allowed hosts, and the secrets; without both, no webhooks are sent."""

    hosts: tuple[Host, ...] = ()
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    resolver: Resolver = resolve

    @classmethod
    def of(cls, hosts: Sequence[str], secrets: Sequence[str]) -> WebhookRules:
        """Return the rules of the settings of a worker.

        Raises:
            ConfigurationError: A host or a secret is not valid, or only one of the two is set.
        """
        if bool(hosts) != bool(secrets):
            raise errors.ConfigurationError(
                f"webhooks need {HOSTS} and {SECRETS}, and only one of them is set"
            )
        return cls(tuple(map(_host, hosts)), tuple(map(_key, secrets)))

    def receiver(self, url: str) -> Receiver:
        """Return the receiver at a URL.

        Raises:
            WebhookRefusedError: Its host or its port is not allowed.
        """
        parsed, host = _parsed(url)
        port = None if parsed.port in (None, _PORTS.get(parsed.scheme)) else parsed.port
        allowed = next((candidate for candidate in self.hosts if candidate.fits(host, port)), None)
        if allowed is None or parsed.userinfo or not _is_safe(parsed, host):
            where = host if port is None else f"{host}:{port}"
            raise errors.WebhookRefusedError(
                f"this worker sends no webhooks to {one_line(where, 200)!r}; give another URL, or"
                f" allow the host in {HOSTS} of all workers",
                context={"host": one_line(where, 200)},
            )
        return Receiver(parsed, host, allowed.is_private)

    async def addresses(self, receiver: Receiver) -> Sequence[str]:
        """Return the IP addresses of a receiver, all of which may be connected to.

        Raises:
            WebhookRefusedError: One of them is not public, and the host is not allowed as private.
            OSError: The host is not known; or a UnicodeError.
        """
        host, url = receiver.host, receiver.url
        if is_address(host):
            addresses: Sequence[str] = [host]
        else:
            addresses = await self.resolver(host, url.port or _PORTS[url.scheme])
        if url.scheme == "http":
            may = all(ip_address(address).is_loopback for address in addresses)
        else:
            may = receiver.is_private or all(map(may_connect, addresses))
        if not may:
            raise errors.WebhookRefusedError(
                f"the host {host!r} has an address that is not public; if that is intended, allow"
                f" {_PRIVATE}{host} in {HOSTS} of all workers",
                context={"host": host},
            )
        return list(addresses[:_ADDRESSES])

    def signatures(self, message_id: str, timestamp: int, body: bytes) -> str:
        """Return the signatures of an attempt with all secrets, for `webhook-signature`."""
        before = signed_before_body(message_id, timestamp)
        digests = (digest(secret, before, body) for secret in self.secrets)
        return " ".join(f"v1,{base64.b64encode(made).decode()}" for made in digests)


def _parsed(url: str) -> tuple[httpx.URL, str]:
    """Return a URL and the name of its host.

    Raises:
        WebhookRefusedError: It is not valid.
    """
    import httpx

    try:
        parsed = httpx.URL(url)
        return parsed, parsed.raw_host.decode("ascii").lower().rstrip(".")
    except (httpx.InvalidURL, ValueError, TypeError):
        raise errors.WebhookRefusedError("the URL of the webhook is not valid") from None


def _is_safe(url: httpx.URL, host: str) -> bool:
    return url.scheme == "https" or (url.scheme == "http" and is_loopback(host))


def _name_and_port(host: str) -> tuple[str, int | None]:
    """Return the name and the port in `name:port`; an empty name if it cannot be parsed."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname or "", parts.port
    except ValueError:
        return "", None


def _host(text: str) -> Host:
    host = text.removeprefix(_PRIVATE).lower()
    name, port = _name_and_port(host)
    is_host = is_address(name) or (_NAME.fullmatch(name) and not name.endswith(".."))
    spelled = f"[{name}]" if ":" in name else name
    is_whole = host == (spelled if port is None else f"{spelled}:{port}")
    if not is_host or not is_whole:
        raise errors.ConfigurationError(
            f"{HOSTS} takes hosts such as hooks.example.com, *.example.com,"
            f" hooks.example.com:8443 or {_PRIVATE}10.2.0.7, not {one_line(text, 200)!r}"
        )
    return Host(name, None if port == _PORTS["https"] else port, text.startswith(_PRIVATE))


def _key(secret: str) -> bytes:
    try:
        return key_of(secret)
    except ValueError as error:
        raise errors.ConfigurationError(
            f"{SECRETS} takes secrets that are {error}, separated by commas"
        ) from None
