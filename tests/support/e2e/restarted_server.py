"""A Temporal server that is killed and started again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .outages import Outage


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Outage]:
    """A server with a database file."""
    outage = Outage(tmp_path / "state")
    try:
        await outage.begin()
        yield outage
    finally:
        await outage.end()
