"""Recorded traffic of providers, served again over real HTTP: what our reading makes of it agrees with an independent one.

PERDURE_RECORDINGS names the folder: files of `{provider, api, interactions: [{request, response: {status, headers, body}}]}`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import errors
from perdure.activities.models import ModelRequest
from perdure.activities.providers import OpenAIChat
from perdure.errors import LLMError
from perdure.messages import UserMessage
from perdure.reports import StopReason
from perdure.testing.stub_provider import Reply, StubProvider
from perdure.wire import ModelAnswer

STOPS = {"stop": StopReason.END, "length": StopReason.MAX_TOKENS, "tool_calls": StopReason.TOOL_CALLS}
CLASSES = {
    400: errors.LLMInvalidRequestError,
    401: errors.LLMAuthError,
    404: errors.LLMInvalidRequestError,
    429: errors.LLMRateLimitError,
}
CLASSES_BY_CODE = {"content_filter": errors.LLMRefusedError, "tool_use_failed": errors.LLMUnavailableError}


def recorded() -> Iterator[Any]:
    """Every recorded exchange with a chat completions API that is no stream; one skipped parameter, saying why, where there are none."""
    folder = Path(os.environ.get("PERDURE_RECORDINGS", ""))
    files = sorted(folder.glob("*__chat__*.json")) if folder.is_absolute() else []
    for file in files:
        for index, exchange in enumerate(json.loads(file.read_text(encoding="utf-8"))["interactions"]):
            if is_whole_chat(exchange):
                yield pytest.param(exchange["response"], id=f"{file.stem.replace('__chat__', '-')}-{index}")
    if not files:
        reason = "PERDURE_RECORDINGS is not set to the absolute path of a folder with recordings of chat APIs"
        yield pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")


def is_whole_chat(exchange: dict[str, Any]) -> bool:
    """Leaves out streams, exchanges with other hosts in the same file, and those whose answer was not recorded."""
    response = exchange["response"]
    is_stream = isinstance(response["body"], str) and response["body"].lstrip().startswith(("data:", ":"))
    return response["status"] is not None and not is_stream and "/chat/completions" in exchange["request"]["uri"]


async def replay(response: dict[str, Any]) -> ModelAnswer:
    """What our provider makes of a recorded response."""
    framing = ("content-length", "transfer-encoding", "content-encoding", "connection")
    headers = {name: value for name, value in response["headers"].items() if name.lower() not in framing}
    body = response["body"]
    reply: Reply = {"status": response["status"], "headers": headers, "raw": body if isinstance(body, str) else json.dumps(body)}
    with StubProvider([reply]) as stub:
        provider = OpenAIChat(base_url=stub.base_url, api_key_env=None)
        try:
            return await provider.complete(ModelRequest(model="asked", messages=(UserMessage.of("hello"),)))
        finally:
            await provider.close()


def expected_error(response: dict[str, Any]) -> type[LLMError] | None:
    """The class that a recorded response stands for, None for an answer."""
    error = response["body"].get("error")
    if error is None:
        return None
    return CLASSES_BY_CODE.get(error.get("code")) or CLASSES[response["status"]]


def words(message: dict[str, Any]) -> str:
    """What a recorded message says."""
    content = message.get("refusal") or message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content if part["type"] == "text")


def cached(usage: dict[str, Any]) -> int:
    """Tokens read from a cache, wherever a provider puts their number."""
    number: int = usage.get("prompt_tokens_details", {}).get("cached_tokens") or usage.get("num_cached_tokens") or 0
    return number


@pytest.mark.accepts("M5")
@pytest.mark.parametrize("response", list(recorded()))
async def test_recorded_response_is_read_as_it_was_meant(response: dict[str, Any]) -> None:
    """Message, stop reason, usage and model of an answer; the class of an error."""
    cls = expected_error(response)
    if cls is not None:
        with pytest.raises(LLMError) as caught:
            await replay(response)

        assert type(caught.value) is cls
        assert response["body"]["error"]["message"][:100] in caught.value.message
        return
    choice, usage = response["body"]["choices"][0], response["body"]["usage"]
    message, read = choice["message"], cached(usage)

    answer = await replay(response)

    assert answer.message.text == words(message)
    assert [(call.id, call.name, call.arguments) for call in answer.message.calls] == [
        (call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []
    ]
    assert answer.stop is (StopReason.REFUSED if message.get("refusal") else STOPS[choice["finish_reason"]])
    assert answer.usage.input_tokens == (usage["prompt_tokens"] if read <= usage["prompt_tokens"] else usage["prompt_tokens"] + read)
    assert (answer.usage.output_tokens, answer.usage.cache_read_tokens) == (usage["completion_tokens"], read)
    assert answer.model == response["body"]["model"]
