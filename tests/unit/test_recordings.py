"""Every recorded reply of a supported API, sent by a server on loopback to the real client, and
broken variants of the replies.

The result is an answer that can be stored, or a typed error, promptly. The content of each
recording is tested with its API. Streams have tests of their own. See `recordings.py` for the
format and the folder.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from perdure.activities.provider import ModelRequest
from perdure.activities.providers.lenient_json import MOST_TOKENS
from perdure.errors import LLMError
from perdure.testing.stub_provider import StubProvider, StubReply
from perdure.values.answers import ModelAnswer

from ..support.loopback import ANTHROPIC, HELLO, OPENAI, RESPONSES, Vendor
from ..support.recordings import Exchange, as_reply, whole
from ..support.thorough import some

PROMPTLY_S = 20.0
AT_ONCE = 4
CUTS = 8
REPEATED = ("text", "tools")
"""Fields of the request that the responses API repeats."""

HERE = "the place"
ODD = {
    "missing": None,
    "null": b"null",
    "true": b"true",
    "words": b'"x"',
    "no words": b'""',
    "half a character": rb'"a\ud800b"',
    "NUL": rb'"\u0000"',
    "negative": b"-5",
    "fraction": b"2.5",
    "big": b"1" + b"0" * 30,
    "infinite": b"-1e999",
    "not a number": b"NaN",
    "list": b"[]",
    "list of lists": b"[[]]",
    "object": b"{}",
    "nested": b'{"a":' * 400 + b"1" + b"}" * 400,
}
"""Values for a position where another value is expected, or no value at all."""

APIS = {"chat": OPENAI, "messages": ANTHROPIC, "responses": RESPONSES}
each_api = pytest.mark.parametrize("api", APIS)

Said = Callable[[str, object], None]
Place = tuple[str | int, ...]
Ends = dict[str, ModelAnswer | BaseException]


class Replay(StubProvider):
    """Answers a request with the reply named after its model."""

    def __init__(self, replies: Mapping[str, StubReply]) -> None:
        super().__init__([])
        self._by_name = replies

    def reply(self, body: Mapping[str, Any]) -> StubReply | None:
        """The reply of this name."""
        return self._by_name[body["model"]]


async def ends(vendor: Vendor, replies: Mapping[str, StubReply]) -> Ends:
    """The results of requests with these replies, each in time, with one client."""
    turns = asyncio.Semaphore(AT_ONCE)
    with Replay(replies) as stub:
        provider = vendor.make(stub.anthropic_url, None)

        async def end(request: ModelRequest) -> ModelAnswer:
            async with turns, asyncio.timeout(PROMPTLY_S):
                return await provider.complete(request)

        found = await asyncio.gather(
            *(end(replace(HELLO, model=name)) for name in replies), return_exceptions=True
        )
        await provider.close()
    return dict(zip(replies, found, strict=True))


def recordings(api: str) -> dict[str, Exchange]:
    """The recorded exchanges of an API, by name."""
    found = dict(whole(api, APIS[api].path))
    return found or pytest.skip(
        "PERDURE_RECORDINGS is not set to the absolute path of a folder with recordings of the API"
        f" {api!r}"
    )


def places(value: Any, before: Place = ()) -> Iterator[Place]:
    """Every position in a JSON value."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inside:
        yield (*before, key)
        yield from places(item, (*before, key))


def kind(place: Place) -> str:
    """The name of a position, without indexes of lists."""
    return ".".join("*" if isinstance(key, int) else key for key in place)


def broken(body: Any, place: Place, odd: bytes | None) -> bytes:
    """The body with another value at this position."""
    copy = json.loads(json.dumps(body))
    holder = copy
    for key in place[:-1]:
        holder = holder[key]
    if odd is None:
        del holder[place[-1]]
    else:
        holder[place[-1]] = HERE
    return json.dumps(copy).encode().replace(json.dumps(HERE).encode(), odd or b"")


def not_typed(found: Ends) -> dict[str, str]:
    """The result if it is neither an answer that can be stored nor one of our errors."""
    return {
        name: repr(end)
        for name, end in found.items()
        if not (isinstance(end, LLMError) or is_stored(end))
    }


def is_stored(end: object) -> bool:
    """Whether an answer survives the way through history unchanged, with plausible token counts."""
    if not isinstance(end, ModelAnswer):
        return False
    kept = ModelAnswer.model_validate_json(end.model_dump_json())
    return kept == end and all(0 <= tokens <= MOST_TOKENS for _, tokens in kept.usage)


def count(found: Ends) -> dict[str, int]:
    """The number of answers, and of errors of each class."""
    return dict(
        Counter(
            "answers" if isinstance(end, ModelAnswer) else type(end).__name__
            for end in found.values()
        )
    )


@pytest.mark.table(1)
@pytest.mark.accepts("M5")
@each_api
async def test_every_recorded_reply_is_an_answer_or_a_typed_error(
    api: str, record_property: Said
) -> None:
    """A reply without an error is an answer, except for a background response; every other one is
    an error with its status.
    """
    recorded = recordings(api)
    found = await ends(
        APIS[api], {name: as_reply(exchange["response"]) for name, exchange in recorded.items()}
    )
    record_property("replayed", count(found))
    print(f"{len(found)} recorded replies of the API {api!r} served over HTTP: {count(found)}")

    assert not_typed(found) == {}
    promised = {
        name
        for name, exchange in recorded.items()
        if exchange["response"]["body"].get("status") == "queued"
    }
    fine = {
        name for name, exchange in recorded.items() if exchange["response"]["status"] == 200
    } - promised
    assert {name for name, end in found.items() if isinstance(end, ModelAnswer)} == fine
    assert {
        name: end.context.get("status", 200)
        for name, end in found.items()
        if isinstance(end, LLMError)
    } == {
        name: exchange["response"]["status"]
        for name, exchange in recorded.items()
        if name not in fine
    }


@pytest.mark.table(1)
@pytest.mark.accepts("M9", "G3")
@each_api
async def test_recorded_reply_with_something_odd_in_any_kind_of_place_is_an_answer_or_a_typed_error(
    api: str, record_property: Said
) -> None:
    """Every kind of position in the recorded bodies of this API, with every odd value; as many of
    them as `thorough` says.
    """
    kinds: dict[str, tuple[Exchange, Place]] = {}
    for exchange in recordings(api).values():
        for place in (
            one for one in places(exchange["response"]["body"]) if one[0] not in REPEATED
        ):
            kinds.setdefault(
                f"{exchange['response']['status'] == 200} {kind(place)}", (exchange, place)
            )
    replies: dict[str, StubReply] = {
        f"{name}: {odd}": {
            **as_reply(exchange["response"]),
            "raw": broken(exchange["response"]["body"], place, ODD[odd]),
        }
        for name, (exchange, place), odd in some(
            [(name, where, odd) for name, where in kinds.items() for odd in ODD]
        )
    }
    found = await ends(APIS[api], replies)
    record_property("broken", count(found))
    print(
        f"{len(found)} broken replies of the API {api!r} ({len(kinds)} kinds of places):"
        f" {count(found)}"
    )

    assert not_typed(found) == {}


@pytest.mark.accepts("M9")
@each_api
@pytest.mark.slow
async def test_recorded_reply_that_is_cut_is_never_an_answer(
    api: str, record_property: Said
) -> None:
    """Each body is truncated at several positions, as far as its server states the length."""
    replies: dict[str, StubReply] = {}
    for name, exchange in recordings(api).items():
        raw = json.dumps(exchange["response"]["body"], ensure_ascii=False).encode()
        for cut in range(CUTS):
            replies[f"{name}: {cut}"] = {
                **as_reply(exchange["response"]),
                "raw": raw[: len(raw) * cut // CUTS],
            }
    found = await ends(APIS[api], replies)
    record_property("cut", count(found))
    print(f"{len(found)} cut replies of the API {api!r}: {count(found)}")

    assert {name: repr(end) for name, end in found.items() if not isinstance(end, LLMError)} == {}
