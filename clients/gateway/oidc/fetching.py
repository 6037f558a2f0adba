"""Requests to an identity provider. What it answers is limited in size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic_core import from_json

from perdure import errors, limits
from perdure.clients.gateway.addresses import is_loopback
from perdure.text import one_line

_SHOWN = 300
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
"""Without compression, so that the size of an answer is the size that is read."""


class IssuerError(Exception):
    """The identity provider does not answer, or with something that is not what it should be."""


@dataclass(frozen=True)
class IssuerAnswer:
    """What an identity provider answers: the status, and the object of its body."""

    status: int
    body: Mapping[str, Any]


async def asked_of(
    method: str,
    url: str,
    *,
    max_bytes: int = limits.OIDC_DOCUMENT_BYTES,
    data: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> IssuerAnswer:
    """Return what an identity provider answers.

    Raises:
        IssuerError: It does not answer in time, or with no JSON object, or with too much.
    """
    try:
        async with asyncio.timeout(limits.OIDC_CALL.total_seconds()):
            status, content = await _content(method, url, max_bytes, data, headers)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        reason = one_line(str(error), _SHOWN) or type(error).__name__
        raise IssuerError(f"{url} cannot be read: {reason}") from None
    try:
        body = from_json(content, allow_inf_nan=False)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise IssuerError(f"{url} answers {status} with no JSON object")
    return IssuerAnswer(status, body)


async def _content(
    method: str,
    url: str,
    max_bytes: int,
    data: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
) -> tuple[int, bytes]:
    content = bytearray()
    async with (
        httpx.AsyncClient(timeout=limits.OIDC_CALL.total_seconds()) as client,
        client.stream(method, url, data=data, headers={**_HEADERS, **(headers or {})}) as response,
    ):
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > max_bytes:
                raise IssuerError(f"{url} answers with more than {max_bytes} bytes")
    return response.status_code, bytes(content)


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
