"""Rows of the table of bad inputs: replies of a provider, each in all three APIs."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from itertools import product
from typing import Any

from perdure import AgentReport, Budget, errors, limits
from perdure.activities.providers.lenient_json import MOST_TOKENS
from perdure.testing.stub_provider import StubReply
from perdure.values.reports import StopReason

from ..loopback import Vendor, error_body
from ..thorough import SHARE
from .bench import APIS, Answers, BadInput, Bench, End, Fails, Outcome, Told, all_of
from .odd_bodies import DIALECTS, ODD, UNREADABLE, Dialect, usage

PASSES = Fails(errors.LLMUnavailableError, after="its retries")
"""It may pass, so the turn asks again."""

EMPTY = Fails(errors.LLMUnavailableError, after="a second attempt")
"""The provider answers, but with nothing, so the turn asks once more."""

Tried = Callable[[Bench], Awaitable[Sequence[End]]]


def by_apis(
    one: Callable[[Bench, Vendor, Any], Coroutine[Any, Any, End]], variants: Sequence[Any]
) -> Tried:
    """Every API with one of the variants, and every variant; in thorough runs, all pairs."""
    pairs = list(product(APIS, variants))
    if SHARE < 1:
        pairs = [
            (APIS[place % 3], variants[place % len(variants)])
            for place in range(max(3, len(variants)))
        ]
    return lambda bench: all_of(*(one(bench, api, variant) for api, variant in pairs))


def reply(*replies: StubReply) -> Tried:
    """A provider that gives one of these replies, in any API."""
    return by_apis(lambda bench, api, given: bench.served(api, given), replies)


def body(*bodies: bytes) -> Tried:
    """A provider that answers 200 with one of these bodies."""
    return reply(*(StubReply(raw=one) for one in bodies))


def says(*made: Callable[[Dialect], bytes]) -> Tried:
    """A provider that answers with one of these texts, in the form of its API."""
    return by_apis(
        lambda bench, api, make: bench.served(api, {"raw": make(DIALECTS[api.name])}), made
    )


def asks(**fields: bytes) -> Tried:
    """A provider that answers with a tool call of these fields."""
    return says(lambda api: api.answer(calls=api.call(**fields)))


def sends(*payloads: bytes, then: bytes = b"", every_s: float = 0, **fields: Any) -> Tried:
    """A server that sends these bytes, which may be invalid HTTP."""
    return by_apis(
        lambda bench, api, sent: bench.sent(api, sent, then, every_s, **fields), payloads
    )


def streams(*replies: StubReply) -> Tried:
    """A provider that answers a request for a stream with one of these."""
    return by_apis(lambda bench, api, given: bench.served(api, given, live=True), replies)


def row(number: int, words: str, outcome: Outcome, tried: Tried) -> BadInput:
    return BadInput(number, "provider", words, outcome, tried)


def is_counted(report: AgentReport) -> bool:
    """No number of tokens is negative or absurd."""
    return all(0 <= number <= MOST_TOKENS for number in report.usage.model_dump().values())


def has_ids(report: AgentReport) -> bool:
    """Every call has a unique id."""
    asked = [call.id for step in report.steps for call in step.message.calls]
    return len(set(asked)) == len(asked) == 2 and "" not in asked


OK = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(b" " * (limits.PROVIDER_BODY_BYTES * 5), 1)
EVENTS = {"content-type": "text/event-stream"}

REPLIES = [
    row(1, "an empty body", PASSES, body(b"")),
    row(2, "a page of HTML", PASSES, body(b"<html><body>Welcome</body></html>")),
    row(3, "JSON that ends in the middle", PASSES, body(b'{"content": [{"type": "te')),
    row(
        4,
        "JSON that is not an object: `null`, a list, a number",
        PASSES,
        body(b"null", b"[]", b"5"),
    ),
    row(5, "an empty object", PASSES, body(b"{}")),
    row(6, "bytes that are not UTF-8", PASSES, body(b'{"content": "\xff\xfe"}')),
    row(
        7,
        "an integer of 5,000 digits",
        PASSES,
        says(lambda api: api.answer(usage=usage(UNREADABLE["huge"]))),
    ),
    row(
        8,
        "lists nested 100,000 deep",
        PASSES,
        says(lambda api: api.answer(text=UNREADABLE["deep list"])),
    ),
    row(9, "a body of more than 20 MB", PASSES, body(b" " * (limits.PROVIDER_BODY_BYTES + 1))),
    row(
        10,
        "100 KB of gzip that unpack to 100 MB",
        PASSES,
        reply({"raw": BOMB, "headers": {"content-encoding": "gzip"}}),
    ),
    row(
        11,
        "a content encoding that was not asked for, or that the bytes do not have",
        PASSES,
        reply(
            *(
                StubReply(raw=b"x", headers={"content-encoding": one})
                for one in ("br", "gzip, gzip", "gzip")
            )
        ),
    ),
    row(12, "bytes that are not HTTP", PASSES, sends(b"nonsense\r\n\r\n")),
    row(
        13,
        "a connection that ends before the reply does",
        PASSES,
        sends(b"", OK + b"content-length: 100\r\n\r\n{"),
    ),
    row(14, "an endless body", PASSES, sends(OK + b"\r\n", then=b" " * 1_000_000)),
    row(
        15,
        "a body that arrives byte by byte until the time budget is spent",
        Fails(errors.TurnBudgetExceededError),
        sends(OK + b"\r\n{", then=b" ", every_s=0.01, budget=Budget(time=timedelta(seconds=3))),
    ),
    row(
        16,
        "a redirect to another host",
        Fails(errors.LLMInvalidRequestError),
        reply({"status": 307, "raw": "", "headers": {"location": "http://127.0.0.1:9/v1"}}),
    ),
    row(
        17,
        "status 401 with HTML for a body",
        Fails(errors.LLMAuthError),
        reply({"status": 401, "raw": b"\xff<html>"}),
    ),
    row(
        18,
        "status 429 with a `Retry-After` that is not a valid time",
        Fails(errors.LLMRateLimitError, after="its retries"),
        reply(
            *(
                error_body(429, {"message": "slow down"}, retry_after=after)
                for after in ("soon", "-5", "nan", "1e999")
            )
        ),
    ),
    row(
        19,
        "status 500 with a body of 1 MB",
        PASSES,
        reply({"status": 500, "raw": b"x" * 1_000_000}),
    ),
    row(
        20,
        "status 400 with a message that is a lone surrogate, `NaN` or nested 500 deep",
        Fails(errors.LLMInvalidRequestError),
        reply(
            *(
                StubReply(
                    status=400, raw=b'{"error": {"message": %b, "code": %b}}' % (ODD[odd], ODD[odd])
                )
                for odd in ("surrogate", "nan", "nested")
            )
        ),
    ),
    row(
        21,
        "an answer with neither text nor tool calls",
        EMPTY,
        says(lambda api: api.answer(text=b'""')),
    ),
    row(22, "a number instead of the text", EMPTY, says(lambda api: api.answer(text=b"5"))),
    row(
        23,
        "an answer with a lone surrogate",
        Answers("`?` replaces the surrogate", lambda report: report.output == "a?b"),
        says(lambda api: api.answer(text=ODD["surrogate"])),
    ),
    row(
        24,
        "an answer with a NUL character",
        Answers("the character is kept", lambda report: report.output == "a\0b"),
        says(lambda api: api.answer(text=ODD["nul"])),
    ),
    row(
        25,
        "an unknown stop reason",
        Answers(
            "the stop reason of the step is `other`",
            lambda report: report.steps[0].stop == StopReason.OTHER,
        ),
        says(lambda api: api.answer(stop=b'"bored"')),
    ),
    row(
        26,
        "usage that is negative, infinite, or 31 digits long",
        Answers("each token count is a plausible number", is_counted),
        says(
            *(
                lambda api, odd=odd: api.answer(usage=usage(ODD[odd]))
                for odd in ("negative", "infinite", "big")
            )
        ),
    ),
    row(
        27,
        "a model name or a thought that is not a string",
        Answers("the value counts as missing", lambda report: report.output == "hi"),
        says(lambda api: api.answer(model=b"5"), lambda api: api.answer(thinking=b"5")),
    ),
    row(28, "a tool call without a name", PASSES, asks(name=b"null")),
    row(
        29,
        "a call to an unknown tool with a NUL character in its name",
        Told("There is no tool named 'a\\x00b'"),
        asks(name=ODD["nul"]),
    ),
    row(
        30,
        "two tool calls without ids",
        Answers("each call gets its own id", has_ids),
        says(lambda api: api.answer(calls=b", ".join([api.call(id=b'""')] * 2))),
    ),
    row(
        31,
        "arguments nested 500 deep",
        Told("arguments: Invalid JSON: recursion limit exceeded"),
        asks(arguments=b'{"note": ' + ODD["nested"] + b"}"),
    ),
    row(
        32,
        "a stream that ends in the middle",
        PASSES,
        streams(*(StubReply(text="as good as gold", cut_after=after) for after in (0, 1, 3))),
    ),
    row(
        33,
        "a stream with an error event in the middle",
        PASSES,
        streams({"text": "as good as gold", "error_after": 3}),
    ),
    row(
        34,
        "a stream with an event that is not JSON, or larger than 5 MB",
        PASSES,
        streams(
            *(
                StubReply(raw=one, headers=EVENTS)
                for one in (b'data: {"a\n\n', b"data: " + b"x" * 5_000_001)
            )
        ),
    ),
]
