"""The signatures of deliveries to hooks, with the examples of those who have specified them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.clients.gateway.hooks.schemes import SCHEMES, SchemeName
from perdure.clients.gateway.problems import RefusedError

from ..support.gateway.hooks import SECRETS, SIGNED

SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554"
    b"%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
EXAMPLES: dict[SchemeName, tuple[str, dict[str, str], bytes]] = {
    # the specification of Standard Webhooks, as its libraries test it
    "standard-webhooks": (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        b'{"test": 2432232314}',
    ),
    # GitHub's page "Validating webhook deliveries"
    "github": (
        "It's a Secret to Everybody",
        {
            "x-hub-signature-256": "sha256="
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        },
        b"Hello, World!",
    ),
    # made with the package stripe 16.1.0, as Stripe's page has no signature that can be verified
    "stripe": (
        "whsec_test_secret",
        {
            "stripe-signature": "t=1492774577,"
            "v1=0feb047bc9c89159f7f69f5ca1f410b2964c3f0eca05345e72e58ccbd4bd329c,"
            "v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
        },
        b'{"id": "evt_test", "object": "event"}',
    ),
    # Slack's page "Verifying requests from Slack"
    "slack": (
        "8f742231b10e8888abcd99yyyzzz85a5",
        {
            "x-slack-request-timestamp": "1531420618",
            "x-slack-signature": "v0="
            "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        },
        SLACK_BODY,
    ),
}


@pytest.mark.parametrize("verify", EXAMPLES)
@pytest.mark.accepts("K1")
def test_published_example_is_verified_and_nothing_like_it(verify: SchemeName) -> None:
    """Another byte, another secret and another signature are refused; a second secret is tried."""
    secret, headers, body = EXAMPLES[verify]
    scheme = SCHEMES[verify]
    key = scheme.key(secret)
    claim = scheme.claim(headers)
    claim.check_body([key], body)
    claim.check_body([b"another key", key], body)

    for keys, given in (([key], body + b" "), ([key], body[:-1]), ([key[:-1]], body), ([], body)):
        with pytest.raises(RefusedError, match="no signature of the delivery fits"):
            claim.check_body(keys, given)


@pytest.mark.parametrize("verify", ["standard-webhooks", "stripe", "slack"])
@pytest.mark.accepts("K2")
def test_time_of_a_delivery_is_within_the_window(verify: SchemeName) -> None:
    """Which is open in both directions, as clocks differ."""
    signed = SIGNED[verify](b"{}", "m-1", 1_000, SECRETS[verify])
    claim = SCHEMES[verify].claim({name.lower(): value for name, value in signed.items()})
    window = timedelta(minutes=5)
    for now in (700.0, 1_000.0, 1_300.0):
        claim.check_time(now, window)

    for now, words in ((699.0, "301 s ahead"), (1_301.0, "301 s ago")):
        with pytest.raises(RefusedError, match=words):
            claim.check_time(now, window)


INVALID: list[tuple[SchemeName, dict[str, str], str]] = [
    ("standard-webhooks", {}, "no header webhook-id"),
    ("standard-webhooks", {"webhook-id": "a", "webhook-timestamp": "now"}, "not a number"),
    ("standard-webhooks", {"webhook-id": "a", "webhook-timestamp": "-1"}, "not a number"),
    ("standard-webhooks", {"webhook-id": "a", "webhook-timestamp": "1"}, "no header webhook-sig"),
    (
        "standard-webhooks",
        {"webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1,% v2,AAAA é"},
        "no signature that can be read",
    ),
    ("github", {}, "no header X-Hub-Signature-256"),
    ("github", {"x-hub-signature-256": "sha1=00"}, "no signature that can be read"),
    ("github", {"x-hub-signature-256": "sha256=none"}, "no signature that can be read"),
    ("stripe", {}, "no header Stripe-Signature"),
    ("stripe", {"stripe-signature": "v1=00"}, "not a number"),
    ("stripe", {"stripe-signature": "t=1,t=2,v1=00"}, "not a number"),
    ("stripe", {"stripe-signature": "t=1,v0=00"}, "no signature that can be read"),
    ("slack", {}, "no header X-Slack-Request-Timestamp"),
    ("slack", {"x-slack-request-timestamp": "1"}, "no header X-Slack-Signature"),
    (
        "slack",
        {"x-slack-request-timestamp": "1", "x-slack-signature": "v1=00"},
        "no signature that can be read",
    ),
    ("slack", {"x-slack-request-timestamp": "١", "x-slack-signature": "v0=00"}, "not a number"),
]


@pytest.mark.parametrize(("verify", "headers", "words"), INVALID)
@pytest.mark.accepts("K1")
def test_headers_that_are_not_valid_are_refused(
    verify: SchemeName, headers: dict[str, str], words: str
) -> None:
    """Before a body is read."""
    with pytest.raises(RefusedError, match=words) as refused:
        SCHEMES[verify].claim(headers)

    assert refused.value.status == 401
