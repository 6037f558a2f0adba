"""The rate of requests: of callers, and of addresses without a valid token."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import httpx
import pytest

from perdure import Agent, errors, limits
from perdure.clients.gateway import A2AAgent, Rate
from perdure.clients.gateway.rates import Buckets
from perdure.testing import FakeIssuer, ScriptedModel

from ...conftest import Runtime
from ...support.gateway.identity import access, bearer, guarded
from ...support.gateway.served import as_, served, told

DESK = Agent(name="desk", model="main")
ABOUT = "/v1/about"


@pytest.mark.accepts("G80")
async def test_caller_beyond_its_rate_is_told_to_wait(runtime: Runtime) -> None:
    """Each caller has its own; what is open to everybody is not counted."""
    rate = Rate(2, timedelta(hours=1))
    async with runtime(DESK, model=ScriptedModel()) as client, served(client, rate=rate) as http:
        answers = [await http.get(ABOUT) for _ in range(3)]
        other = await http.get(ABOUT, headers=as_("rita"))
        open_to_all = [await http.get("/healthz") for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert told(answers[2]) == (429, "TOO_MANY_REQUESTS")
    assert 0 < int(answers[2].headers["retry-after"]) <= 1_800
    assert other.status_code == 200
    assert {answer.status_code for answer in open_to_all} == {200}


@pytest.mark.accepts("G80")
async def test_address_without_a_token_has_the_same_rate(runtime: Runtime) -> None:
    """Those with one are not held up by it, nor by those with a wrong one."""
    rate = Rate(2, timedelta(hours=1))
    async with runtime(DESK, model=ScriptedModel()) as client, served(client, rate=rate) as http:
        del http.headers["Authorization"]
        nobody = [await http.get(ABOUT) for _ in range(3)]
        wrong = [await http.get(ABOUT, headers=as_("eve")) for _ in range(3)]
        anna = await http.get(ABOUT, headers=as_("anna"))

    assert [answer.status_code for answer in nobody] == [401, 401, 429]
    assert {answer.status_code for answer in wrong} == {401}
    assert anna.status_code == 200


@pytest.mark.accepts("G80")
async def test_refusal_has_the_form_of_each_protocol(runtime: Runtime) -> None:
    """The clients of OpenAI's API are told that they may try again."""
    rate = Rate(1, timedelta(hours=1))
    agents = [A2AAgent("desk", "A desk.")]
    async with (
        runtime(DESK, model=ScriptedModel()) as client,
        served(client, rate=rate, a2a_agents=agents) as http,
    ):
        await http.get(ABOUT)
        refused = {
            path: await http.post(path, json={})
            for path in ("/openai/v1/responses", "/agui/desk", "/a2a/desk", "/mcp", "/v1/turns")
        }
        stream = await http.get("/v1/turns/none/events")

    assert {answer.status_code for answer in [*refused.values(), stream]} == {429}
    assert all("retry-after" in answer.headers for answer in [*refused.values(), stream])
    openai = refused.pop("/openai/v1/responses")
    assert openai.json()["error"]["type"] == "rate_limit_error"
    assert openai.headers["x-should-retry"] == "true"
    assert {told(answer) for answer in [*refused.values(), stream]} == {(429, "TOO_MANY_REQUESTS")}


@pytest.mark.accepts("G80")
async def test_people_of_a_provider_are_counted_by_who_they_are(runtime: Runtime) -> None:
    """Not by their names, which two of them may share, nor by their tokens."""
    with FakeIssuer() as issuer:
        rate = Rate(2, timedelta(hours=1))
        async with (
            runtime(DESK, model=ScriptedModel()) as client,
            guarded(client, issuer, rate=rate) as http,
        ):
            anna = [await http.get(ABOUT, headers=access(issuer)) for _ in range(3)]
            namesake = await http.get(ABOUT, headers=access(issuer, sub="u-2"))

    assert [answer.status_code for answer in anna] == [200, 200, 429]
    assert namesake.status_code == 200


@pytest.mark.accepts("G81")
async def test_flood_of_bad_tokens_does_not_keep_good_callers_out(runtime: Runtime) -> None:
    """Of the same address, as behind a proxy; the flood is told to wait, and nothing is fetched."""
    with FakeIssuer() as issuer:
        async with (
            runtime(DESK, model=ScriptedModel()) as client,
            guarded(client, issuer) as http,
        ):
            http.timeout = httpx.Timeout(60)
            read = len(issuer.requests)
            bad = [*[access(issuer, iss="https://evil.example")] * 60, *[bearer("x.y.z")] * 60]
            flood = asyncio.gather(*(http.get(ABOUT, headers=one) for one in bad))
            good = [await http.get(ABOUT, headers=access(issuer)) for _ in range(5)]
            answers = await flood
            after = await http.get(ABOUT, headers=bearer("x.y.z"))
            fetched = issuer.requests[read:]

    assert {answer.status_code for answer in good} == {200}
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {401, 429}
    assert statuses.count(401) >= limits.HTTP_FAILURES
    assert all("retry-after" in one.headers for one in answers if one.status_code == 429)
    assert after.status_code in (401, 429)
    assert fetched == []


@pytest.mark.accepts("G80")
@pytest.mark.parametrize("text", ["", "20", "0/s", "-1/s", "20/d", "1.5/s", "20/s "])
def test_rate_that_is_none_is_refused(text: str) -> None:
    """With how to write it."""
    with pytest.raises(errors.ConfigurationError, match="rate"):
        Rate.of(text)


@pytest.mark.accepts("G80")
def test_rate_is_a_number_in_a_time() -> None:
    """By second, minute and hour."""
    assert [Rate.of(text) for text in ("20/s", "600/min", "5000/h")] == [
        Rate(20),
        Rate(600, timedelta(minutes=1)),
        Rate(5000, timedelta(hours=1)),
    ]


@pytest.mark.accepts("G81")
def test_buckets_have_a_limit() -> None:
    """Those that were not seen for the longest time are forgotten."""
    buckets = Buckets(Rate(1, timedelta(hours=1)), at_most=10)
    for number in range(100):
        buckets.take(number)

    assert buckets.take(99) > 0
    assert buckets.take(0) == 0
