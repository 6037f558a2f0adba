"""The form in which the model of a simulation calls tools and answers: the agent's protocol."""

from __future__ import annotations

import json

from perdure.agents.definitions import AgentDefinition
from perdure.values.messages import Text, Thinking, ToolCall


def of_calls(
    agent: AgentDefinition, calls: list[ToolCall]
) -> tuple[Text | Thinking | ToolCall, ...]:
    """Return calls in the form of the agent's protocol."""
    name, arguments = calls[0].name, calls[0].arguments
    match agent.protocol:
        case "react_text":
            return (Text(text=f"Thought: hm\nAction: {name}\nAction Input: {arguments}"),)
        case "json":
            return (Text(text=f'{{"name": "{name}", "arguments": {arguments}}}'),)
        case _:
            return tuple(calls)


def of_answer(agent: AgentDefinition, refused: str) -> str:
    """Return a final answer in the form of the agent's protocol and type."""
    said = f"done{refused}" if agent.output_schema is None else '{"n": 1}'
    match agent.protocol:
        case "react_text":
            return f"Thought: I know\nFinal Answer: {said}"
        case "json":
            return json.dumps({"answer": json.loads(said) if said.startswith("{") else said})
        case _:
            return said
