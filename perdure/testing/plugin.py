"""Fixtures for pytest: one real Temporal server for the session, and agents run on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from perdure.testing.runtime import Runtime, local_runtime, server_in_thread


@pytest.fixture(scope="session")
def perdure_server() -> Iterator[str]:
    """The address of a Temporal server that is started with the first test that asks and stopped after the last."""
    with server_in_thread() as address:
        yield address


@pytest.fixture
def perdure_runtime(perdure_server: str) -> Runtime:
    """What `perdure.testing.local_runtime` does, on the session's server."""
    return partial(local_runtime, address=perdure_server)
