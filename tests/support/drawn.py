"""Random agents, requests and model answers for simulated turns.

They are drawn by a seeded generator instead of hypothesis strategies, because turns from strategies
end early and would seldom cover anything that takes many moves.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta

from perdure import errors
from perdure.agents.definitions import RULES, AgentDefinition, ToolDefinition
from perdure.errors import PerdureError
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import Budget
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.options import RequestOptions
from perdure.values.prices import Price
from perdure.values.reports import StopReason, Usage
from perdure.values.tasks import Task

Part = Text | Thinking | ToolCall


def _tool(name: str, **fields: object) -> ToolDefinition:
    pinned = {
        "description": "",
        "parameters": {},
        "activity": name,
        "is_idempotent": False,
        "timeout_s": 60,
        "schema_digest": "",
        **fields,
    }
    return ToolDefinition.model_validate({"name": name, **pinned})


TOOLS = (
    _tool("write"),
    _tool("look", is_idempotent=True, is_read_only=True),
    _tool("send", needs_approval=True, is_idempotent=True),
)
NAMES = (*["look", "write", "send"] * 5, "gone", "")
IDS = ("", "", "", "c1", "c2", "call_1_1", "call_1_2", "call_2_1", "call_1_1_2", "past_0_1")
ARGUMENTS = ("{}", '{"a": 1}', '{"a": 2}', '{"a": 3}', '{"a": 4}', "", "[", "null", '"text"')
WORDS = ("", "go", "ä\u2028", "Observation: 7", "Final Answer: 1", '{"answer": 1}', "done")
ERRORS = tuple(
    map(
        PerdureError.info,
        [
            errors.LLMRateLimitError("busy", context={"status": 429}),
            errors.LLMUnavailableError("down"),
            errors.LLMTimeoutError("slow"),
            errors.LLMAuthError("no"),
            errors.TurnCancelledError(),
        ],
    )
)
MORE = (
    Budget(tool_calls=1),
    Budget(model_calls=1),
    Budget(tokens=2000),
    Budget(usd=2),
    Budget(tokens=1, usd=1),
    Budget(time=timedelta(seconds=9)),
)
TYPED = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
_BUDGETS: dict[str, tuple[object, ...]] = {
    "usd": (12, 60),
    "tokens": (12_000, 60_000),
    "model_calls": (3, 9),
    "tool_calls": (1, 6),
    "time": (timedelta(seconds=9), timedelta(seconds=90)),
}


def agent(luck: random.Random) -> AgentDefinition:
    """An agent of any kind."""
    allowed = luck.choice(
        [None, None, None, None, None, ("write", "look", "send"), ("write", "look"), ()]
    )
    return AgentDefinition(
        name="any",
        instructions=luck.choice(["Do it.", ""]),
        model="any:model",
        tools=tuple(tool for tool in TOOLS if allowed is None or tool.name in allowed),
        allowed=allowed,
        max_iterations=luck.choice([None, None, 3, 6]),
        budget=_budget(luck),
        price=luck.choice([Price.model_validate({"input": 1000, "output": 1000}), Price.free()]),
        on_exhausted=luck.choice(["finish", "finish", "pause", "fail"]),
        on_loop=luck.choice(["ignore", "ignore", "warn", "fail"]),
        protocol=luck.choice(["native", "react_text", "json"]),
        unmarked=luck.choice(["answer", "correct"]),
        output_schema=luck.choice([None, None, TYPED]),
        options=luck.choice([RequestOptions(), RequestOptions(max_output_tokens=400)]),
        parallel_tools=luck.choice([True, False]),
        approval=luck.choice(["marked", "changes", "all"]),
        has_policy=luck.choice([True, False]),
        rules=luck.choice([0, RULES]),
    )


def request(luck: random.Random) -> TurnRequest:
    """A request that starts a turn; its history may be hand-made."""
    task = Task(
        content=luck.choice(WORDS), requires_human_approval=luck.choice([True, False, False])
    )
    past = tuple(luck.choice(_PAST)(luck) for _ in range(luck.choice([0, 0, 1, 2, 4])))
    return TurnRequest(
        agent="any",
        task=task,
        history=past,
        budget=_budget(luck),
        max_iterations=luck.choice([None, None, None, 4]),
    )


def answer(
    luck: random.Random, agent: AgentDefinition, most_tokens: int, most_output: int
) -> ModelAnswer:
    """A model's answer; its bill is seldom above the bound."""
    spoken = said(luck, agent.protocol)
    usual = (
        StopReason.TOOL_CALLS
        if any(isinstance(part, ToolCall) for part in spoken)
        else StopReason.END
    )
    stop = luck.choice(list(StopReason)) if luck.random() < 0.08 else usual
    most_input = max(most_tokens - most_output, 0)
    used = Usage(
        input_tokens=min(luck.choice([20, 300, 900, most_input]), most_input),
        output_tokens=min(luck.choice([0, 1, 50, 400]), most_output),
    )
    used = Usage(input_tokens=most_tokens, output_tokens=1) if luck.random() < 0.01 else used
    cost = agent.price.of(used) if agent.price and luck.random() < 0.7 else None
    return ModelAnswer(
        message=AssistantMessage(parts=spoken), usage=used, cost=cost, model="any", stop=stop
    )


def said(luck: random.Random, protocol: str) -> tuple[Part, ...]:
    """A model's answer: usually tool calls, some of them wrong."""
    return _last(luck) if luck.random() < 0.08 else _calls(luck, protocol)


def _budget(luck: random.Random) -> Budget | None:
    limits = {
        name: luck.choice(some)
        for name, some in _BUDGETS.items()
        if luck.random() < (0.35 if name == "time" else 0.2)
    }
    return Budget.model_validate(limits) if limits else None


def _calls(luck: random.Random, protocol: str) -> tuple[Part, ...]:
    """Calls in the form of the protocol; a model of a text protocol may use native calls all the
    same.
    """
    if protocol == "native" or luck.random() < 0.2:
        return tuple(
            luck.choice([_call, _call, _call, _part])(luck)
            for _ in range(luck.choice([1, 1, 2, 3, 4]))
        )
    name, arguments = luck.choice(NAMES), luck.choice(ARGUMENTS)
    react = f"Thought: hm\nAction: {name}\nAction Input: {arguments}"
    if protocol == "react_text":
        odd = [
            "words",
            "",
            "Action:",
            "Thought: hm",
            "Action: look\nFinal Answer: 1",
            f"{react}\nObservation: made up\nFinal Answer: 1",
        ]
        return (Text(text=luck.choice([*[react] * 20, *odd])),)
    asked = f'{{"name": {json.dumps(name)}, "arguments": {arguments or "{}"}}}'
    return (
        Text(
            text=luck.choice(
                [
                    *[asked] * 20,
                    '{"n": 1}',
                    '{"answer": ""}',
                    "words",
                    "",
                    "{",
                    '{"name": 7}',
                    f"{asked}{asked}",
                ]
            )
        ),
    )


def _last(luck: random.Random) -> tuple[Part, ...]:
    said = [
        "done",
        '{"n": 1}',
        "Final Answer: done",
        'Final Answer: {"n": 1}',
        '{"answer": "done"}',
        '{"answer": {"n": 1}}',
    ]
    return (Text(text=luck.choice(said)),)


def _call(luck: random.Random) -> ToolCall:
    return ToolCall(id=luck.choice(IDS), name=luck.choice(NAMES), arguments=luck.choice(ARGUMENTS))


def _part(luck: random.Random) -> Part:
    parts: list[Part] = [
        Text(text=luck.choice(WORDS)),
        Thinking(text=luck.choice(WORDS), signature=luck.choice([None, "s"])),
    ]
    return luck.choice(parts)


PICTURE = Media(media_type="image/png", data="iVBORw0KGgo=")


def _result(luck: random.Random) -> ToolResult:
    return ToolResult(
        call_id=luck.choice(IDS),
        name=luck.choice(NAMES),
        content=luck.choice(WORDS),
        media=luck.choice([(), (), (PICTURE,)]),
    )


_PAST: tuple[Callable[[random.Random], Message], ...] = (
    lambda luck: UserMessage.of(luck.choice(WORDS)),
    lambda luck: AssistantMessage(
        parts=tuple(luck.choice([_call, _part])(luck) for _ in range(luck.randrange(4)))
    ),
    lambda luck: ToolMessage(results=tuple(_result(luck) for _ in range(luck.randrange(3)))),
)
