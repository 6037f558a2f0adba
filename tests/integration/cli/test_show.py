"""The output of `perdure show` with `--full`, and with `--json` for a typed agent."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel

from perdure import Agent, tool
from perdure.clients.cli.common import Display
from perdure.clients.cli.running.following import follow
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime

LETTER = "\n".join(
    f"Line {number} of a letter that is longer than a terminal is wide." for number in range(10)
)


class Verdict(BaseModel):
    """What is decided."""

    euros: int


@tool
def read_letter(number: str) -> str:
    """Read a letter."""
    return LETTER


@pytest.mark.accepts("P28")
async def test_full_show_cuts_nothing_and_json_has_the_values_of_an_answer(
    runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    """The task, the arguments and the result in all their lines; the output as an object."""
    agent = Agent(name="judge", model="scripted:judge", tools=[read_letter], output=Verdict)
    model = ScriptedModel(calls(call("read_letter", number="4711 " * 40)), says('{"euros": 40}'))
    async with runtime(agent, model=model) as client:
        turn = await client.start("judge", "Read the letter.\n\nThen decide. " * 20)
        await turn.result()
        codes = [await follow(client, turn, Display(full=True))]
        printed = capsys.readouterr().out
        codes.append(await follow(client, turn, Display(as_json=True)))
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
    lines = [line.strip() for line in printed.splitlines()]

    assert codes == [0, 0]
    assert [line for line in LETTER.splitlines() if line not in lines] == []
    assert lines.count("Then decide. Read the letter.") == 19
    assert f'"number": "{"4711 " * 40}"' in lines
    assert told["report"]["output"] == {"euros": 40}
