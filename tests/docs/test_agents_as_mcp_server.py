"""Run the code blocks of `docs/agents-as-mcp-server.md`."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import pytest

from perdure import Agent
from perdure.testing import ScriptedModel

from ..support.docs.commands import commands
from ..support.docs.pages import page
from .conftest import Tell

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from perdure.clients.gateway.mcp.server import serve


@pytest.mark.slow
async def test_client_with_the_settings_of_the_page_has_its_tools(tell: Tell) -> None:
    """The settings file starts the server, and it has the tools that the page lists."""
    async with tell("agents-as-mcp-server") as story:
        await story.works(Agent(name="support", model="main"), ScriptedModel())
        settings = await story.up_to("Set it up", "json")
        (one,) = json.loads(settings.text)["mcpServers"].values()
        environment = {
            **story.terminal.environment,
            **one["env"],
            "TEMPORAL_ADDRESS": story.terminal.environment["TEMPORAL_ADDRESS"],
        }
        async with Client(
            stdio_client(
                StdioServerParameters(command=one["command"], args=one["args"], env=environment)
            )
        ) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}

    words = (
        page("agents-as-mcp-server")
        .path.read_text(encoding="utf-8")
        .partition("## What an assistant can do with it")[2]
    )
    rows = re.findall(r"^\| (`[^|]+) \|", words.partition("\n## ")[0], re.MULTILINE)
    assert tools == {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.slow
@pytest.mark.accepts("H40")
async def test_client_with_the_url_of_the_page_has_the_same_tools(tell: Tell) -> None:
    """From a process of `perdure serve`, which answers on another port in the test."""
    async with tell("agents-as-mcp-server") as story:
        await story.works(Agent(name="support", model="main"), ScriptedModel())
        await story.up_to("Set it up", "json")
        _, export, command = commands(await story.up_to("Over HTTP", "console"))
        story.terminal.export(export)
        async with story.terminal.stays(command) as (_, printed):
            settings = await story.up_to("Over HTTP", "json")
            (one,) = json.loads(settings.text)["mcpServers"].values()
            [url] = re.findall(r"http://[^;\s]+", printed)
            token = story.terminal.environment["PERDURE_TOKEN"]
            headers = {
                name: value.replace("${PERDURE_TOKEN}", token)
                for name, value in one["headers"].items()
            }
            async with (
                httpx2.AsyncClient(headers=headers, timeout=60) as http,
                Client(
                    streamable_http_client(url + urlsplit(one["url"]).path, http_client=http)
                ) as client,
            ):
                tools = [tool.name for tool in (await client.list_tools()).tools]

    assert tools == [tool.name for tool in await serve(None, ()).list_tools()]  # type: ignore[arg-type]
