"""`perdure login`, with a browser that is sent to the authorization server and back."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import httpx
import pytest

from ...support.data_subjects import home
from ...support.logins import DONE, LOG_IN, LUNCH, Office, login_of, office

__all__ = ["home", "office"]


@pytest.mark.accepts("G138")
async def test_command_logs_in_and_the_turn_goes_on(office: Office) -> None:
    client = await office.client()
    async with office.worker(LOG_IN, LUNCH, DONE).running(client.temporal):
        turn = await office.start(client)
        await login_of(turn)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", "login", turn.id, "--no-browser", "--json"),
            *("--address", office.home.address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
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
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", "login", turn.id),
            *("--address", office.home.address),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()

    assert process.returncode == 2
    assert "those that wait for a login: none" in said.decode()
