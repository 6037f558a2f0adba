"""Recorded traffic of providers, replayed by a server on loopback.

PERDURE_RECORDINGS names the folder: files of
`{provider, api, interactions: [{request: {uri, body}, response: {status, headers, body}}]}`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from perdure.testing.stub_provider import StubReply

Exchange = dict[str, Any]

FRAMING = ("content-length", "transfer-encoding", "content-encoding", "connection")


def recorded(
    api: str, path: str, where: Callable[[Exchange], bool] = lambda _: True
) -> Iterator[Any]:
    """Every recorded exchange of an API at `path` that is not a stream; without recordings, one
    skipped parameter with the reason.
    """
    found = list(whole(api, path))
    yield from (pytest.param(exchange, id=name) for name, exchange in found if where(exchange))
    if not found:
        reason = (
            "PERDURE_RECORDINGS is not set to the absolute path of a folder with recordings of the"
            f" API {api!r}"
        )
        yield pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")


def whole(api: str, path: str) -> Iterator[tuple[str, Exchange]]:
    """The same exchanges, each with its name; none without recordings."""
    yield from (one for one in _all(api, path) if not _is_stream(one[1]))


def streams(api: str, path: str) -> Iterator[tuple[str, Exchange]]:
    """The exchanges with a streamed answer."""
    yield from (one for one in _all(api, path) if _is_stream(one[1]))


def _all(api: str, path: str) -> Iterator[tuple[str, Exchange]]:
    """Leaves out exchanges with other hosts in the same file, and those without a recorded
    answer.
    """
    folder = Path(os.environ.get("PERDURE_RECORDINGS", ""))
    for file in sorted(folder.glob(f"*__{api}__*.json")) if folder.is_absolute() else ():
        for index, exchange in enumerate(
            json.loads(file.read_text(encoding="utf-8"))["interactions"]
        ):
            if exchange["response"]["status"] is not None and urlsplit(
                exchange["request"]["uri"]
            ).path.endswith(path):
                yield f"{file.stem.replace(f'__{api}__', '-')}-{index}", exchange


def _is_stream(exchange: Exchange) -> bool:
    body = exchange["response"]["body"]
    return isinstance(body, str) and body.lstrip().startswith(("data:", "event:", ":"))


def as_reply(response: dict[str, Any]) -> StubReply:
    """A recorded response as the stub provider serves it."""
    headers = {
        name: value for name, value in response["headers"].items() if name.lower() not in FRAMING
    }
    body = response["body"]
    return {
        "status": response["status"],
        "headers": headers,
        "raw": body if isinstance(body, str) else json.dumps(body),
    }
