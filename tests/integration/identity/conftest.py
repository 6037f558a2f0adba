"""What the tests of callers and logins share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from ...support.browser import launched

if TYPE_CHECKING:
    from playwright.async_api import Browser


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """One browser for the session."""
    async with launched() as browser:
        yield browser
