"""The names and attributes of turns' spans and metrics.

They follow OpenTelemetry's semantic conventions for GenAI, version 1.41.0. The conventions are not
stable yet, and their successor renames some metrics: `latest` has those. Anything without a name
there begins with `perdure.`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from opentelemetry.metrics import Meter
from opentelemetry.util.types import AttributeValue

from perdure.activities.provider import ModelRequest
from perdure.agents.definitions import AgentDefinition
from perdure.agents.versions import parts_of
from perdure.temporal.search_attributes import shown_labels
from perdure.turn.keys import ModelKey, ToolKey
from perdure.turn.wire import Summary, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.messages import Media, Message, Text, Thinking, ToolCall, ToolMessage
from perdure.values.reports import StopReason, Usage
from perdure.worker.telemetry.latest import LatestInstruments, histogram_of

Attributes = dict[str, AttributeValue]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
AGENT = "gen_ai.agent.name"
VERSION = "gen_ai.agent.version"
CONVERSATION = "gen_ai.conversation.id"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
CALL_ID = "gen_ai.tool.call.id"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
ERROR = "error.type"
OUTCOME = "perdure.outcome"
COST = "perdure.cost_usd"
EVENT = "perdure.event_id"
LAST_AGENT = "perdure.last_agent"
FELL_BACK_FROM = "perdure.fell_back_from"
WAITS_FOR = "perdure.waits_for"
STEP = "perdure.step"
ATTEMPT = "perdure.attempt"

INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
TOOL_ERROR = "tool_error"
"""A tool returned an error for the model."""
CANCELLED = "cancelled"
TIMED_OUT = "timed_out"

_FINISH = {
    StopReason.END: "stop",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.MAX_TOKENS: "length",
    StopReason.TOOL_CALLS: "tool_call",
    StopReason.REFUSED: "content_filter",
}
_TOKENS = [4**power for power in range(14)]
_CALL_S = [0.01 * 2**power for power in range(14)]
_TURN_S = [0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600]
_USD = [0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 50, 100]
_STEPS = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000]


class Instruments:
    """The metrics. Durations are in seconds. With `latest`, those of the latest conventions too."""

    def __init__(self, meter: Meter, *, latest: bool = False) -> None:
        histogram = partial(histogram_of, meter)
        self.tokens = histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of a model call.", _TOKENS
        )
        self.chat = histogram(
            "gen_ai.client.operation.duration", "s", "Duration of a model call.", _CALL_S
        )
        self.tool = histogram(
            "gen_ai.execute_tool.duration", "s", "Duration of a tool call.", _CALL_S
        )
        self.duration = histogram(
            "perdure.turn.duration", "s", "Duration of a turn, waits included.", _TURN_S
        )
        self.cost = histogram("perdure.turn.cost", "{USD}", "Cost of a turn in US dollars.", _USD)
        self.steps = histogram("perdure.turn.steps", "{step}", "Steps of a turn.", _STEPS)
        self.turns = meter.create_counter("perdure.turns", "{turn}", "Turns that ended.")
        self.waits = meter.create_counter(
            "perdure.waits", "{wait}", "Waits that began, for people and for providers."
        )
        self.retries = meter.create_counter(
            "perdure.retries", "{attempt}", "Model and tool calls that were made again."
        )

        self._latest = (
            LatestInstruments(meter, call_s=_CALL_S, turn_s=_TURN_S, tokens=_TOKENS)
            if latest
            else None
        )

    def count_tokens(self, usage: Usage, labels: Attributes) -> None:
        """Count the tokens of one model call."""
        if self._latest is not None:
            self._latest.count_tokens(usage, labels)
        self.tokens.record(usage.input_tokens, {**labels, "gen_ai.token.type": "input"})
        self.tokens.record(usage.output_tokens, {**labels, "gen_ai.token.type": "output"})

    def count_call(
        self, duration_s: float, labels: Attributes, failed: Attributes, *, is_retry: bool
    ) -> None:
        """Count one attempt of a model call or a tool call."""
        if self._latest is not None and TOOL not in labels:
            self._latest.count_inference(duration_s, labels | failed)
            if failed:
                self._latest.count_tokens(Usage(), labels)
        (self.tool if TOOL in labels else self.chat).record(duration_s, labels | failed)
        if is_retry:
            self.retries.add(
                1, {name: value for name, value in labels.items() if name != RESPONSE_MODEL}
            )

    def count_turn(self, summary: Summary, labels: Attributes) -> None:
        """Count a turn."""
        if self._latest is not None:
            self._latest.count_turn(
                summary.duration.total_seconds(),
                summary.model_calls,
                summary.tool_calls,
                {OPERATION: INVOKE_AGENT}
                | {name: labels[name] for name in (AGENT, ERROR) if name in labels},
            )
        labels = {**labels, OUTCOME: summary.outcome.value}
        self.turns.add(1, labels)
        self.duration.record(summary.duration.total_seconds(), labels)
        self.steps.record(summary.steps, labels)
        if summary.is_priced:
            self.cost.record(float(summary.spent.usd), labels)


def of_call(key: ModelKey | ToolKey, turn_id: str, run_id: str) -> Attributes:
    """Return the attributes of a call and its turn. The event is the log record's."""
    event = "llm_call" if isinstance(key, ModelKey) else "tool_call"
    return {
        CONVERSATION: turn_id,
        STEP: key.step,
        ATTEMPT: key.attempt,
        EVENT: f"{run_id}/{event}/{key}",
    }


def of_chat(agent: str) -> Attributes:
    """Return the labels of a model call before its model is known."""
    return {OPERATION: CHAT, AGENT: agent}


def of_tool(agent: str, tool: str) -> Attributes:
    """Return the labels of a tool call of an agent, by its name or its address."""
    name, version = parts_of(agent)
    labels: Attributes = {OPERATION: EXECUTE_TOOL, AGENT: name, TOOL: tool, TOOL_TYPE: "function"}
    return {**labels, VERSION: version} if version else labels


def of_agent(agent: AgentDefinition, started: TurnRequest | None) -> Attributes:
    """Return the labels of a turn: the agent that it was started with, and the model of `agent`."""
    name, version = started.agent if started else agent.name, agent.version
    labels = {AGENT: name, PROVIDER: agent.model.partition(":")[0], MODEL: agent.chain[0].name}
    versions = {VERSION: version.started, FELL_BACK_FROM: version.fell_back_from}
    return {**labels, **{name: value for name, value in versions.items() if value}}


def of_turn(turn_id: str, run_id: str, request: TurnRequest | None) -> Attributes:
    """Return the attributes that identify a turn."""
    labels = shown_labels(request.labels) if request else {}
    return {
        OPERATION: INVOKE_AGENT,
        AGENT: request.agent if request else "",
        CONVERSATION: turn_id,
        EVENT: f"{run_id}/turn_completed/end",
        **{f"perdure.label.{name}": value for name, value in labels.items()},
    }


def of_request(provider: str, request: ModelRequest) -> Attributes:
    """Return the attributes of a model request, without its content."""
    options = request.options
    attributes: dict[str, AttributeValue | None] = {
        PROVIDER: provider,
        MODEL: request.model,
        "gen_ai.request.max_tokens": options.max_output_tokens,
        "gen_ai.request.temperature": options.temperature,
        "gen_ai.request.stop_sequences": options.stop_sequences,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def of_answer(answer: ModelAnswer) -> Attributes:
    """Return the attributes of an answer, without its content."""
    attributes: Attributes = {
        **of_usage(answer.usage),
        "gen_ai.response.finish_reasons": (_FINISH.get(answer.stop, answer.stop.value),),
    }
    return attributes if answer.cost is None else {**attributes, COST: float(answer.cost)}


def of_usage(usage: Usage) -> Attributes:
    """Return the token counts. Input includes cached tokens, as in the conventions."""
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
    }


def of_answer_latest(answer: ModelAnswer) -> Attributes:
    """Return the attributes of an answer that the latest conventions have renamed."""
    return {"gen_ai.usage.cache_write.input_tokens": answer.usage.cache_write_tokens}


def of_summary(summary: Summary) -> Attributes:
    """Return the attributes of a turn's result."""
    attributes: Attributes = {
        **of_usage(summary.usage),
        OUTCOME: summary.outcome.value,
        "perdure.steps": summary.steps,
        "perdure.model_calls": summary.model_calls,
        "perdure.tool_calls": summary.tool_calls,
    }
    if summary.last_agent:
        attributes[LAST_AGENT] = summary.last_agent
    return {**attributes, COST: float(summary.spent.usd)} if summary.is_priced else attributes


def content_of_request(request: ModelRequest) -> Attributes:
    """Return the content of a request as JSON."""
    system = [{"type": "text", "content": request.system}] if request.system else []
    return {
        "gen_ai.system_instructions": _json(system),
        "gen_ai.input.messages": _json([_message(message) for message in request.messages]),
    }


def content_of_answer(answer: ModelAnswer) -> Attributes:
    """Return the content of an answer as JSON."""
    message = {
        **_message(answer.message),
        "finish_reason": _FINISH.get(answer.stop, answer.stop.value),
    }
    return {"gen_ai.output.messages": _json([message])}


def _message(message: Message) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        results = [
            {"type": "tool_call_response", "id": result.call_id, "response": result.content}
            for result in message.results
        ]
        return {"role": "tool", "parts": results}
    return {"role": message.role, "parts": list(_parts(message.parts))}


def _parts(parts: Sequence[Text | Media | Thinking | ToolCall]) -> Iterator[dict[str, Any]]:
    for part in parts:
        match part:
            case Text():
                yield {"type": "text", "content": part.text}
            case Thinking():
                yield {"type": "reasoning", "content": part.text}
            case ToolCall():
                yield {
                    "type": "tool_call",
                    "id": part.id,
                    "name": part.name,
                    "arguments": part.arguments,
                }
            case Media():
                # without its bytes, which would dominate the span
                yield {"type": "media", "mime_type": part.media_type}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
