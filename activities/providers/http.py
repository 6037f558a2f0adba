"""What model vendors on HTTP share.

One client, a bounded body, JSON that nothing later trips over, transport errors that tell no
secret.

httpx quotes header values, so keys, in the texts of its exceptions. They never leave this file:
every failure has a text of ours, and is raised outside the `except` block, so that no traceback or
log handler finds httpx's exception behind it.

An error status says what to do even where its body breaks off or cannot be read, and such a body
then counts as empty. What goes wrong after a connection was made, or with the body of a 2xx, may
have been billed (`faults`).

A stream of events becomes the body of a whole reply (`Parts`), so whoever reads replies need not
know which of the two it was. Reading ends with the event that completes the body, and the
connection is closed then: some servers keep it open, and one that was kept can break under the next
request.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import json
import math
import os
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
from perdure.text import head, one_line
from perdure.values.reports import Usage

if TYPE_CHECKING:
    import ssl

    import httpx

CONNECT_TIMEOUT_S = 10.0
LONGEST_WAIT_S = 86_400.0

_ERROR_EXCERPT_BYTES = 2_000
_PIECE_BYTES = 8_192
_BUSY_S = 0.002
_PAUSE_S = 0.001
"""A stream of which much comes at once is read in pieces, with pauses in which the event loop serves other turns."""
_ENCODINGS = ("", "identity", "gzip", "deflate")
_DONE = "[DONE]"
_DOCUMENTS = ("json", "html")
"""In the content type of a 2xx that is no stream, though one was asked for.

Of servers that cannot, and of those that are none.
"""


_Read = Callable[["httpx.Response"], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a vendor answered.

    `data` is an object for a status of 2xx; for others any JSON value, or text where the body is no
    JSON.
    """

    status: int
    headers: Mapping[str, str]
    data: Any

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class Parts(Protocol):
    """Puts the body of a whole reply together out of the events of a stream."""

    def take(self, name: str, data: dict[str, Any] | None) -> bool:
        """One more event, by its name and its JSON; None for the `[DONE]` of some APIs.

        Whether nothing is to be read behind it.
        """

    def body(self) -> dict[str, Any] | None:
        """What a whole reply would have held; None where the stream ended before the answer did."""


class HttpClient:
    """Posts JSON to one vendor, once.

    It follows no redirect, retries nothing, and waits for an answer as long as its caller does.

    `name` is the vendor's, for error texts.
    """

    def __init__(self, name: str, base_url: str) -> None:
        self._name = name
        self._base_url = base_url.rstrip("/")
        self._client: httpx.AsyncClient | None = None

    def check_address(self) -> None:
        """Refuse a base URL that cannot work.

        Raises:
            ConfigurationError: It is no address, or holds a user name or a password.
        """
        _check_address(self._base_url, self._name)

    async def post_json(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Reply:
        """Post `body` and read the whole reply.

        Raises:
            LLMUnavailableError: The vendor cannot be reached, or a 2xx is not a JSON object of at
                most `limits.PROVIDER_BODY_BYTES`.
            LLMTimeoutError: No connection in time.
            ConfigurationError: The base URL or the proxy settings cannot work.
        """
        return await self._safely(path, body, headers, self._data)

    async def post_for_stream(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], parts: Parts
    ) -> Reply:
        """Post `body` and give the events of the reply to `parts` as they come.

        `data` of the reply is what those put together.

        A reply that is no stream is read as `post_json` reads it: an error status, or the whole
        answer of a server that cannot stream.

        Raises:
            LLMUnavailableError: As `post_json` does; or the stream ends before the answer, or holds
                what is no JSON object.
            LLMTimeoutError: No connection in time.
            ConfigurationError: The base URL or the proxy settings cannot work.
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
        """Close connections. A later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _safely(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], read: _Read
    ) -> Reply:
        """Post, read the reply, and turn what httpx raises into errors of ours."""
        if "httpx" not in sys.modules:
            await asyncio.to_thread(importlib.import_module, "httpx")  # takes a tenth of a second
        import httpx

        failure: errors.PerdureError
        try:
            _check_address(self._base_url, self._name)
            return await self._post(path, body, headers, read)
        except httpx.ConnectTimeout:
            words = (
                f"no connection to {urlsplit(self._base_url).netloc} within {CONNECT_TIMEOUT_S:g} s"
            )
            failure = errors.LLMTimeoutError(
                f"{self._name}: {words}", context={"charged": False, **UNSENT}
            )
        except (httpx.InvalidURL, UnicodeError):
            failure = errors.ConfigurationError(
                f"{self._name}: the base URL is no valid http or https address"
            )
        except httpx.ConnectError as error:
            failure = errors.LLMUnavailableError(
                f"{self._name}: {unreachable.reason(error, self._base_url)}", context=UNSENT
            )
        except httpx.ProxyError:
            failure = errors.LLMUnavailableError(
                f"{self._name}: the proxy makes no connection to the server", context=UNSENT
            )
        except httpx.DecodingError:
            failure = errors.LLMUnavailableError(
                f"{self._name}: the reply is compressed in a way that cannot be read",
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
    ) -> Reply:
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"content-type": "application/json", **headers}
        async with self._connected().stream(
            "POST", self._base_url + path, content=content, headers=headers
        ) as response:
            data = await read(response)
        return Reply(response.status_code, dict(response.headers), data)

    async def _data(self, response: httpx.Response) -> Any:
        if not response.is_success:
            return await asyncio.to_thread(_anything, await _excerpt(response))
        with http_errors.billed(Usage()):
            return await asyncio.to_thread(
                _object, await _read(response, self._name), self._name
            )  # it may be long

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

    async def _events(self, response: httpx.Response) -> AsyncGenerator[sse.Event, None]:
        reader = sse.Reader(self._name)
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
    """Seconds to wait by `retry-after-ms`, else by `retry-after` as a number or an HTTP date.

    At most a day. Names are in lower case.
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
    """Refuse a base URL that httpx cannot take.

    Not all that is wrong with one ends in an exception of its own.

    Raises:
        ConfigurationError: It is not an address, or it holds a user name or a password, which would
            replace the key and be logged by httpx.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise errors.ConfigurationError(f"{name}: the base URL is no valid http or https address")
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
            verify=_certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        )
    except (ValueError, ImportError, OSError, httpx.InvalidURL):
        failure = errors.ConfigurationError(
            f"{name}: no HTTP client with these settings; look at HTTP_PROXY, HTTPS_PROXY,"
            " ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR"
        )
    raise failure


@functools.lru_cache(maxsize=1)
def _certificates(file: str | None, folder: str | None) -> ssl.SSLContext:
    """The certificate authorities that httpx trusts, loaded once for all providers.

    Loading them takes some 30 ms of CPU. httpx reads the two variables itself; they are
    parameters so that a process that changes them gets what they say then.
    """
    import httpx

    return httpx.create_ssl_context()


async def _read(response: httpx.Response, name: str) -> bytes:
    """The body, decoded."""
    return b"".join([chunk async for chunk in _chunks(response, name)])


async def _chunks(response: httpx.Response, name: str) -> AsyncGenerator[bytes, None]:
    """The body, decoded and then counted.

    One encoding only: with two on top of each other a chunk could grow a millionfold before that.
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
    """The body of an error status; empty where it cannot be read."""
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
            f"{name}: the reply is no JSON that can be read ({_looks_like(data)})"
        ) from None
    if not isinstance(value, dict):
        raise errors.LLMUnavailableError(f"{name}: the reply is JSON, but not an object")
    return value


async def _data_of(event: sse.Event, name: str) -> dict[str, Any] | None:
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
