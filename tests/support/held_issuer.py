"""An authorization server whose answers about tokens can be held back, or get lost."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from perdure.testing import FakeIssuer


class HeldIssuer(FakeIssuer):
    """Issues tokens at once, unless a test says something else.

    Attributes:
        renewals: How many refresh tokens it has got.
        is_asked: Set once it has got one.
        goes_on: Its answers to refresh tokens wait until this is set.
    """

    def __init__(self) -> None:
        super().__init__(algorithm="ES256")
        self.renewals = 0
        self.is_asked = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Answer; a refresh token is taken first, and answered when the test lets it go on."""
        answer = super().answer(method, path, query, headers)
        if query.get("grant_type") == "refresh_token":
            self.renewals += 1
            self.is_asked.set()
            self.goes_on.wait(30)
        return answer
