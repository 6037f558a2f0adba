"""The reservation of a call covers the text that a protocol adds."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import JsonValue
from pydantic_core import to_json

from perdure import protocols, tool
from perdure.agents.definitions import AgentDefinition, define_tool
from perdure.protocols import Prompt
from perdure.text import size
from perdure.turn import reservations
from perdure.values.prices import REQUEST_TOKENS

NAMES: tuple[Literal["native", "react_text", "json"], ...] = ("native", "react_text", "json")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(name: Any, **fields: Any) -> AgentDefinition:
    return AgentDefinition(
        name="a",
        instructions="Be brief.",
        model="p:m",
        tools=(define_tool(add, "add"),),
        protocol=name,
        **fields,
    )


WANTED: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"total": {"type": "integer"}},
    "required": ["total"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("schema", [None, WANTED], ids=["text", "typed"])
def test_bytes_beside_the_messages_are_reserved(
    name: str, schema: dict[str, JsonValue] | None
) -> None:
    """System prompt, tools and schema in the form of the request."""
    one = agent(name)
    sent = protocols.named(name).ask(
        Prompt(system=one.instructions, tools=one.tools, response_schema=schema)
    )
    tools = sum(len(to_json((item.name, item.description, item.parameters))) for item in sent.tools)

    bytes_sent = (
        size(sent.system)
        + tools
        + (len(to_json(sent.response_schema)) if sent.response_schema else 0)
    )

    assert reservations.base_tokens(one, schema) >= REQUEST_TOKENS + bytes_sent
