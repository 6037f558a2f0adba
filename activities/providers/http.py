"""What model vendors on HTTP share: one client, a bounded body, JSON that nothing later trips over, transport errors that tell no secret.

httpx quotes header values, so keys, in the texts of its exceptions. They never leave this file: every failure has a text of ours, and is
raised outside the `except` block, so that no traceback or log handler finds httpx's exception behind it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perdure import errors, limits
from perdure.text import clean, head, one_line

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 10.0
LONGEST_WAIT_S = 86_400.0

_ERROR_EXCERPT_BYTES = 2_000
_ENCODINGS = ("", "identity", "gzip", "deflate")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a vendor answered. `data` is an object for a status of 2xx; for others any JSON value, or text where the body is no JSON."""

    status: int
    headers: Mapping[str, str]
    data: Any

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class HttpClient:
    """Posts JSON to one vendor, once: it follows no redirect, retries nothing, and waits for an answer as long as its caller does.

    `name` is the vendor's, for error texts.
    """

    def __init__(self, name: str, base_url: str) -> None:
        self._name = name
        self._base_url = base_url.rstrip("/")
        self._client: httpx.AsyncClient | None = None

    async def post_json(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
        """Post `body` and read the whole reply.

        Raises:
            LLMUnavailableError: The vendor cannot be reached, or a 2xx is not a JSON object of at most `limits.PROVIDER_BODY_BYTES`.
            LLMTimeoutError: No connection in time.
            ConfigurationError: The base URL or the proxy settings cannot work.
        """
        import httpx

        failure: errors.PerdureError
        try:
            if not _is_address(self._base_url):
                raise httpx.InvalidURL(self._base_url)
            return await self._post(path, body, headers)
        except httpx.TimeoutException:
            failure = errors.LLMTimeoutError(f"{self._name}: no connection within {CONNECT_TIMEOUT_S:g} s")
        except (httpx.InvalidURL, UnicodeError):
            failure = errors.ConfigurationError(f"{self._name}: the base URL is no valid http or https address")
        except httpx.ConnectError:
            failure = errors.LLMUnavailableError(f"{self._name}: the server cannot be reached")
        except httpx.DecodingError:
            failure = errors.LLMUnavailableError(f"{self._name}: the reply is compressed in a way that cannot be read")
        except httpx.HTTPError:
            failure = errors.LLMUnavailableError(f"{self._name}: the connection broke before the reply was complete")
        raise failure

    async def close(self) -> None:
        """Close connections. A later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"content-type": "application/json", **headers}
        async with self._connected().stream("POST", self._base_url + path, content=content, headers=headers) as response:
            data = await _read(response, self._name)
        return Reply(response.status_code, dict(response.headers), _object(data, self._name) if response.is_success else _anything(data))

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = _client(self._name)
        return self._client


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `retry-after-ms`, else by `retry-after` as a number or an HTTP date; at most a day. Names are in lower case."""
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


def _is_address(url: str) -> bool:
    """Whether httpx can take `url`; not all that is wrong with one ends in an exception of its own."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _client(name: str) -> httpx.AsyncClient:
    import httpx

    try:
        return httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            headers={"accept": "application/json", "accept-encoding": "gzip, deflate"},
        )
    except (ValueError, ImportError, OSError, httpx.InvalidURL):
        failure = errors.ConfigurationError(
            f"{name}: no HTTP client with these settings; look at HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR"
        )
    raise failure


async def _read(response: httpx.Response, name: str) -> bytes:
    """The body, decoded and then counted. One encoding only: with two on top of each other a chunk could grow a millionfold before that."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise errors.LLMUnavailableError(f"{name}: the reply has the content encoding {one_line(encoding, 40)!r}, which was not asked for")
    data = bytearray()
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > limits.PROVIDER_BODY_BYTES:
            raise errors.LLMUnavailableError(f"{name}: the reply is larger than {limits.PROVIDER_BODY_BYTES} bytes")
    return bytes(data)


def _object(data: bytes, name: str) -> dict[str, Any]:
    if not data.strip():
        raise errors.LLMUnavailableError(f"{name}: the reply is empty")
    try:
        value = _parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise errors.LLMUnavailableError(f"{name}: the reply is not UTF-8") from None
    except (ValueError, RecursionError):
        raise errors.LLMUnavailableError(f"{name}: the reply is no JSON that can be read ({_looks_like(data)})") from None
    if not isinstance(value, dict):
        raise errors.LLMUnavailableError(f"{name}: the reply is JSON, but not an object")
    return value


def _anything(data: bytes) -> Any:
    text = data.decode("utf-8-sig", "replace")
    try:
        return _parse(text)
    except (ValueError, RecursionError):
        return head(text, _ERROR_EXCERPT_BYTES)


def _parse(text: str) -> Any:
    value = json.loads(text)
    return _cleaned(value) if _SURROGATE.search(text) else value


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case list():
            return [_cleaned(item) for item in value]
        case dict():
            return {clean(key): _cleaned(item) for key, item in value.items()}
        case _:
            return value


def _looks_like(data: bytes) -> str:
    if data.lstrip()[:1] == b"<":
        return "it looks like an HTML page: is the base URL right?"
    return f"{len(data)} bytes"
