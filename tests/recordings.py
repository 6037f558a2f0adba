"""Recorded traffic of providers, served again over real HTTP.

PERDURE_RECORDINGS names the folder: files of `{provider, api, interactions: [{request: {uri, body}, response: {status, headers, body}}]}`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from perdure.testing.stub_provider import Reply

Exchange = dict[str, Any]

FRAMING = ("content-length", "transfer-encoding", "content-encoding", "connection")


def recorded(api: str, path: str, where: Callable[[Exchange], bool] = lambda _: True) -> Iterator[Any]:
    """Every recorded exchange of an API at `path` that is no stream; one skipped parameter, saying why, where there are no recordings."""
    folder = Path(os.environ.get("PERDURE_RECORDINGS", ""))
    files = sorted(folder.glob(f"*__{api}__*.json")) if folder.is_absolute() else []
    for file in files:
        for index, exchange in enumerate(json.loads(file.read_text(encoding="utf-8"))["interactions"]):
            if _is_whole(exchange, path) and where(exchange):
                yield pytest.param(exchange, id=f"{file.stem.replace(f'__{api}__', '-')}-{index}")
    if not files:
        reason = f"PERDURE_RECORDINGS is not set to the absolute path of a folder with recordings of the API {api!r}"
        yield pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")


def _is_whole(exchange: Exchange, path: str) -> bool:
    """Leaves out streams, exchanges with other hosts in the same file, and those whose answer was not recorded."""
    response = exchange["response"]
    is_stream = isinstance(response["body"], str) and response["body"].lstrip().startswith(("data:", "event:", ":"))
    return response["status"] is not None and not is_stream and urlsplit(exchange["request"]["uri"]).path.endswith(path)


def as_reply(response: dict[str, Any]) -> Reply:
    """A recorded response as the stub provider serves it."""
    headers = {name: value for name, value in response["headers"].items() if name.lower() not in FRAMING}
    body = response["body"]
    return {"status": response["status"], "headers": headers, "raw": body if isinstance(body, str) else json.dumps(body)}
