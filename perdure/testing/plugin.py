"""Pytest fixtures: a Temporal server for the session, and a runtime on it.

Pytest imports this wherever Perdure is installed, so it imports what they need when they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from perdure.testing.runtime import Runtime


@pytest.fixture(scope="session")
def perdure_server() -> Iterator[str]:
    """The address of a Temporal server that is shared by all tests of the session."""
    from perdure.testing.runtime import server_in_thread

    with server_in_thread() as address:
        yield address


@pytest.fixture
def perdure_runtime(perdure_server: str) -> Runtime:
    """`perdure.testing.local_runtime` on the session's server."""
    from perdure.testing.runtime import local_runtime

    return partial(local_runtime, address=perdure_server)
