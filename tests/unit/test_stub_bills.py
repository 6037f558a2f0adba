"""The stub provider counts, truncates and charges like a vendor, so that tests can compare its bill
with the product's.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from perdure.testing.stub_provider import (
    LoggedRequest,
    StubBill,
    StubProvider,
    StubReply,
    never_stops,
    per_million,
    read_log,
)

PRICE = per_million("0.50", 2)
ADD: StubReply = {"calls": [{"name": "add", "arguments": {"a": 2}}]}
ANTHROPIC = {"anthropic-version": "2023-06-01"}


def body(text: str = "hi", answered: int = 0, **fields: Any) -> dict[str, Any]:
    """A request with this number of answers in its transcript."""
    return {
        "model": "m",
        "messages": [
            {"role": "user", "content": text},
            *[{"role": "assistant", "content": "ok"}] * answered,
        ],
        **fields,
    }


def ask(
    stub: StubProvider, sent: dict[str, Any], headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """The stub's response to a request."""
    url = f"{stub.anthropic_url}/v1/messages" if headers else f"{stub.base_url}/chat/completions"
    with urlopen(
        Request(url, data=json.dumps(sent).encode(), headers=headers or {}), timeout=10
    ) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def choice(answer: dict[str, Any]) -> tuple[Any, ...]:
    """The text of a completion, its number of calls, and its stop reason."""
    only = answer["choices"][0]
    return (
        only["message"]["content"],
        len(only["message"].get("tool_calls", ())),
        only["finish_reason"],
    )


# Limits


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("reply", "limit", "said"),
    [
        ({"text": "one two three"}, 4, ("one two three", 0, "stop")),
        ({"text": "one two three"}, 3, ("one two thre", 0, "length")),
        ({"text": "ééé"}, 1, ("éé", 0, "length")),
        ({"text": "aé€"}, 1, ("aé", 0, "length")),
        ({"text": "one", **ADD}, 4, ("one", 1, "tool_calls")),
        ({"text": "one", **ADD}, 3, ("one", 0, "length")),
        ({"calls": [*ADD["calls"], *ADD["calls"]]}, 5, (None, 1, "length")),
    ],
)
def test_answer_ends_at_the_limit_of_the_request(
    field: str, reply: StubReply, limit: int, said: tuple[Any, ...]
) -> None:
    """A token is four bytes; a call that does not fit is left out."""
    with StubProvider([reply]) as stub:
        answer = ask(stub, {**body(), field: limit})

    assert choice(answer) == said


def test_cut_answer_says_so_in_the_words_of_the_responses_api() -> None:
    """As incomplete, with the reason."""
    with StubProvider([{"text": "one two three", **ADD}], price=PRICE) as stub:
        sent = json.dumps({"model": "m", "input": "hi", "max_output_tokens": 2}).encode()
        with urlopen(Request(f"{stub.base_url}/responses", data=sent), timeout=60) as response:
            answer = json.load(response)

    assert [part["text"] for item in answer["output"] for part in item["content"]] == ["one two "]
    assert (answer["status"], answer["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert answer["usage"]["output_tokens"] == 2


def test_cut_answer_says_so_in_the_words_of_messages() -> None:
    """Its usage equals the limit."""
    with StubProvider([{"text": "one two three", **ADD}], price=PRICE) as stub:
        answer = ask(stub, body(max_tokens=2), ANTHROPIC)

    assert (answer["content"], answer["stop_reason"]) == (
        [{"type": "text", "text": "one two "}],
        "max_tokens",
    )
    assert answer["usage"]["output_tokens"] == 2


@pytest.mark.parametrize(
    ("size", "limit", "tokens"), [(40, None, 5), (40, 10, 5), (40, 9, 9), (40, 2, 2), (16, 4, 4)]
)
def test_usage_of_a_stub_without_a_price_is_within_the_limit(
    size: int, limit: int | None, tokens: int
) -> None:
    """5 tokens for any whole answer, never more than the limit; the whole limit for a truncated
    one.
    """
    with StubProvider([{"text": "x" * size}]) as stub:
        answer = ask(stub, body(max_tokens=limit))

    assert answer["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": tokens,
        "total_tokens": 10 + tokens,
    }


# Bills


def test_every_request_is_charged_by_what_it_takes_and_says() -> None:
    """The usage in the answer, the stub's own list and its sum agree."""
    sent = [body(), body("x" * 4000, answered=1, max_tokens=2)]
    taken = [-(-len(json.dumps(request)) // 4) for request in sent]
    with StubProvider([{"text": "one", **ADD}, {"text": "one two three"}], price=PRICE) as stub:
        answers = [ask(stub, request) for request in sent]

    bills = [StubBill(taken[0], 4, PRICE(taken[0], 4)), StubBill(taken[1], 2, PRICE(taken[1], 2))]
    assert stub.bills == bills
    assert stub.spent == bills[0].usd + bills[1].usd > 0
    assert [
        (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])
        for answer in answers
    ] == [(taken[0], 4), (taken[1], 2)]


def test_price_is_for_a_million_tokens_and_exact() -> None:
    """Half a dollar and two dollars."""
    assert (PRICE(1_000_000, 1), PRICE(1, 0)) == (Decimal("0.500002"), Decimal("0.0000005"))


def test_price_can_be_any_function_of_the_tokens() -> None:
    """For instance for a vendor with a price per request."""
    with StubProvider(
        [{"text": "one two"}], price=lambda _, written: Decimal(written) + 10
    ) as stub:
        ask(stub, body())

    assert stub.spent == 12


@pytest.mark.parametrize(
    ("reply", "output_tokens"),
    [
        ({"status": 500, "raw": "no" * 100}, 0),
        ({"status": 307, "raw": "moved"}, 0),
        ({"raw": "<html><body>"}, 3),
        ({"raw": b"x" * 1000}, 20),
    ],
)
def test_error_status_is_free_and_a_broken_answer_is_not(
    reply: StubReply, output_tokens: int
) -> None:
    """A vendor that sends an invalid answer has still generated it."""
    with (
        StubProvider([reply], price=lambda _, written: Decimal(written)) as stub,
        pytest.raises((HTTPError, ValueError)) as caught,
    ):
        ask(stub, body(max_tokens=20))

    if isinstance(caught.value, HTTPError):
        caught.value.close()
    assert ([bill.output_tokens for bill in stub.bills], stub.spent) == (
        [output_tokens],
        Decimal(output_tokens),
    )


def test_request_beyond_the_script_is_free() -> None:
    """It is refused."""
    with StubProvider([], price=PRICE) as stub, pytest.raises(HTTPError) as caught:
        ask(stub, body())

    caught.value.close()
    assert stub.bills == [StubBill()]


def test_log_tells_the_bill_of_a_request_that_nobody_waited_for(tmp_path: Path) -> None:
    """A killed worker's request is charged as well."""
    log = tmp_path / "requests.jsonl"
    sent = json.dumps(body(max_tokens=3)).encode()
    with StubProvider(
        [{"text": "one two three", "delay_s": 60}], log_path=log, price=PRICE
    ) as stub:
        host, port = stub.anthropic_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(
                b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(sent)
                + sent
            )
            deadline = time.monotonic() + 60
            while not read_log(log) and time.monotonic() < deadline:
                time.sleep(0.01)

    (entry,) = read_log(log)
    taken = -(-len(sent) // 4)
    assert entry == LoggedRequest(
        at=entry.at,
        assistant_messages=0,
        messages=1,
        sha256=entry.sha256,
        limit=3,
        input_tokens=taken,
        output_tokens=3,
        usd=PRICE(taken, 3),
    )


# An endless model


def test_model_that_never_stops_asks_for_its_tool_each_time() -> None:
    """Each call has its own id; the script comes first."""
    with StubProvider([{"text": "one"}], then=never_stops("look", at="x")) as stub:
        answers = [ask(stub, body(answered=answered)) for answered in (0, 1, 50)]

    assert [choice(answer) for answer in answers] == [
        ("one", 0, "stop"),
        (None, 1, "tool_calls"),
        (None, 1, "tool_calls"),
    ]
    assert [
        call for answer in answers[1:] for call in answer["choices"][0]["message"]["tool_calls"]
    ] == [
        {
            "id": f"call_{answered}_0",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at": "x"}'},
        }
        for answered in (1, 50)
    ]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[str]:
    """The base URL of a charging stub without a script, in its own process."""
    command = [
        sys.executable,
        "-m",
        "perdure.testing.stub_provider",
        "--never-stops",
        "look",
        "--price",
        "0.50",
        "2",
        "--log",
        "requests.jsonl",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running.stdout.readline().strip()
        finally:
            running.kill()


def test_process_charges_and_never_stops(process: str, tmp_path: Path) -> None:
    """A crash test reads the bill from its log."""
    sent = body(answered=7)
    with urlopen(
        Request(f"{process}/chat/completions", data=json.dumps(sent).encode()), timeout=10
    ) as response:
        answer = json.load(response)

    (entry,) = read_log(tmp_path / "requests.jsonl")
    assert choice(answer) == (None, 1, "tool_calls")
    assert (
        entry.usd
        == PRICE(answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])
        > 0
    )
