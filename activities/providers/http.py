"""HTTP client shared by the model providers.

It bounds the size of a reply, checks its JSON strictly, and raises transport errors that reveal no
secrets.

httpx quotes header values, and therefore keys, in exception messages. They never leave this
module: every failure has a message of its own and is raised outside the `except` block, so that no
traceback or log handler finds the httpx exception as its cause or context.

An error status is meaningful even if its body is cut off or unreadable; such a body counts as
empty. Failures after the connection was made, or in the body of a 2xx, may have been billed
(`http_errors`).

A stream of events is assembled into the body of a whole reply (`Parts`), so that code that reads
replies need not distinguish the two. Reading stops at the event that completes the body, and the
connection is then closed: some servers keep it open, and a reused connection can break under the
next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import math
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from perdure import errors, limits
from perdure.activities.providers import http_errors, sse, unreachable
from perdure.activities.providers.lenient_json import parsed
from perdure.activities.providers.unreachable import UNSENT
from perdure.oauth.certificates import certificates
from perdure.text import head, one_line
from perdure.values.reports import Usage

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 10.0
LONGEST_WAIT_S = 86_400.0

_ERROR_EXCERPT_BYTES = 2_000
_PIECE_BYTES = 8_192
_BUSY_S = 0.002
_PAUSE_S = 0.001
"""Large chunks of a stream are parsed in pieces, with pauses for the rest of the event loop."""
_ENCODINGS = ("", "identity", "gzip", "deflate")
_DONE = "[DONE]"
_DOCUMENTS = ("json", "html")
"""Content types of a 2xx that is not a stream although one was requested.

They come from servers that cannot stream, and from hosts that are not model servers.
"""


_Read = Callable[["httpx.Response"], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class VendorReply:
    """A vendor's reply.

    `data` is an object for a status of 2xx; otherwise any JSON value, or a string if the body is
    not JSON.
    """

    status: int
    headers: Mapping[str, str]
    data: Any

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class Parts(Protocol):
    """Assembles the body of a whole reply from the events of a stream."""

    def take(self, name: str, data: dict[str, Any] | None) -> bool:
        """Add an event, given its name and JSON data; None is the `[DONE]` of some APIs.

        Returns whether the body is complete, so that reading can stop.
        """

    def body(self) -> dict[str, Any] | None:
        """Return the body of the equivalent whole reply; None if the stream ended before it."""


class HttpClient:
    """A client that posts JSON to one vendor.

    It follows no redirects, makes no retries, and has no read timeout of its own. `name` is the
    vendor's name in error texts.
    """

    def __init__(self, name: str, base_url: str) -> None:
        self._name = name
        self._base_url = base_url.rstrip("/")
        self._client: httpx.AsyncClient | None = None

    def check_address(self) -> None:
        """Validate the base URL.

        Raises:
            ConfigurationError: It is not a valid address, or contains a user name or a password.
        """
        _check_address(self._base_url, self._name)

    async def post_json(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> VendorReply:
        """Post `body` and read the whole reply.

        Raises:
            LLMUnavailableError: The vendor cannot be reached, or the body of a 2xx is not a JSON
                object of at most `limits.PROVIDER_BODY_BYTES`.
            LLMTimeoutError: The connection was not made in time.
            ConfigurationError: The base URL or the proxy settings are unusable.
        """
        return await self._safely(path, body, headers, self._data)

    async def post_for_stream(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], parts: Parts
    ) -> VendorReply:
        """Post `body` and pass the events of the reply to `parts` as they arrive.

        `data` of the result is the body that `parts` assembled. A reply that is not a stream is
        read like the reply of `post_json`: an error status, or the answer of a server that cannot
        stream.

        Raises:
            LLMUnavailableError: As for `post_json`; or the stream ends before the answer, or an
                event is not a JSON object.
            LLMTimeoutError: The connection was not made in time.
            ConfigurationError: The base URL or the proxy settings are unusable.
        """

        async def read(response: httpx.Response) -> Any:
            is_stream = response.is_success and not any(
                kind in response.headers.get("content-type", "").lower() for kind in _DOCUMENTS
            )
            return (
                await self._put_together(response, parts)
                if is_stream
                else await self._data(response)
            )

        return await self._safely(path, body, headers, read)

    async def close(self) -> None:
        """Close all connections. A later request opens new connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _safely(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], read: _Read
    ) -> VendorReply:
        """Post and read the reply, converting httpx exceptions into `PerdureError`s."""
        if "httpx" not in sys.modules:
            await asyncio.to_thread(importlib.import_module, "httpx")  # takes about 0.1 s
        import httpx

        failure: errors.PerdureError
        try:
            _check_address(self._base_url, self._name)
            return await self._post(path, body, headers, read)
        except httpx.ConnectTimeout:
            host = urlsplit(self._base_url).netloc
            failure = errors.LLMTimeoutError(
                f"{self._name}: no connection to {host} within {CONNECT_TIMEOUT_S:g} s",
                context={"charged": False, **UNSENT},
            )
        except (httpx.InvalidURL, UnicodeError):
            failure = errors.ConfigurationError(
                f"{self._name}: the base URL is not a valid http or https address"
            )
        except httpx.ConnectError as error:
            failure = errors.LLMUnavailableError(
                f"{self._name}: {unreachable.reason(error, self._base_url)}", context=UNSENT
            )
        except httpx.ProxyError:
            failure = errors.LLMUnavailableError(
                f"{self._name}: the proxy did not connect to the server", context=UNSENT
            )
        except httpx.DecodingError:
            failure = errors.LLMUnavailableError(
                f"{self._name}: the reply is compressed in an unreadable way",
                context=http_errors.CHARGED,
            )
        except httpx.HTTPError:
            failure = errors.LLMUnavailableError(
                f"{self._name}: the connection broke before the reply was complete",
                context=http_errors.CHARGED,
            )
        raise failure

    async def _post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], read: _Read
    ) -> VendorReply:
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"content-type": "application/json", **headers}
        async with self._connected().stream(
            "POST", self._base_url + path, content=content, headers=headers
        ) as response:
            data = await read(response)
        return VendorReply(response.status_code, dict(response.headers), data)

    async def _data(self, response: httpx.Response) -> Any:
        if not response.is_success:
            return await asyncio.to_thread(_anything, await _excerpt(response))
        with http_errors.billed(Usage()):
            # it may be long
            return await asyncio.to_thread(_object, await _read(response, self._name), self._name)

    async def _put_together(self, response: httpx.Response, parts: Parts) -> dict[str, Any]:
        with http_errors.billed(Usage()):
            async with contextlib.aclosing(self._events(response)) as events:
                async for event in events:
                    if event.data.strip() and parts.take(
                        event.name, await _data_of(event, self._name)
                    ):
                        break
            body = await asyncio.to_thread(parts.body)
            if body is None:
                raise errors.LLMUnavailableError(
                    f"{self._name}: the stream ended before the answer did"
                )
            return body

    async def _events(self, response: httpx.Response) -> AsyncGenerator[sse.ServerSentEvent, None]:
        reader = sse.EventReader(self._name)
        async with contextlib.aclosing(_chunks(response, self._name)) as chunks:
            async for chunk in chunks:
                since = time.perf_counter()
                for start in range(0, len(chunk), _PIECE_BYTES):
                    if time.perf_counter() - since > _BUSY_S:
                        await asyncio.sleep(_PAUSE_S)
                        since = time.perf_counter()
                    for event in reader.feed(chunk[start : start + _PIECE_BYTES]):
                        yield event

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = _client(self._name)
        return self._client


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait from `retry-after-ms`, else `retry-after` (a number or a date).

    The result is at most a day. Header names are expected in lower case.
    """
    wait = _number(headers.get("retry-after-ms"))
    if wait is not None:
        return min(wait / 1000, LONGEST_WAIT_S)
    value = headers.get("retry-after")
    wait = _number(value)
    if wait is None:
        wait = _until(value)
    return None if wait is None else min(wait, LONGEST_WAIT_S)


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _until(value: str | None) -> float | None:
    try:
        moment = parsedate_to_datetime(value or "")
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _check_address(url: str, name: str) -> None:
    """Validate a base URL, as httpx raises no specific exception for some invalid URLs.

    Raises:
        ConfigurationError: It is not a valid address, or it contains a user name or a password,
            which would replace the key and be logged by httpx.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise errors.ConfigurationError(
            f"{name}: the base URL is not a valid http or https address"
        )
    if "@" in parts.netloc:
        raise errors.ConfigurationError(
            f"{name}: the base URL holds a user name or a password, which would be sent instead of"
            " the key; remove it and what is before the @"
        )


def _client(name: str) -> httpx.AsyncClient:
    import httpx

    try:
        return httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            headers={"accept": "application/json", "accept-encoding": "gzip, deflate"},
            verify=certificates(),
        )
    except (ValueError, ImportError, OSError, httpx.InvalidURL):
        failure = errors.ConfigurationError(
            f"{name}: the HTTP client cannot be created with these settings; check HTTP_PROXY,"
            " HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR"
        )
    raise failure


async def _read(response: httpx.Response, name: str) -> bytes:
    return b"".join([chunk async for chunk in _chunks(response, name)])


async def _chunks(response: httpx.Response, name: str) -> AsyncGenerator[bytes, None]:
    """Yield the decoded body, up to the size limit.

    Only a single content encoding is accepted: with two nested encodings, a chunk could grow a
    millionfold before it is counted.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise errors.LLMUnavailableError(
            f"{name}: the reply has the content encoding {one_line(encoding, 40)!r}, which was not"
            " asked for"
        )
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > limits.PROVIDER_BODY_BYTES:
            raise errors.LLMUnavailableError(
                f"{name}: the reply is larger than {limits.PROVIDER_BODY_BYTES} bytes"
            )
        yield chunk


async def _excerpt(response: httpx.Response) -> bytes:
    """Return the body of an error status; empty if it cannot be read."""
    import httpx

    try:
        return await _read(response, "")
    except (httpx.HTTPError, errors.LLMUnavailableError):
        return b""


def _object(data: bytes, name: str) -> dict[str, Any]:
    if not data.strip():
        raise errors.LLMUnavailableError(f"{name}: the reply is empty")
    try:
        value = parsed(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise errors.LLMUnavailableError(f"{name}: the reply is not UTF-8") from None
    except (ValueError, RecursionError):
        raise errors.LLMUnavailableError(
            f"{name}: the reply is not readable JSON ({_looks_like(data)})"
        ) from None
    if not isinstance(value, dict):
        raise errors.LLMUnavailableError(f"{name}: the reply is JSON, but not an object")
    return value


async def _data_of(event: sse.ServerSentEvent, name: str) -> dict[str, Any] | None:
    if event.data.strip() == _DONE:
        return None
    if len(event.data) < _PIECE_BYTES:
        return _object(event.data.encode(), name)
    return await asyncio.to_thread(_object, event.data.encode(), name)


def _anything(data: bytes) -> Any:
    text = data.decode("utf-8-sig", "replace")
    try:
        return parsed(text)
    except (ValueError, RecursionError):
        return head(text, _ERROR_EXCERPT_BYTES)


def _looks_like(data: bytes) -> str:
    if data.lstrip()[:1] == b"<":
        return "it looks like an HTML page: is the base URL right?"
    return f"{len(data)} bytes"
