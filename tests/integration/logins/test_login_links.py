"""The link by which a person logs in at an MCP server, from the gateway."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
import pytest

from ...support.data_subjects import home
from ...support.gateway.served import as_, served, told
from ...support.logins import DONE, LOG_IN, LUNCH, Office, login_of, office, until

if TYPE_CHECKING:
    from perdure.clients import Turn

__all__ = ["home", "office"]


async def link_of(http: httpx.AsyncClient, turn: Turn[str]) -> str:
    """Where the person of a turn logs in."""
    waiting, _ = await login_of(turn)
    answer = await http.post(f"/v1/turns/{turn.id}/login", json={"call_id": waiting.call_id})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["url"])


async def begun(browser: httpx.AsyncClient, link: str) -> httpx.Response:
    """The redirect to the authorization server, after a person has read the page and gone on."""
    shown = await browser.get(link)
    assert shown.status_code == 200, shown.text
    return await browser.get(link.replace("/connect?", "/connect/begin?"))


async def returned(answer: httpx.Response) -> str:
    """The address that the authorization server sends a browser back to."""
    async with httpx.AsyncClient(verify=False, timeout=60) as elsewhere:
        there = await elsewhere.get(answer.headers["location"])
    return str(there.headers["location"])


@pytest.mark.accepts("G135")
async def test_person_logs_in_by_a_link_and_the_turn_goes_on(office: Office) -> None:
    client = await office.client()
    async with (
        office.worker(LOG_IN, LUNCH, DONE).running(client.temporal),
        served(client, name="root") as http,
        httpx.AsyncClient(verify=False, timeout=60) as browser,
    ):
        turn = await office.start(client)
        link = await link_of(http, turn)
        shown = await browser.get(link)
        answer = await browser.get(await returned(await begun(browser, link)))
        report = await turn.result()

        async def decisions() -> list[tuple[str | None, str | None]]:
            since = datetime.now(UTC) - timedelta(minutes=5)
            audit = client.audit(since, subject=office.home.subject)
            return [(one.by, one.via) async for one in audit if one.act == "answer"]

        await until(decisions)  # Temporal's list may lag behind
        decided = await decisions()
        again = await http.post(f"/v1/turns/{turn.id}/login", json={"call_id": "call_1_1"})

    assert f"on behalf of {office.home.subject}" in shown.text
    assert office.calendar.url in shown.text
    assert "form-action 'none'" in shown.headers["content-security-policy"]
    assert "You are logged in" in answer.text
    assert report.output == "noted"
    assert decided == [(office.home.subject, "page")]
    assert office.calendar.events == {"anna": ["Lunch"]}
    assert told(again)[0] == 422


@pytest.mark.accepts("G135")
async def test_login_ends_in_the_browser_in_which_it_was_begun(office: Office) -> None:
    """Nobody is sent into the login of another person's turn: not past the page that says whose
    it is, and not with a code that another browser has brought.
    """
    client = await office.client()
    async with (
        office.worker(LOG_IN, LUNCH, DONE).running(client.temporal),
        served(client, name="root") as http,
        httpx.AsyncClient(verify=False, timeout=60) as browser,
        httpx.AsyncClient(verify=False, timeout=60) as other,
    ):
        turn = await office.start(client)
        link = await link_of(http, turn)
        skipped = await other.get(link.replace("/connect?", "/connect/begin?"))
        back = await returned(await begun(browser, link))
        refused = await other.get(back)
        still = await login_of(turn)
        forged = await browser.get(back.replace("state=", "state=A"))
        await turn.cancel()

    assert (skipped.status_code, skipped.headers["location"]) == (
        303,
        link.split(str(http.base_url).rstrip("/"))[-1],
    )
    assert refused.status_code == forged.status_code == 403
    assert "not begun in this browser" in refused.text
    assert still
    assert office.home.store.secret(office.home.subject, f"tokens {office.calendar.url}") is None


@pytest.mark.accepts("G135")
async def test_link_is_for_who_may_decide_and_shows_errors(office: Office) -> None:
    client = await office.client()
    async with (
        office.worker(LOG_IN, LUNCH, DONE).running(client.temporal),
        served(client, name="root") as http,
        httpx.AsyncClient(verify=False, timeout=60) as browser,
    ):
        turn = await office.start(client)
        waiting, _ = await login_of(turn)
        body = {"call_id": waiting.call_id}
        reader = await http.post(f"/v1/turns/{turn.id}/login", json=body, headers=as_("rita"))
        nobody = await http.post(f"/v1/turns/{turn.id}/login", json={"call_id": "another"})
        wrong = await browser.get(f"{http.base_url}/connect?ticket=abc")
        link = await link_of(http, turn)
        office.issuer.person = None
        declined = await browser.get(await returned(await begun(browser, link)))
        for name in ("oauth-authorization-server", "openid-configuration"):
            office.issuer.replies[f"/.well-known/{name}"] = 500, b"{}"
        office.issuer.person = {"sub": "anna"}
        async with httpx.AsyncClient(verify=False, timeout=60) as another:
            down = await begun(another, link)
        await turn.cancel()

    assert told(reader)[0] == 403
    assert told(nobody)[0] == 422
    assert (wrong.status_code, "not valid any more" in wrong.text) == (410, True)
    assert (down.status_code, "Nobody is logged in" in down.text) == (502, True)
    assert (declined.status_code, "Nobody is logged in" in declined.text) == (502, True)


@pytest.mark.accepts("G135")
async def test_person_of_a_tenant_logs_in_for_the_turns_of_the_tenant(office: Office) -> None:
    """The link of another tenant's turn is not given; the page has the name without the tenant."""
    client = await office.client()
    async with (
        office.worker(LOG_IN, LUNCH, DONE).running(client.temporal),
        served(client) as http,
        httpx.AsyncClient(verify=False, timeout=60) as browser,
    ):
        body = {"agent": "secretary", "task": "Note it.", "subject": office.home.subject}
        started = (await http.post("/v1/turns", json=body)).json()
        turn = client.turn(f"@acme/{started['id'].removeprefix('@acme/')}")
        waiting, _ = await login_of(turn)
        asked = {"call_id": waiting.call_id}
        stranger = await http.post(f"/v1/turns/{turn.id}/login", json=asked, headers=as_("otto"))
        link = await link_of(http, turn)
        shown = await browser.get(link)
        answer = await browser.get(await returned(await begun(browser, link)))
        await turn.result()

    assert told(stranger)[0] == 404
    assert f"on behalf of {office.home.subject}." in shown.text
    assert answer.status_code == 200
