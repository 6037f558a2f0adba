"""A deploy with real processes: the worker is killed while a call waits for approval, and a worker
with another signature takes over.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from ..support.e2e.command_line import CommandLine, wait_until

pytestmark = pytest.mark.slow

AGENTS = '''
from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker


@tool(requires_approval=True)
def refund(euros: int{parameter}) -> str:
    """Pay back."""
    return f"paid {{euros}}{{{value}}}"


class Model:
    async def complete(self, request):
        results = [
            result.content
            for message in request.messages
            for result in getattr(message, "results", ())
        ]
        answer = says(results[0]) if results else calls(call("refund", euros=40))
        return await ScriptedModel(answer).complete(request)

    async def close(self):
        pass


support = Agent(name="support", model="mine:m", tools=[refund])
app = AgentWorker(support, providers={{"mine": Model()}})
'''


@pytest.mark.accepts("T28", "T32")
def test_refund_approved_before_the_deploy_is_paid_when_a_person_has_seen_the_new_signature(
    perdure_server: str, tmp_path: Path
) -> None:
    """The command line shows and approves it; the earlier approval is refused."""
    perdure, turn_id = CommandLine(tmp_path), f"ticket-{secrets.token_hex(4)}"
    perdure.environment |= {
        "TEMPORAL_ADDRESS": perdure_server,
        "PERDURE_TASK_QUEUE": f"test-{turn_id}",
        "PERDURE_GRACE_S": "1",
    }
    agents = tmp_path / "agents.py"
    agents.write_text(AGENTS.format(parameter="", value="''"), encoding="utf-8")
    with (
        perdure.started("worker", "agents:app"),
        perdure.started("run", "support", "Pay.", "--id", turn_id),
    ):
        wait_until(
            lambda: "call_1_1" in perdure("approvals", turn_id).stdout,
            "the call waits",
            within_s=60,
        )
    agents.write_text(AGENTS.format(parameter=", invoice: str", value="invoice"), encoding="utf-8")
    with perdure.started("worker", "agents:app"):
        first = perdure("approvals", turn_id, "--approve", "call_1_1")
        looked = wait_until(
            lambda: (
                said
                if "refund has changed" in (said := perdure("approvals", turn_id).stdout)
                else ""
            ),
            "it waits again",
            within_s=60,
        )
        name = looked.split()[0]
        better = '{"euros": 40, "invoice": " for RE-1"}'
        second = perdure("approvals", turn_id, "--approve", "call_1_1", "--arguments", better)
        third = perdure("approvals", turn_id, "--approve", name, "--arguments", better)
        shown = perdure("show", turn_id).stdout

    assert (first.returncode, second.returncode, third.returncode) == (0, 2, 0), third.stderr
    assert "approve it with its token" in second.stderr
    assert "invoice: Field required" in looked
    assert "paid 40 for RE-1" in shown
    assert "step-1.call-1  refund has changed since the call was approved" in shown
