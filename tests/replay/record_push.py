"""Records the histories of a turn that has a follower, and of that: `python -m
tests.replay.record_push`.

The turn waits for an approval before it ends.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from temporalio.client import WorkflowHistory

from perdure import Agent, Price, tool
from perdure.clients import AgentClient
from perdure.delivery.push import PushCall
from perdure.temporal.names import PUSH
from perdure.temporal.payloads import pack
from perdure.testing import ScriptedModel, call, calls, local_runtime, says
from perdure.worker import AgentWorker

from ..support.receiver import SECRET, Receiver, receiving
from .record import scrubbed

FOLDER = Path(__file__).parent / "pushes"


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


async def record(client: AgentClient, receiver: Receiver) -> dict[str, WorkflowHistory]:
    """Have a turn and a follower, and fetch the histories by their names."""
    turn = await client.start("payer", "Pay.", id="followed")
    url = receiver.url("/push")
    given = PushCall(id="1", url=url, token="t", turn_id=turn.id, task="c/1", context="c")
    push = await client.temporal.start_workflow(
        PUSH, pack(given), id=f"{turn.id}/push-1", task_queue=client.task_queue
    )
    await receiver.until("/push")
    [wait] = (await turn.status()).waits
    assert wait.call is not None
    await turn.approve(wait.call)
    await turn.result()
    await push.result()
    run = client.temporal.get_workflow_handle(turn.id)
    return {"turn": await run.fetch_history(), "push": await push.fetch_history()}


async def main() -> None:
    """Record both histories."""
    agent = Agent(name="payer", model="scripted:payer", tools=[refund])
    app = AgentWorker(agent, prices={"scripted:*": Price(input="1", output="1")})
    model = ScriptedModel(calls(call("refund", euros=5)), says("paid"))
    with receiving() as receiver:
        os.environ["PERDURE_WEBHOOK_HOSTS"] = f"private:127.0.0.1:{receiver.port}"
        os.environ["PERDURE_WEBHOOK_SECRETS"] = SECRET
        async with local_runtime(app, model=model) as client:
            for name, history in (await record(client, receiver)).items():
                (FOLDER / f"{name}.json").write_text(scrubbed(history), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
