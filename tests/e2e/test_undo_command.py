"""`perdure undo` as a user runs it: a worker process, and a turn that has paid."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pytest

from ..support.e2e.command_line import CommandLine, beside_a_worker, wait_until

pytestmark = pytest.mark.slow

AGENTS = '''
from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker


def refund(invoice: str, result: str) -> str:
    """Pay an invoice back."""
    return f"refunded {invoice}, {result}"


@tool(effect=["invoice"], undo=refund)
def pay(invoice: str) -> str:
    """Pay an invoice."""
    return "payment 7"


class Model:
    async def complete(self, request):
        has_paid = len(request.messages) > 1
        answer = says("paid") if has_paid else calls(call("pay", invoice="i-1"))
        return await ScriptedModel(answer).complete(request)

    async def close(self):
        pass


app = AgentWorker(Agent(name="clerk", model="mine:m", tools=[pay]), providers={"mine": Model()})
'''


@pytest.fixture(scope="module")
def perdure(perdure_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line beside a worker; it needs no connection options."""
    with beside_a_worker(AGENTS, tmp_path_factory.mktemp("undo"), perdure_server) as here:
        yield here


@pytest.mark.accepts("T62")
def test_person_lists_effects_and_takes_one_back(perdure: CommandLine) -> None:
    """The second time nothing happens again."""
    turn_id = f"ticket-{secrets.token_hex(6)}"
    perdure("run", "clerk", "Pay it.", "--id", turn_id)
    listed = perdure("undo", turn_id)
    undone = perdure("undo", turn_id, "call_1_1", "--by", "anna", "--json")
    undo_id = json.loads(undone.stdout)["turn"]
    wait_until(lambda: "refunded i-1, payment 7" in perdure("show", undo_id).stdout, "the refund")
    again = perdure("undo", turn_id, "call_1_1", "--by", "bob")
    after = perdure("undo", turn_id)
    wrong = perdure("undo", turn_id, "call_9_9")

    assert listed.stdout == ('call_1_1  step 1  pay {"invoice": "i-1"}  done, can be undone\n')
    assert undo_id == f"{turn_id}/undo-1-call_1_1"
    assert f"to follow it: perdure show {undo_id}" in again.stderr
    assert after.stdout.endswith("taken back\n")
    assert wrong.returncode != 0
    assert "it has call_1_1" in wrong.stderr
