"""People who have logged in at a calendar, and the store with their tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.oauth.login import begin, complete
from perdure.oauth.values import Tokens
from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.temporal.encryption.grants import Grants
from perdure.temporal.encryption.sqlite_keys import SqliteKeys
from perdure.temporal.encryption.vault import Vault

from .held_issuer import HeldIssuer
from .mcp.guarded_calendar import Calendar, calendar_of, logged_in

BACK = "http://127.0.0.1:9/back"
SUBJECT = "customer-4711"


class Fragile:
    """A store that stops to answer when a test says so."""

    name = "the store of the test"

    def __init__(self, store: SqliteKeys) -> None:
        self.store = store
        self.is_away = False
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        def ask(*values: Any) -> Any:
            if self.is_away:
                self.refused += 1
                raise OSError("no route to the database")
            return getattr(self.store, name)(*values)

        return ask


class People:
    """A calendar with its authorization server, and a store with a person's login there."""

    def __init__(self, issuer: HeldIssuer, calendar: Calendar, path: Path) -> None:
        self.issuer, self.calendar, self.path = issuer, calendar, path
        self.master = {"k1": os.urandom(32)}
        self.store = Fragile(SqliteKeys(str(path)))

    def keys(self) -> SubjectKeys:
        """The keys, as another process has them."""
        return SubjectKeys(self.store, self.master)

    def grants(self) -> Grants:
        """The logins, as another process has them."""
        return Grants(Vault(self.keys()))

    async def tokens(self, **options: Any) -> Tokens:
        """The tokens of a login of the person."""
        address, begun = await begin(self.calendar.url, BACK, **options)
        return await complete(begun, await logged_in(address))

    async def log_in(self, *, lifetime_s: int = 300, **options: Any) -> Tokens:
        """Keep a login whose access token lasts so long. Those after it last five minutes."""
        self.issuer.lifetime_s = lifetime_s
        tokens = await self.tokens(**options)
        self.issuer.lifetime_s = 300
        await self.grants().keep(SUBJECT, self.calendar.url, tokens)
        return tokens

    async def takes(self, token: str | None) -> bool:
        """Whether the calendar takes a token."""
        return token is not None and await self.calendar.verify_token(token) is not None


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    """People whose access tokens are renewed."""
    with HeldIssuer() as issuer, calendar_of(issuer) as calendar:
        yield People(issuer, calendar, tmp_path / "keys.sqlite")
        issuer.goes_on.set()
