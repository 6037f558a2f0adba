"""`perdure login`, with a browser that is sent to the authorization server and back."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import httpx
import pytest

from perdure import Agent
from perdure.clients import AgentClient, Turn
from perdure.clients.cli.drawing.hints import CommandHints
from perdure.testing import call, calls

from ...conftest import fold_history
from ...support.approving import pending, send
from ...support.data_subjects import home
from ...support.logins import DONE, LOG_IN, LUNCH, Office, login_of, office, until

__all__ = ["home", "office"]


async def command(office: Office, *arguments: str) -> asyncio.subprocess.Process:
    """A command that runs against the server of the office."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", *arguments, "--address", office.home.address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.accepts("G138")
async def test_command_logs_in_and_the_turn_goes_on(office: Office) -> None:
    client = await office.client()
    async with office.worker(LOG_IN, LUNCH, DONE).running(client.temporal):
        turn = await office.start(client)
        await login_of(turn)
        process = await command(office, "login", turn.id, "--no-browser", "--json")
        assert process.stderr is not None
        said = ""
        async with asyncio.timeout(60):
            while not (found := re.search(r"http://127\.0\.0\.1\S+state=\S+", said)):
                line = (await process.stderr.readline()).decode()
                assert line, f"the command is over: {said}"
                said += line
        async with httpx.AsyncClient(verify=False, follow_redirects=True, timeout=60) as browser:
            answer = await browser.get(found.group())
        out, _ = await process.communicate()
        report = await turn.result()

    assert process.returncode == 0
    assert "close this window" in answer.text
    assert json.loads(out)["subject"] == office.home.subject
    assert report.output == "noted"


@pytest.mark.accepts("G138")
async def test_command_says_that_nothing_waits(office: Office) -> None:
    client = await office.client()
    async with office.worker(LOG_IN, DONE).running(client.temporal):
        turn = await office.start(client)
        waiting, _ = await login_of(turn)
        await turn.deny(waiting)
        await turn.result()
        process = await command(office, "login", turn.id)
        _, said = await process.communicate()

    assert process.returncode == 2
    assert "those that wait for a login: none" in said.decode()


@pytest.mark.slow
@pytest.mark.accepts("H253")
async def test_commands_name_the_login_that_a_turn_waits_for(office: Office) -> None:
    """`perdure approvals` with the turn, and whoever follows it; with the call, if several wait."""
    client = await office.client()
    secretary = Agent(
        name="secretary",
        model="scripted:secretary",
        toolboxes=[office.server()],
        tools=[send],
        parallel_tools=True,
    )
    two = calls(call("calendar__log_in"), call("calendar__log_in"))
    worker = office.worker(LOG_IN, two, calls(call("send", to="bert")), DONE, agents=[secretary])
    async with worker.running(client.temporal):
        turn = await office.start(client)
        first, _ = await login_of(turn)
        shown = await command(office, "approvals", turn.id)
        _, said = await shown.communicate()
        helps = [await help_of(client, turn)]
        await turn.deny(first)
        second, third = await pending(turn, 2)
        helps.append(await help_of(client, turn))
        await turn.deny(second)
        await turn.deny(third)
        await until_waits_for(turn, "send")
        helps.append(await help_of(client, turn))
        await turn.cancel()

    login = f"perdure login {turn.id}"
    assert f"{login} --address {office.home.address}\n" in said.decode()
    assert f"--deny {first.call_id} " in said.decode()
    assert "perdure answer" not in said.decode()
    assert helps == [login, f"{login} --call {second.call_id}", f"perdure approvals {turn.id}"]


async def until_waits_for(turn: Turn[str], tool: str) -> None:
    """Wait until a call of a tool waits for a person."""

    async def waits() -> bool:
        return any(one.tool == tool for one in await turn.pending_approvals())

    await until(waits)


async def help_of(client: AgentClient, turn: Turn[str]) -> str:
    """What a terminal that follows a turn says about its wait."""
    history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
    return CommandHints().that_help(turn.id, await fold_history(client.temporal, history))
