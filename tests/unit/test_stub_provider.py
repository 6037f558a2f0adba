"""The stub provider's log and replies, also for repeated requests and for callers that disconnect
while waiting.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from perdure.testing.stub_provider import LoggedRequest, StubProvider, read_log

QUESTION = {"role": "user", "content": "What is 2 + 3?"}
ASKED = {
    "role": "assistant",
    "tool_calls": [
        {"id": "call_0_0", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_0_0", "content": "5"}


def post(
    base_url: str,
    *messages: dict[str, Any],
    path: str = "/chat/completions",
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The body of the reply to a request with these messages."""
    body = json.dumps({"model": "m", "messages": messages}).encode()
    with urlopen(
        Request(base_url + path, data=body, headers=dict(headers or {}), method="POST"), timeout=10
    ) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


@pytest.fixture
def process(tmp_path: Path) -> Iterator[str]:
    """The base URL of a stub in its own process."""
    (tmp_path / "script.json").write_text(
        json.dumps([{"calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}, {"text": "five"}])
    )
    command = [
        sys.executable,
        "-m",
        "perdure.testing.stub_provider",
        "--script",
        "script.json",
        "--log",
        "requests.jsonl",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running.stdout.readline().strip()
        finally:
            running.kill()


def test_repeated_request_gets_the_same_reply() -> None:
    """The position in the script is the number of assistant messages, not a counter."""
    with StubProvider(
        [{"calls": [{"name": "add", "arguments": {"a": 2}}]}, {"text": "five"}]
    ) as stub:
        first, again = post(stub.base_url, QUESTION), post(stub.base_url, QUESTION)
        last = post(stub.base_url, QUESTION, ASKED, RESULT)

    assert first == again
    assert first["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_0_0",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a": 2}'},
                    }
                ],
            },
            "finish_reason": "tool_calls",
        }
    ]
    assert last["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "five"}, "finish_reason": "stop"}
    ]
    assert [len(request["messages"]) for request in stub.requests] == [1, 1, 3]


def test_request_with_anthropics_header_is_answered_in_anthropics_shape() -> None:
    """From the same script, with the same ids."""
    asked = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "call_0_0", "name": "add", "input": {"a": 2}}],
    }
    version = {"Anthropic-Version": "2023-06-01"}
    with StubProvider(
        [
            {"text": "Let me add.", "calls": [{"name": "add", "arguments": {"a": 2}}]},
            {"text": "five"},
        ]
    ) as stub:
        first = post(stub.anthropic_url, QUESTION, path="/v1/messages", headers=version)
        last = post(stub.anthropic_url, QUESTION, asked, path="/v1/messages", headers=version)

    assert (first["content"], first["stop_reason"]) == (
        [{"type": "text", "text": "Let me add."}, *asked["content"]],
        "tool_use",
    )
    assert (last["content"], last["stop_reason"], last["usage"]) == (
        [{"type": "text", "text": "five"}],
        "end_turn",
        {"input_tokens": 10, "output_tokens": 5},
    )


def test_request_with_an_input_is_answered_in_the_shape_of_the_responses_api() -> None:
    """From the same script, with the same ids; consecutive items of a model are one answer."""
    words = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Let me add.", "annotations": []}],
    }
    call = {"type": "function_call", "call_id": "call_0_0", "name": "add", "arguments": '{"a": 2}'}
    result = {"type": "function_call_output", "call_id": "call_0_0", "output": "5"}
    items = [QUESTION, {"type": "reasoning", "summary": []}, words, call, call, result]
    with StubProvider(
        [
            {"text": "Let me add.", "calls": [{"name": "add", "arguments": {"a": 2}}]},
            {"text": "five"},
        ]
    ) as stub:
        whole, first, last = (
            respond(stub, given) for given in ("What is 2 + 3?", items[:1], items)
        )

    assert whole == first
    assert (first["output"], first["status"], first["incomplete_details"]) == (
        [words, call],
        "completed",
        None,
    )
    assert (last["output"][0]["content"][0]["text"], last["usage"]) == (
        "five",
        {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
    )


def respond(stub: StubProvider, given: Any) -> dict[str, Any]:
    """The body of the reply to a request with this input."""
    with urlopen(
        Request(
            f"{stub.base_url}/responses", data=json.dumps({"model": "m", "input": given}).encode()
        ),
        timeout=10,
    ) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def stream(base_url: str, **fields: Any) -> bytes:
    """The whole response to a streamed request."""
    body = json.dumps({"model": "m", "messages": [QUESTION], "stream": True, **fields}).encode()
    with urlopen(
        Request(f"{base_url}/chat/completions", data=body, method="POST"), timeout=10
    ) as response:
        assert response.headers["content-type"] == "text/event-stream"
        told: bytes = response.read()
    return told


def test_request_for_a_stream_is_answered_with_events() -> None:
    """Pieces of the text, then the stop reason, the usage if requested, and the end."""
    with StubProvider([{"text": "Good morning"}]) as stub:
        plain, counted = (
            stream(stub.base_url),
            stream(stub.base_url, stream_options={"include_usage": True}),
        )

    events = [json.loads(line[6:]) for line in counted.decode().split("\n\n")[:-2]]
    assert [event["choices"][0]["delta"].get("content") for event in events[:3]] == [
        "",
        "Good mo",
        "rning",
    ]
    assert (events[3]["choices"][0]["finish_reason"], events[4]["usage"]["completion_tokens"]) == (
        "stop",
        5,
    )
    assert counted.endswith(b"data: [DONE]\n\n")
    assert b"usage" not in plain


def test_stream_is_slow_cut_off_or_broken_as_scripted() -> None:
    """One event at a time; a truncated stream just ends, a failing one has an error."""
    with (
        StubProvider([{"text": "Good morning", "pace_s": 0.05, "cut_after": 2}]) as cut,
        StubProvider([{"text": "hi", "error_after": 1}]) as broken,
    ):
        began = time.monotonic()
        half = stream(cut.base_url)
        took = time.monotonic() - began
        failed = stream(broken.base_url)

    assert (half.count(b"data: "), b"[DONE]" in half) == (2, False)
    assert took >= 0.1
    assert failed.count(b"data: ") == 2
    assert json.loads(failed.split(b"data: ")[2])["error"]["message"] == "Overloaded"


def test_request_beyond_the_script_is_refused_with_the_reason() -> None:
    """A turn that is longer than its script fails at once, with the reason."""
    with StubProvider([{"text": "five"}]) as stub, pytest.raises(HTTPError) as caught:
        post(stub.base_url, QUESTION, ASKED, RESULT)

    with caught.value as reply:
        assert (reply.code, json.load(reply)["error"]["message"]) == (
            400,
            "the script has 1 replies, and this request holds 1 assistant messages",
        )


def test_status_headers_and_raw_body_are_served_as_scripted() -> None:
    """Errors and invalid replies of providers can be scripted."""
    with (
        StubProvider([{"status": 503, "headers": {"retry-after": "7"}, "raw": "<html>"}]) as stub,
        pytest.raises(HTTPError) as caught,
    ):
        post(stub.base_url, QUESTION)

    with caught.value as reply:
        assert (reply.code, reply.headers["retry-after"], reply.read()) == (503, "7", b"<html>")


def test_request_is_in_the_log_before_it_is_answered(tmp_path: Path) -> None:
    """A caller that disconnects while it waits is still logged, and breaks nothing."""
    log = tmp_path / "requests.jsonl"
    body = json.dumps({"model": "m", "messages": [QUESTION]}).encode()
    with StubProvider([{"text": "late", "delay_s": 60}], log_path=log) as stub:
        host, port = stub.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(
                b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body)
                + body
            )
            deadline = time.monotonic() + 60
            while not read_log(log) and time.monotonic() < deadline:
                time.sleep(0.01)

    assert [(entry.assistant_messages, entry.messages) for entry in read_log(log)] == [(0, 1)]


def test_log_tells_equal_requests_from_different_ones(tmp_path: Path) -> None:
    """The digest covers only the messages."""
    log = tmp_path / "requests.jsonl"
    with StubProvider([{"text": "five"}], log_path=log) as stub:
        for text in ("a", "a", "b"):
            post(stub.base_url, {"role": "user", "content": text})

    first, second, third = (entry.sha256 for entry in read_log(log))

    assert first == second != third


def test_half_written_last_line_of_a_log_is_left_out(tmp_path: Path) -> None:
    """A log can be read while it is written, or after the stub was killed."""
    log = tmp_path / "requests.jsonl"
    log.write_text(
        '{"at": 1.5, "assistant_messages": 0, "messages": 1, "sha256": "ab"}\n{"at": 2.5, "assi'
    )

    assert read_log(log) == [LoggedRequest(at=1.5, assistant_messages=0, messages=1, sha256="ab")]


def test_log_of_a_stub_that_nobody_asked_is_empty(tmp_path: Path) -> None:
    """There is no file before the first request."""
    assert read_log(tmp_path / "requests.jsonl") == []


def test_stub_runs_as_a_process_and_prints_its_base_url_first(process: str, tmp_path: Path) -> None:
    """A crash test starts it next to the worker, and reads its log afterwards."""
    answers = [post(process, QUESTION), post(process, QUESTION, ASKED, RESULT)]

    assert [answer["choices"][0]["finish_reason"] for answer in answers] == ["tool_calls", "stop"]
    assert [entry.assistant_messages for entry in read_log(tmp_path / "requests.jsonl")] == [0, 1]
