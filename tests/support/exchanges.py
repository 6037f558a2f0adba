"""Recorded exchanges with models of every API, as the requests and answers of a Perdure agent.

Streamed answers are included because their usage was recorded. Exchanges without usage, and those
that use a vendor's own tools or server-side state, are left out. See `recordings.py` for the format
and the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perdure.activities.providers import anthropic, openai_chat, openai_responses, reasoning
from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.options import RequestOptions
from perdure.values.prices import Price
from perdure.values.reports import Usage

Body = dict[str, Any]

PATHS = {"chat": "/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
USAGE: dict[str, Callable[[Any], Usage]] = {
    "chat": openai_chat.usage_of,
    "messages": anthropic.usage_of,
    "responses": openai_responses.usage_of,
}
LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
OURS = (
    "model",
    "messages",
    "system",
    "tools",
    "input",
    "instructions",
    "store",
    "include",
    "stream",
    "stream_options",
    "temperature",
    *LIMITS,
)


@dataclass(frozen=True)
class Exchange:
    """A recorded request with its answer: the usage, the model that served, and the bill, if the
    vendor reported it.
    """

    name: str
    provider: str
    api: str
    body: Body
    usage: Usage
    served: str
    billed: Decimal | None

    @property
    def target(self) -> str:
        return f"{self.provider}:{self.body['model']}"

    @property
    def output(self) -> int:
        """The output limit; without one in the request, the size of the answer."""
        limit: int = next(
            (self.body[name] for name in LIMITS if self.body.get(name)), self.usage.output_tokens
        )
        return limit

    def agent(self, price: Price | None) -> AgentDefinition:
        """The agent that would send the request. Fields without an option are its `extra`."""
        extra = {key: value for key, value in self.body.items() if key not in OURS}
        return AgentDefinition(
            name="agent",
            instructions=system_of(self.body),
            model=self.target,
            tools=tuple(tool_of(tool) for tool in self.body.get("tools") or ()),
            options=RequestOptions(max_output_tokens=self.output or None, extra=extra),
            price=price,
        )

    @property
    def messages(self) -> list[Message]:
        """The messages; consecutive results are one message, as in Perdure, and so are the items of
        one answer.
        """
        messages: list[Message] = []
        for message in (message_of(item) for item in said_in(self.body) if not is_system(item)):
            before = messages[-1] if messages else None
            if isinstance(message, ToolMessage) and isinstance(before, ToolMessage):
                messages[-1] = ToolMessage(results=(*before.results, *message.results))
            elif (
                "input" in self.body
                and isinstance(message, AssistantMessage)
                and isinstance(before, AssistantMessage)
            ):
                messages[-1] = AssistantMessage(parts=(*before.parts, *message.parts))
            else:
                messages.append(message)
        return messages

    def goes_on(self, before: Exchange) -> bool:
        """Whether it is the next request after `before`: the same messages, an answer, and more."""
        ours, theirs = self.messages, before.messages
        is_same_file = self.name.rpartition("-")[0] == before.name.rpartition("-")[0]
        return (
            is_same_file
            and ours[: len(theirs)] == theirs
            and isinstance(next(iter(ours[len(theirs) :]), None), AssistantMessage)
        )


def exchanges() -> Iterator[Exchange]:
    """Every recorded exchange that has an answer and a usage."""
    folder = Path(os.environ.get("PERDURE_RECORDINGS", ""))
    for file in sorted(folder.glob("*.json")) if folder.is_absolute() else []:
        recording = json.loads(file.read_text(encoding="utf-8"))
        api = recording["api"]
        for index, exchange in enumerate(recording["interactions"]):
            request, response = exchange["request"], exchange["response"]
            if response["status"] == 200 and urlsplit(request["uri"]).path.endswith(
                PATHS.get(api, "no path")
            ):
                answer = merged(response["body"])
                is_told = answer.get("usage") and USAGE[api](answer["usage"]).input_tokens
                if (
                    is_told
                    and not has_vendors_tools(request["body"])
                    and not request["body"].get("previous_response_id")
                ):
                    yield read(
                        f"{file.stem.replace(f'__{api}__', '-')}-{index}",
                        recording["provider"],
                        api,
                        request["body"],
                        answer,
                    )


def read(name: str, provider: str, api: str, body: Body, answer: Body) -> Exchange:
    billed = answer["usage"].get("cost")
    return Exchange(
        name=name,
        provider=provider,
        api=api,
        body=body,
        usage=USAGE[api](answer["usage"]),
        served=str(answer.get("model") or ""),
        billed=None if billed is None else Decimal(str(billed)),
    )


def merged(body: Any) -> Body:
    """The answer; for a stream, its model and its last usage."""
    if isinstance(body, dict):
        return body
    lines = [
        line.removeprefix("data:").strip()
        for line in str(body).splitlines()
        if line.startswith("data:")
    ]
    events = [json.loads(line) for line in lines if line.startswith("{")]
    parts = [
        part
        for event in events
        for part in (*(event.get(name) or {} for name in ("message", "x_groq", "response")), event)
    ]
    usage = [part["usage"] for part in parts if part.get("usage")]
    models = [part["model"] for part in parts if part.get("model")]
    return {
        "usage": {name: value for part in usage for name, value in part.items()},
        "model": (models or [""])[-1],
    }


def has_vendors_tools(body: Body) -> bool:
    """Whether the vendor ran a tool of its own, such as a search."""
    mine = [
        tool
        for tool in body.get("tools") or ()
        if tool.get("function") or tool.get("input_schema") or tool.get("type") == "function"
    ]
    return len(mine) < len(body.get("tools") or ()) or bool(
        body.keys() & {"plugins", "web_search_options"}
    )


def text_of(content: Any) -> str:
    """The text of a message's content."""
    return (
        content
        if isinstance(content, str)
        else "".join(part.get("text", "") for part in content or ())
    )


def is_system(message: Body) -> bool:
    return message.get("role") in ("system", "developer")


def system_of(body: Body) -> str:
    """An agent's instructions: in the body, or as messages."""
    apart = [text_of(body.get("system")), text_of(body.get("instructions"))]
    return "\n\n".join(
        [*apart, *(text_of(message["content"]) for message in said_in(body) if is_system(message))]
    )


def said_in(body: Body) -> list[Body]:
    """The messages of a request, or the items of its input."""
    said = body["messages"] if "messages" in body else body["input"]
    return [{"role": "user", "content": said}] if isinstance(said, str) else said


def tool_of(tool: Body) -> ToolDefinition:
    """A tool of either API."""
    function = tool.get("function") or tool
    return ToolDefinition(
        name=function["name"],
        description=function.get("description") or "",
        parameters=function.get("parameters") or function.get("input_schema") or {},
        activity=function["name"],
        is_idempotent=False,
        timeout_s=60,
        schema_digest="",
    )


def part_of(part: Body) -> Text | Media:
    """A part of a user message."""
    if "text" in part:
        return Text(text=part["text"])
    source = part.get("source") or {}
    url = (
        part["image_url"]["url"]
        if isinstance(part.get("image_url"), dict)
        else part.get("image_url") or source.get("url")
    )
    if url and url.startswith("data:"):
        kind, _, data = url.removeprefix("data:").partition(";base64,")
        return Media(media_type=kind, data=data)
    return Media(media_type=source.get("media_type", "image/png"), data=source.get("data"), url=url)


def message_of(message: Body) -> Message:
    """A message of any API, or the result of a tool; for the responses API, an item."""
    content = message.get("content") or ""
    if message.get("type") == "function_call_output":
        return ToolMessage(
            results=(
                ToolResult(call_id=message["call_id"], name="tool", content=message["output"]),
            )
        )
    if message.get("type") == "function_call":
        return AssistantMessage(
            parts=(
                ToolCall(
                    id=message["call_id"], name=message["name"], arguments=message["arguments"]
                ),
            )
        )
    if message.get("type") == "reasoning":
        thought = reasoning.thought_of(message)
        return AssistantMessage(parts=(thought,) if thought else ())
    if message["role"] == "tool":
        return ToolMessage(
            results=(
                ToolResult(call_id=message["tool_call_id"], name="tool", content=text_of(content)),
            )
        )
    if message["role"] == "assistant":
        functions = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
        calls = (
            ToolCall(id=id_, name=function["name"], arguments=function["arguments"])
            for id_, function in functions
        )
        return AssistantMessage(parts=(*([Text(text=text_of(content))] if content else []), *calls))
    return UserMessage(
        parts=tuple(
            part_of(part)
            for part in (
                [{"type": "text", "text": content}] if isinstance(content, str) else content
            )
        )
    )
