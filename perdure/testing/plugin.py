"""Pytest fixtures: a Temporal server for the session, and a runtime on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from perdure.testing.runtime import Runtime, local_runtime, server_in_thread


@pytest.fixture(scope="session")
def perdure_server() -> Iterator[str]:
    """The address of a Temporal server that is shared by all tests of the session."""
    with server_in_thread() as address:
        yield address


@pytest.fixture
def perdure_runtime(perdure_server: str) -> Runtime:
    """`perdure.testing.local_runtime` on the session's server."""
    return partial(local_runtime, address=perdure_server)
