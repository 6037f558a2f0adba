"""Records the histories of a turn with a webhook and of its delivery: `python -m
tests.replay.record_webhook`.

The receiver answers the first attempt with 503.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from temporalio.client import WorkflowHistory

from perdure import Agent, Price
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, local_runtime, says
from perdure.worker import AgentWorker

from ..support.receiver import SECRET, Answer, receiving
from ..support.webhooks import delivery
from .record import scrubbed

FOLDER = Path(__file__).parent / "webhooks"


async def record(client: AgentClient, url: str) -> dict[str, WorkflowHistory]:
    """Have a turn, and fetch the histories by their names."""
    turn = await client.start("adder", "2 + 3?", id="told", on_done=url)
    await turn.result()
    handle = await delivery(client, turn)
    await handle.result()
    run = client.temporal.get_workflow_handle(turn.id)
    return {"turn": await run.fetch_history(), "webhook": await handle.fetch_history()}


async def main() -> None:
    """Record both histories."""
    agent = Agent(name="adder", model="scripted:adder")
    app = AgentWorker(agent, prices={"scripted:*": Price(input="1", output="1")})
    with receiving() as receiver:
        os.environ["PERDURE_WEBHOOK_HOSTS"] = f"private:127.0.0.1:{receiver.port}"
        os.environ["PERDURE_WEBHOOK_SECRETS"] = SECRET
        url = receiver.url("/done", Answer(503, {"retry-after": "1"}))
        async with local_runtime(app, model=ScriptedModel(says("five"))) as client:
            for name, history in (await record(client, url)).items():
                (FOLDER / f"{name}.json").write_text(scrubbed(history), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
