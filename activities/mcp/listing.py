"""The tools that a server lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp import Client
from mcp_types import Tool

from perdure.agents.mcp_servers import ListedTool

_PAGES = 50


def listed(item: Tool, without_secrets: Callable[[str], str], *, may_be_task: bool) -> ListedTool:
    """Return a tool as its server describes it, without secrets."""
    hints: Any = item.annotations
    parameters = {
        "type": "object",
        "properties": {},
        **{name: value for name, value in item.input_schema.items() if name != "$schema"},
    }
    return ListedTool(
        own=item.name,
        description=without_secrets(item.description or item.title or ""),
        parameters=mapped(parameters, without_secrets),
        read_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
        may_be_task=may_be_task,
    )


async def all_pages(client: Client) -> list[Tool]:
    """Return the tools of a server that has any."""
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES if client.server_capabilities.tools else 0):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return JSON with `change` applied to each string in it."""
    if isinstance(value, dict):
        return {change(name): mapped(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [mapped(item, change) for item in value]
    return change(value) if isinstance(value, str) else value
