"""Requests to authorization servers. What they answer is limited in size and time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic_core import from_json

from perdure import errors, limits
from perdure.oauth.certificates import certificates
from perdure.oauth.failures import OAuthError
from perdure.text import is_loopback, one_line

OK = 200
ANSWER_BYTES = 128 * 1024
"""The size of what an authorization server answers to a registration, or with tokens."""
URL_CHARACTERS = 2_000
"""The length of an address that a server names."""
_PLAIN = re.compile(r"[!-[\]-~]+")
"""Visible ASCII without `\\`, so that every program reads the same host in an address."""
_SHOWN = 300
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
"""Without compression, so that the size of an answer is the size that is read."""


@dataclass(frozen=True)
class Fetched:
    """What a server answers: the status, the headers, and the bytes that were read."""

    url: str
    status: int
    headers: httpx.Headers
    content: bytes

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """The object of its body.

        Raises:
            OAuthError: It is no JSON object.
        """
        try:
            body = from_json(self.content, allow_inf_nan=False)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise OAuthError(f"{self.url} answers {self.status} with no JSON object")
        return body

    def reason(self, *hidden: str) -> str:
        """Return what its body says of an error (RFC 6749, 5.2), or its status, for people.

        Args:
            hidden: Secrets of the request, which it may repeat.

        Raises:
            OAuthError: The body is no JSON object.
        """
        said = " ".join(str(self.body.get(name, "")) for name in ("error", "error_description"))
        for secret in filter(None, hidden):
            said = said.replace(secret, "…")
        return one_line(said, _SHOWN) or f"it answers {self.status}"


async def asked_of(
    method: str,
    url: str,
    *,
    max_bytes: int = limits.OIDC_DOCUMENT_BYTES,
    data: Mapping[str, str] | None = None,
    json: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Fetched:
    """Return what a server answers. Redirects are not followed; with 0 bytes, no body is read.

    Raises:
        OAuthError: It does not answer in time, or with too much.
    """
    try:
        async with (
            asyncio.timeout(limits.OIDC_CALL.total_seconds()),
            httpx.AsyncClient(
                timeout=limits.OIDC_CALL.total_seconds(), verify=certificates()
            ) as client,
            client.stream(
                method, url, data=data, json=json, headers={**_HEADERS, **(headers or {})}
            ) as response,
        ):
            content = await _content(response, max_bytes) if max_bytes else b""
            return Fetched(url, response.status_code, response.headers, content)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        reason = one_line(str(error), _SHOWN) or type(error).__name__
        raise OAuthError(f"{url} cannot be read: {reason}") from None


async def _content(response: httpx.Response, max_bytes: int) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > max_bytes:
            raise OAuthError(f"{response.url} answers with more than {max_bytes} bytes")
    return bytes(content)


def check_url(url: str, what: str, *, takes_query: bool = False) -> None:
    """Check that tokens and keys are safe on the way from and to an address.

    Raises:
        ConfigurationError: It is not one of https, nor of this machine.
    """
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    )
    has_more = bool(parts.fragment or (parts.query and not takes_query))
    if not is_safe or not parts.hostname or has_more:
        raise errors.ConfigurationError(
            f"{what} is {url!r}; it must be an address with https, such as"
            " https://id.example.com (http only on this machine)"
        )


def check_named_url(url: str, what: str, named_by: str) -> None:
    """Check an address that a server names.

    Raises:
        OAuthError: It is not safe, or on this machine while the server is elsewhere, which could
            otherwise have this machine called.
    """
    try:
        is_plain = bool(_PLAIN.fullmatch(url)) and "@" not in urlsplit(url).netloc
        host, naming = httpx.URL(url).host, httpx.URL(named_by).host
    except (httpx.InvalidURL, ValueError):
        is_plain = False
    if len(url) > URL_CHARACTERS or not is_plain:
        raise OAuthError(
            f"{what} is no address of at most {URL_CHARACTERS} ASCII characters without a user and"
            " a password"
        )
    try:
        check_url(url, what, takes_query=True)
    except errors.ConfigurationError as error:
        raise OAuthError(error.message) from None
    if is_loopback(host) and not is_loopback(naming):
        raise OAuthError(f"{what} is {url!r}, on this machine, while {named_by} is elsewhere")
