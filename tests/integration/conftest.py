"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..receiver import OLD_SECRET, SECRET, Receiver, receiving

HOST = "PERDURE_WEBHOOK_HOSTS"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver that the workers of the test may send to."""
    with receiving() as found:
        monkeypatch.setenv(HOST, f"private:127.0.0.1:{found.port}")
        monkeypatch.setenv("PERDURE_WEBHOOK_SECRETS", f"{SECRET},{OLD_SECRET}")
        yield found
