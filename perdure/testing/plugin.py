"""Fixtures for pytest: one real Temporal server for the session, and agents run on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from temporalio.converter import DataConverter

    from perdure.activities.models import Provider
    from perdure.agents import Agent
    from perdure.clients import AgentClient
    from perdure.registry import Registry
    from perdure.worker import AgentWorker


class Runtime(Protocol):
    """What the fixture `perdure_runtime` is."""

    def __call__(
        self,
        app: AgentWorker | Registry | Agent[Any],
        *,
        model: Provider | Mapping[str, Provider] | None = None,
        deps: Any = ...,
        data_converter: DataConverter | None = None,
    ) -> AbstractAsyncContextManager[AgentClient]:
        """See `perdure.testing.local_runtime`."""


@pytest.fixture(scope="session")
def perdure_server() -> Iterator[str]:
    """The address of a Temporal server that is started with the first test that asks and stopped after the last."""
    from perdure.testing.runtime import server_in_thread

    with server_in_thread() as address:
        yield address


@pytest.fixture
def perdure_runtime(perdure_server: str) -> Runtime:
    """What `perdure.testing.local_runtime` does, on the session's server."""
    from perdure.testing.runtime import local_runtime

    return partial(local_runtime, address=perdure_server)
