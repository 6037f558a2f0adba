"""An agent as a client of the conformance suite: `python conformance_client.py URL`.

In a scenario about authorization, a person logs in for it, at the server of the suite.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import Any

from perdure import Agent, MCPLogin, MCPServer
from perdure.clients import AgentClient, Turn
from perdure.errors import LoginError
from perdure.temporal.encryption import key_stores
from perdure.temporal.encryption.hiding import VARIABLE
from perdure.temporal.encryption.keys import new_entry
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, local_runtime, says
from perdure.values.messages import AssistantMessage
from tests.support.mcp.guarded_calendar import logged_in

ARGUMENTS: dict[str, dict[str, Any]] = {"suite__add_numbers": {"a": 5, "b": 3}}
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
BACK = "http://127.0.0.1:1/back"
PAUSE_S = 0.05
SECRET = "SUITE_SECRET"
DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The address of the document with the client, which the suite expects and does not read."""


def calls_each(request: ModelRequest) -> Reply:
    """Call each tool of the server once, and answer."""
    called = {
        each.name
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for each in message.calls
    }
    new = [item.name for item in request.tools if item.name not in called]
    return calls(*(call(name, **ARGUMENTS.get(name, {})) for name in new)) if new else says("done")


async def main(url: str) -> None:
    """Run a turn with the server at this address."""
    login = SCENARIO.startswith("auth/") and _login()
    server = MCPServer.http("suite", url, trusted=True, login=login)
    agent = Agent(name="user", model="main", toolboxes=[server])
    async with local_runtime(agent, model=FunctionModel(calls_each)) as client:
        turn = await client.start("user", "go", subject="anna" if login else None)
        async with asyncio.TaskGroup() as group:
            person = group.create_task(_person(client, turn))
            await turn.result()
            person.cancel()


def _login() -> MCPLogin:
    """How the person logs in: as the client that the suite knows, if it knows one."""
    if SCENARIO == "auth/basic-cimd":
        return MCPLogin(client_id=DOCUMENT)
    if "client_secret" in CONTEXT:
        os.environ[SECRET] = CONTEXT["client_secret"]
        return MCPLogin(client_id=CONTEXT["client_id"], secret_env=SECRET)
    return MCPLogin()


async def _person(client: AgentClient, turn: Turn[str]) -> None:
    """Log in whenever the turn waits for it, and decline if that cannot be begun."""
    while True:
        for call_ in await turn.pending_approvals():
            link = await client.login_link(turn.id, call_.call_id)
            try:
                address = await client.begin_login(link, BACK)
                await client.complete_login(await logged_in(address))
            except LoginError as error:
                print(error, file=sys.stderr)
                await turn.deny(call_)
        await asyncio.sleep(PAUSE_S)


with tempfile.TemporaryDirectory() as folder:
    os.environ[VARIABLE] = new_entry("k1")
    os.environ[key_stores.VARIABLE] = f"{folder}/subjects.sqlite"
    asyncio.run(main(*sys.argv[1:]))
