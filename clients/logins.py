"""Logins of people at MCP servers, which turns wait for.

A login begins in one request and ends in another, perhaps of another process. What it needs in
between is sealed into the `state` that the authorization server sends back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from temporalio.client import Client

from perdure import errors, limits
from perdure.base import Wire
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.readable import ReadableTurn
from perdure.oauth.failures import OAuthError
from perdure.oauth.values import BegunLogin
from perdure.temporal import secrets
from perdure.temporal.encryption import data_subjects
from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.temporal.encryption.grants import Grants
from perdure.temporal.encryption.key_stores import KeyState
from perdure.temporal.encryption.vault import Vault
from perdure.text import one_line
from perdure.turn.inquiries import CONSENT
from perdure.values.approvals import PendingApproval
from perdure.values.inquiries import LoginRequest

_PURPOSE = "login at an MCP server"
_SHOWN = 300


class LoginLink(Wire):
    """A login that a turn waits for, as a person is asked whether to begin it.

    Attributes:
        turn_id: The turn.
        call_id: The call that waits.
        agent: The name of its agent.
        server: The name of the MCP server.
        url: The address of the server.
        subject: The data subject, who is to log in.
    """

    turn_id: str
    call_id: str
    agent: str
    server: str
    url: str
    subject: str


class _Login(Wire):
    link: LoginLink
    key: str
    begun: BegunLogin


class Logins:
    """The logins that the turns of a client wait for."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def link(self, turn: ReadableTurn, call_id: str) -> LoginLink:
        """Return the login that a call waits for.

        Raises:
            InvalidRequestError: The call waits for no login.
            PerdureError: As `Turn.pending_approvals` does.
        """
        pending, _ = await self._waiting(turn, call_id)
        assert pending.question is not None
        assert pending.question.login is not None
        return LoginLink(
            turn_id=turn.id,
            call_id=call_id,
            agent=(await turn.status()).agent,
            server=pending.question.server,
            url=pending.question.login.url,
            subject=await self._subject_of(turn.id),
        )

    async def begin(self, turn: ReadableTurn, link: LoginLink, redirect_uri: str) -> str:
        """Return the address of the authorization server to which the person is sent.

        Raises:
            LoginError: The server, or its authorization server, cannot be used.
            PerdureError: As `link`.
        """
        import httpx  # it takes time to import, and few processes need it

        from perdure.oauth.login import begin

        _, asked = await self._waiting(turn, link.call_id)
        key = await self._key_of(turn.id)
        secret = secrets.read(asked.secret_env) if asked.secret_env else None
        try:
            address, begun = await begin(
                asked.url,
                redirect_uri,
                scopes=asked.scopes,
                client_id=asked.client_id,
                client_secret=secret,
            )
        except OAuthError as error:
            raise errors.LoginError(one_line(str(error), _SHOWN)) from None
        login = _Login(link=link, key=key, begun=begun).model_dump(mode="json")
        state = self._keys.seal.close(_PURPOSE, login, limits.HTTP_LOGIN)
        return str(httpx.URL(address).copy_set_param("state", state))

    async def complete(self, query: Mapping[str, str]) -> LoginLink:
        """Keep the tokens of a person whom the authorization server has sent back.

        Raises:
            InvalidRequestError: The login was not begun by a process with these keys, or too long
                ago.
            LoginError: The person has declined, or the authorization server refuses the login.
            ErasedError: The subject is being erased, or was since the login was begun.
            KeyStoreError: The store of the keys does not answer.
        """
        from perdure.oauth.login import complete

        login = self._begun(query.get("state", ""))
        try:
            tokens = await complete(login.begun, {**query, "state": login.begun.state})
        except OAuthError as error:
            raise errors.LoginError(one_line(str(error), _SHOWN)) from None
        await self._check_key(login)
        await Grants(Vault(self._keys)).keep(login.link.subject, login.link.url, tokens)
        return login.link

    def _begun(self, state: str) -> _Login:
        with contextlib.suppress(ValidationError):
            return _Login.model_validate(self._keys.seal.open(_PURPOSE, state))
        raise errors.InvalidRequestError(
            "this login was not begun here, or more than"
            f" {limits.HTTP_LOGIN.seconds // 60} minutes ago; begin it again"
        )

    @property
    def _keys(self) -> SubjectKeys:
        return data_subjects.keys_of(self._client)

    async def _check_key(self, login: _Login) -> None:
        """Check that the subject has the key that it had when the login was begun.

        Raises:
            ErasedError: It was erased. A later one of this name has not asked for the login.
            KeyStoreError: The store of the keys does not answer.
        """
        keys = await self._keys.known(login.link.subject)
        if not any(key.id == login.key and key.state != KeyState.ERASED for key in keys):
            raise errors.ErasedError(
                f"the data subject {login.link.subject!r} was erased after this login was begun, so"
                " its tokens are not kept"
            )

    async def _subject_of(self, turn_id: str) -> str:
        return await self._keys.subject_of(await self._key_of(turn_id))

    async def _key_of(self, turn_id: str) -> str:
        key = await data_subjects.key_of_input(self._client, turn_id)
        if not key:
            raise errors.InvalidRequestError(f"the turn {turn_id!r} has no data subject")
        return key

    async def _waiting(
        self, turn: ReadableTurn, call_id: str
    ) -> tuple[PendingApproval, LoginRequest]:
        for pending in await turn.pending_approvals():
            asked = pending.question.login if pending.question else None
            if pending.call_id == call_id and asked is not None:
                return pending, asked
        raise errors.InvalidRequestError(f"the call {call_id!r} of {turn.id!r} waits for no login")


async def answer(turns: Iterable[Turn[Any]], link: LoginLink, by: str) -> None:
    """Answer the calls of turns that wait for a login, after it.

    Raises:
        PerdureError: As `Turn.pending_approvals` and `Turn.answer` do.
    """
    for turn in turns:
        # it is over, or somebody has answered: nothing waits for the login any more
        with contextlib.suppress(errors.ApprovalConflictError, errors.TurnOverError):
            for pending in await turn.pending_approvals():
                login = pending.question.login if pending.question else None
                if login is not None and login.url == link.url:
                    await turn.answer(pending, CONSENT, by=by)
