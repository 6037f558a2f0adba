"""Fixtures for tests of the site as readers see it: Chromium and a local server."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from ..support.browser import launched
from ..support.docs.site import SITE

if TYPE_CHECKING:
    from playwright.async_api import Browser


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its parent calls it
        """No log."""


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of the site during the session."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """One browser for the session."""
    async with launched() as browser:
        yield browser
