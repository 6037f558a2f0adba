"""Fixtures for the tests of the pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from perdure.worker.dev.server import DevServer

from ..support.docs.pages import page
from ..support.docs.stories import Story

Tell = Callable[[str], AbstractAsyncContextManager[Story]]


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """Runs the code blocks of a page, on a server of its own: pages use the same turn ids."""

    @asynccontextmanager
    async def telling(name: str) -> AsyncIterator[Story]:
        async with (
            DevServer(folder=None, port=0, ui=False) as server,
            Story(page(name), tmp_path, server.address.address) as story,
        ):
            yield story

    return telling
