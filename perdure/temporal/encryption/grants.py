"""The tokens of data subjects for MCP servers, kept in the vault, and renewed before they end.

Many authorization servers take a refresh token once. So a process says in the vault that it renews
a token, and the others wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from operator import not_
from typing import Any
from weakref import WeakValueDictionary

from pydantic import Field, ValidationError

from perdure import errors
from perdure.base import Wire
from perdure.oauth.failures import GrantRefusedError, OAuthError
from perdure.oauth.values import Tokens
from perdure.temporal.encryption.vault import Secret, Vault
from perdure.temporal.recent import Recent

_KEPT_S = 60.0
_KEPT_TOKENS = 1_000
_ENDS_SOON = timedelta(seconds=30)
_RENEWAL = timedelta(seconds=15)
"""How long others wait for the process that renews a token: less than servers have to start."""
_PAUSE_S = 0.25
_ROUNDS = 200
_WRITES = 80
"""How often new tokens are written, until the store answers: the old ones may be void already."""


class Grant(Wire):
    """What the vault has of the login of a person at a server.

    Attributes:
        tokens: The tokens; None after the server has taken the login back.
        renewed_until: Until when a process renews them; None if none does.
    """

    tokens: Tokens | None = None
    renewed_until: datetime | None = Field(default=None, exclude_if=not_)


class Grants:
    """The logins of data subjects at MCP servers.

    A token that was read is used for a minute before the vault is asked again.

    Args:
        vault: Where they are.
        clock: Returns a monotonic time in seconds.
    """

    def __init__(self, vault: Vault, clock: Callable[[], float] = time.monotonic) -> None:
        self._vault = vault
        self._clock = clock
        self._kept = Recent[tuple[str, str], tuple[Tokens, float]](_KEPT_TOKENS)
        self._locks = WeakValueDictionary[tuple[str, str], asyncio.Lock]()
        self._renewals = set[asyncio.Task[None]]()

    async def token(self, subject: str, url: str, refused: str = "") -> str | None:
        """Return an access token of a subject for a server; None if the person has to log in.

        Args:
            subject: The data subject.
            url: The address of the server.
            refused: The token that the server has just refused; empty without one.

        Raises:
            OAuthError: The authorization server cannot be asked for another token now.
            ErasedError: The subject is being erased.
            KeyStoreError: The store does not answer.
        """
        place = subject, url
        lock = self._locks.setdefault(place, asyncio.Lock())
        async with lock:
            kept = self._kept.get(place)
            if kept is not None and self._clock() - kept[1] < _KEPT_S and _serves(kept[0], refused):
                return kept[0].access_token
            tokens = await self._current(subject, url, refused)
            if tokens is None:
                self._kept.drop(place)
                return None
            self._kept.put(place, (tokens, self._clock()))
            return tokens.access_token

    def forget(self, subject: str, url: str) -> None:
        """Ask the vault before the next use: the server wants more than the token is good for."""
        self._kept.drop((subject, url))

    def scopes(self, subject: str, url: str) -> Sequence[str]:
        """Return what the token that was read last is good for, as far as that is known."""
        kept = self._kept.get((subject, url))
        return kept[0].scopes if kept is not None else ()

    async def keep(self, subject: str, url: str, tokens: Tokens) -> None:
        """Keep the tokens of a login, instead of those of an earlier one.

        Raises:
            ErasedError: The subject is being erased; or it was, and must not return.
            KeyStoreError: The store does not answer.
        """
        content = _packed(Grant(tokens=tokens))
        while True:
            before = await self._vault.read(subject, _name(url))
            version = before.version if before else None
            if await self._vault.write(subject, _name(url), content, version) is not None:
                return

    async def _current(self, subject: str, url: str, refused: str) -> Tokens | None:
        for _ in range(_ROUNDS):
            secret = await self._vault.read(subject, _name(url))
            grant = _unpacked(secret)
            if secret is None or grant is None or grant.tokens is None:
                return None
            if _serves(grant.tokens, refused):
                return grant.tokens
            if grant.tokens.refresh_token is None:
                return None
            now = datetime.now(UTC)
            if grant.renewed_until is not None and now < grant.renewed_until:
                await asyncio.sleep(_PAUSE_S)
                continue
            claim = _packed(Grant(tokens=grant.tokens, renewed_until=now + _RENEWAL))
            version = await self._vault.write(subject, _name(url), claim, secret.version)
            if version is not None:
                await self._whole(self._renew(subject, url, grant.tokens, version))
        raise OAuthError(f"another process did not renew the login at {url} in time")

    async def _whole(self, renewal: Coroutine[Any, Any, None]) -> None:
        """Await a renewal, which goes on if the call is cancelled: its tokens would be lost."""
        task = asyncio.create_task(renewal)
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)
        await asyncio.shield(task)

    async def _renew(self, subject: str, url: str, tokens: Tokens, version: int) -> None:
        """Renew tokens that this process has claimed, and write what has become of them.

        Raises:
            OAuthError: The authorization server does not answer.
            KeyStoreError: The store does not answer, and the login may be lost.
        """
        from perdure.oauth.login import refresh  # it imports httpx, which few processes need

        after = Grant(tokens=tokens)
        try:
            after = Grant(tokens=await refresh(tokens))
        except GrantRefusedError:
            after = Grant()
        finally:
            await self._write(subject, url, after, version)

    async def _write(self, subject: str, url: str, grant: Grant, version: int) -> None:
        for writes_left in reversed(range(_WRITES)):
            try:
                await self._vault.write(subject, _name(url), _packed(grant), version)
            except errors.KeyStoreError:
                if not writes_left:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return


def _name(url: str) -> str:
    return f"tokens {url}"


def _serves(tokens: Tokens, refused: str) -> bool:
    """Return whether an access token is used: the server has not refused it, and it lasts."""
    lasts = tokens.expires_at is None or tokens.expires_at - datetime.now(UTC) > _ENDS_SOON
    return lasts and tokens.access_token != refused


def _packed(grant: Grant) -> bytes:
    return grant.model_dump_json().encode()


def _unpacked(secret: Secret | None) -> Grant | None:
    """Return what a secret says; None if it cannot be read any more."""
    if secret is None or secret.content is None:
        return None
    try:
        return Grant.model_validate_json(secret.content)
    except ValidationError:
        return None
