"""Fixtures of the integration tests."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.receiver import OLD_SECRET, SECRET, Receiver, receiving

HOST = "PERDURE_WEBHOOK_HOSTS"


@pytest.fixture
def workflows(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a user's workflows, under a name by which the sandbox finds it, too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "support/workflows"))
    return importlib.import_module("their_workflows")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver that the workers of the test may send to."""
    with receiving() as found:
        monkeypatch.setenv(HOST, f"private:127.0.0.1:{found.port}")
        monkeypatch.setenv("PERDURE_WEBHOOK_SECRETS", f"{SECRET},{OLD_SECRET}")
        yield found
