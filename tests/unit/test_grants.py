"""The tokens of people: they are renewed without a person, by one process at a time."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import errors
from perdure.oauth.failures import OAuthError
from perdure.temporal.encryption import grants as module
from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.temporal.encryption.vault import Vault

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ..conftest import eventually
from ..support.people import SUBJECT, People, people

__all__ = ["people"]


@pytest.mark.accepts("G129")
async def test_token_that_has_ended_is_renewed_without_a_person(people: People) -> None:
    old = await people.log_in(lifetime_s=1)
    grants = people.grants()
    new = await grants.token(SUBJECT, people.calendar.url)
    again = await grants.token(SUBJECT, people.calendar.url)

    assert new != old.access_token
    assert await people.takes(new)
    assert again == new
    assert people.issuer.renewals == 1


@pytest.mark.accepts("G129")
async def test_token_that_the_server_refuses_is_renewed(people: People) -> None:
    """A revoked login ends with the renewal: the person has to log in again."""
    old = await people.log_in()
    grants = people.grants()
    new = await grants.token(SUBJECT, people.calendar.url, old.access_token)
    people.issuer.revoke("anna")
    last = await grants.token(SUBJECT, people.calendar.url, str(new))

    assert new != old.access_token
    assert last is None
    assert await people.grants().token(SUBJECT, people.calendar.url) is None


@pytest.mark.accepts("G129")
async def test_processes_that_need_a_token_at_once_renew_it_once(people: People) -> None:
    """A second refresh with the old token would revoke the login."""
    await people.log_in(lifetime_s=1)
    processes = [people.grants() for _ in range(8)]
    found = await asyncio.gather(
        *(each.token(SUBJECT, people.calendar.url) for each in processes * 3)
    )

    assert len(set(found)) == 1
    assert await people.takes(found[0])
    assert people.issuer.renewals == 1


@pytest.mark.accepts("G129")
async def test_renewal_goes_on_when_the_call_is_cancelled(people: People) -> None:
    """The refresh token is void by then, and the new one must not be lost."""
    await people.log_in(lifetime_s=1)
    people.issuer.goes_on.clear()
    grants = people.grants()
    call = asyncio.create_task(grants.token(SUBJECT, people.calendar.url))
    await asyncio.to_thread(people.issuer.is_asked.wait, 30)
    call.cancel()
    await asyncio.wait({call})
    people.issuer.goes_on.set()
    token = await people.grants().token(SUBJECT, people.calendar.url)

    assert call.cancelled()
    assert await people.takes(token)
    assert people.issuer.renewals == 1


@pytest.mark.accepts("G129")
async def test_authorization_server_that_is_away_loses_nothing(people: People) -> None:
    await people.log_in(lifetime_s=1)
    people.issuer.replies["/token"] = 503, b"{}"
    grants = people.grants()
    with pytest.raises(OAuthError, match="answers 503"):
        await grants.token(SUBJECT, people.calendar.url)
    people.issuer.replies.clear()

    assert await people.takes(await grants.token(SUBJECT, people.calendar.url))


@pytest.mark.accepts("G143")
async def test_store_that_is_away_during_a_renewal_gets_the_new_tokens(people: People) -> None:
    await people.log_in(lifetime_s=1)
    people.issuer.goes_on.clear()
    call = asyncio.create_task(people.grants().token(SUBJECT, people.calendar.url))
    await asyncio.to_thread(people.issuer.is_asked.wait, 30)
    people.store.is_away = True
    people.issuer.goes_on.set()
    await eventually(lambda: people.store.refused >= 4 or call.done(), "it was written twice")
    with pytest.raises(errors.KeyStoreError, match="does not answer"):
        await people.grants().token(SUBJECT, people.calendar.url)
    people.store.is_away = False

    assert await people.takes(await call)
    assert people.issuer.renewals == 1


@pytest.mark.accepts("G143")
async def test_login_during_a_renewal_is_kept(people: People) -> None:
    """The tokens of the renewal are those of the earlier login."""
    await people.log_in(lifetime_s=1)
    people.issuer.goes_on.clear()
    grants = people.grants()
    call = asyncio.create_task(grants.token(SUBJECT, people.calendar.url))
    await asyncio.to_thread(people.issuer.is_asked.wait, 30)
    login = await people.log_in()
    people.issuer.goes_on.set()

    assert await call == login.access_token
    assert await people.grants().token(SUBJECT, people.calendar.url) == login.access_token


@pytest.mark.accepts("G143")
async def test_erasure_during_a_renewal_leaves_nothing(people: People) -> None:
    """Neither tokens, nor a new key for the subject that was erased."""
    await people.log_in(lifetime_s=1)
    people.issuer.goes_on.clear()
    call = asyncio.create_task(people.grants().token(SUBJECT, people.calendar.url))
    await asyncio.to_thread(people.issuer.is_asked.wait, 30)
    keys = people.keys()
    await keys.begin_erasure(SUBJECT)
    await keys.destroy(SUBJECT)
    people.issuer.goes_on.set()

    assert await call is None
    assert people.store.store.secret(SUBJECT, f"tokens {people.calendar.url}") is None
    assert [key.state.value for key in await keys.known(SUBJECT)] == ["erased"]


@pytest.mark.accepts("G129")
@pytest.mark.slow
async def test_process_that_is_killed_while_it_renews_blocks_the_others_for_a_while(
    people: People,
) -> None:
    """The server has consumed the refresh token, so the person has to log in again."""
    await people.log_in(lifetime_s=1)
    people.issuer.goes_on.clear()
    script = Path(__file__).parent.parent / "support/renewing_process.py"
    master = people.master["k1"].hex()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), str(people.path), master, SUBJECT, people.calendar.url)
    )
    try:
        await asyncio.to_thread(people.issuer.is_asked.wait, 30)
        assert people.issuer.renewals == 1
    finally:
        process.kill()
        await process.wait()
    people.issuer.goes_on.set()
    began = asyncio.get_running_loop().time()
    token = await people.grants().token(SUBJECT, people.calendar.url)
    lasted = timedelta(seconds=asyncio.get_running_loop().time() - began)
    await people.log_in()

    assert token is None
    assert lasted < module._RENEWAL + timedelta(seconds=5)
    assert await people.takes(await people.grants().token(SUBJECT, people.calendar.url))


@pytest.mark.accepts("G136")
async def test_token_is_that_of_one_address_and_one_person(people: People) -> None:
    """A server that moves gets no token that was issued for the old address."""
    await people.log_in()
    grants = people.grants()

    assert await grants.token(SUBJECT, people.calendar.url + "/v2") is None
    assert await grants.token("customer-0815", people.calendar.url) is None
    assert await grants.token(SUBJECT, people.calendar.url) is not None


@pytest.mark.accepts("G144")
def test_store_without_secrets_says_what_it_lacks() -> None:
    class Plain:
        name = "the store of Otto"

        def get(self, key: str) -> None:
            """A key."""

    store: Any = Plain()
    with pytest.raises(errors.ConfigurationError) as raised:
        Vault(SubjectKeys(store, {"k1": os.urandom(32)}))

    assert raised.value.message == (
        "the store of Otto keeps no secrets, so nobody can log in at an MCP server: give it the"
        " methods of perdure.temporal.encryption.key_stores.SecretStore"
    )
