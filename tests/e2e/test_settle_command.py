"""`perdure settle` as a user runs it: a worker process, and a turn whose call lost its answer."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pytest

from ..support.e2e.command_line import CommandLine, beside_a_worker, wait_until

pytestmark = pytest.mark.slow

AGENTS = '''
import httpx

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker


@tool(on_unknown="pause")
def pay(invoice: str) -> str:
    """Pay an invoice."""
    raise httpx.ReadTimeout("no answer in 5 s")


class Model:
    async def complete(self, request):
        results = [
            result.content
            for message in request.messages
            for result in getattr(message, "results", ())
        ]
        answer = says(results[0]) if results else calls(call("pay", invoice="i-1"))
        return await ScriptedModel(answer).complete(request)

    async def close(self):
        pass


@tool(name="pay")
def pay_once(invoice: str) -> str:
    """Pay an invoice."""
    raise httpx.ReadTimeout("no answer in 5 s")


app = AgentWorker(
    [
        Agent(name="clerk", model="mine:m", tools=[pay]),
        Agent(name="teller", model="mine:m", tools=[pay_once]),
    ],
    providers={"mine": Model()},
)
'''


@pytest.fixture(scope="module")
def perdure(perdure_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line beside a worker; it needs no connection options."""
    with beside_a_worker(AGENTS, tmp_path_factory.mktemp("settle"), perdure_server) as here:
        yield here


@pytest.mark.accepts("T55")
def test_person_settles_a_call_by_a_suggested_command(perdure: CommandLine) -> None:
    """An approval is refused and says what to do; a denial is not needed."""
    turn_id = f"ticket {secrets.token_hex(6)}"
    with perdure.started("run", "clerk", "Pay it.", "--id", turn_id):
        wait_until(lambda: "call_1_1" in perdure("approvals", turn_id).stdout, "the turn waits")
        looked = perdure("approvals", turn_id)
        waits = json.loads(perdure("approvals", turn_id, "--json").stdout)
        approved = perdure("approvals", turn_id, "--approve", "call_1_1")
        wrong = perdure("settle", turn_id, "call_1_1:000000000000", "done")
        settled = perdure(
            "settle", turn_id, "call_1_1", "done", "--result", "payment 7", "--by", "anna", "--json"
        )
        again = perdure("settle", turn_id, "call_1_1", "absent")
        shown = perdure("show", turn_id).stdout

    assert "call_1_1  pay, outcome unknown  expires in" in looked.stdout
    assert "no answer in 5 s" in looked.stdout
    assert f"perdure settle '{turn_id}' call_1_1 done --result …" in looked.stderr
    assert waits["is_unknown"]
    assert approved.returncode == wrong.returncode == again.returncode == 2
    assert "settle it as done, absent or again" in approved.stderr
    assert json.loads(settled.stdout) == {
        "turn": turn_id,
        "call_id": "call_1_1",
        "settled": "done",
        "by": "anna",
    }
    assert "call_1_1 settled as done by anna: payment 7" in " ".join(shown.split())
    assert "it has taken effect: payment 7" in " ".join(shown.split())


@pytest.mark.accepts("T57")
def test_person_settles_a_call_of_a_turn_that_is_over(perdure: CommandLine) -> None:
    """`perdure show` prints the command, until the call is settled."""
    turn_id = f"ticket {secrets.token_hex(6)}"
    ran = perdure("run", "teller", "Pay it.", "--id", turn_id)
    again = perdure("settle", turn_id, "call_1_1", "again")
    settled = perdure(
        "settle", turn_id, "call_1_1", "done", "--result", "payment 7", "--by", "anna"
    )
    second = perdure("settle", turn_id, "call_1_1", "absent", "--by", "bert")
    shown = perdure("run", "teller", "Pay it.", "--id", turn_id)

    assert "outcome unknown: pay" in ran.stderr
    assert f"perdure settle '{turn_id}' call_1_1 done|absent --result …" in ran.stderr
    assert "settle it as absent" in again.stderr
    assert f'call call_1_1 of turn "{turn_id}" is settled: done' in settled.stdout + settled.stderr
    assert "already settled by anna: done" in second.stderr
    assert (again.returncode, settled.returncode, second.returncode) == (2, 0, 2)
    assert "outcome unknown" not in shown.stderr
