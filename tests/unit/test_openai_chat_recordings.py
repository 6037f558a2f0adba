"""Recorded traffic of chat completions APIs: our parser agrees with an independent one."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import errors
from perdure.errors import LLMError
from perdure.values.reports import StopReason

from ..support.loopback import OPENAI
from ..support.recordings import Exchange, as_reply, recorded

STOPS = {
    "stop": StopReason.END,
    "length": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.TOOL_CALLS,
}
CLASSES = {
    400: errors.LLMInvalidRequestError,
    401: errors.LLMAuthError,
    404: errors.LLMInvalidRequestError,
    429: errors.LLMRateLimitError,
}
CLASSES_BY_CODE = {
    "content_filter": errors.LLMRefusedError,
    "tool_use_failed": errors.LLMUnavailableError,
}


def expected_error(response: dict[str, Any]) -> type[LLMError] | None:
    """The error class of a recorded response, None for an answer."""
    error = response["body"].get("error")
    if error is None:
        return None
    return CLASSES_BY_CODE.get(error.get("code")) or CLASSES[response["status"]]


def words(message: dict[str, Any]) -> str:
    """The text of a recorded message."""
    content = message.get("refusal") or message.get("content") or ""
    return (
        content
        if isinstance(content, str)
        else "".join(part["text"] for part in content if part["type"] == "text")
    )


def cached(usage: dict[str, Any]) -> int:
    """Tokens read from a cache, in any provider's field."""
    number: int = (
        usage.get("prompt_tokens_details", {}).get("cached_tokens")
        or usage.get("num_cached_tokens")
        or 0
    )
    return number


@pytest.mark.table(24)
@pytest.mark.accepts("M5")
@pytest.mark.parametrize("exchange", list(recorded("chat", "/chat/completions")))
async def test_recorded_response_is_read_as_it_was_meant(exchange: Exchange) -> None:
    """Message, stop reason, usage and model of an answer; the class of an error."""
    response = exchange["response"]
    cls = expected_error(response)
    if cls is not None:
        with pytest.raises(LLMError) as caught:
            await OPENAI.ask_served(as_reply(response))

        assert type(caught.value) is cls
        assert response["body"]["error"]["message"][:100] in caught.value.message
        return
    choice, usage = response["body"]["choices"][0], response["body"]["usage"]
    message, read = choice["message"], cached(usage)

    answer = await OPENAI.ask_served(as_reply(response))

    assert answer.message.text == words(message)
    assert [(call.id, call.name, call.arguments) for call in answer.message.calls] == [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or []
    ]
    assert answer.stop is (
        StopReason.REFUSED if message.get("refusal") else STOPS[choice["finish_reason"]]
    )
    assert answer.usage.input_tokens == (
        usage["prompt_tokens"] if read <= usage["prompt_tokens"] else usage["prompt_tokens"] + read
    )
    assert (answer.usage.output_tokens, answer.usage.cache_read_tokens) == (
        usage["completion_tokens"],
        read,
    )
    assert answer.model == response["body"]["model"]
