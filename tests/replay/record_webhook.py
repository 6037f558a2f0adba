"""Records the histories of a turn with a webhook and of its delivery, and those of a session with
one and of its turn: `python -m tests.replay.record_webhook`.

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
    """Have a turn and a session, and fetch the histories by their names."""
    turn = await client.start("adder", "2 + 3?", id="told", on_done=url)
    await turn.result()
    handle = await delivery(client, turn)
    await handle.result()
    session = client.session("chat", "adder", on_done=url)
    told = await (await session.say("3 + 4?", id="m-1")).turn()
    await told.result()
    await (await delivery(client, told)).result()
    await session.close()
    closed = client.temporal.get_workflow_handle(session.id)
    await closed.result()
    runs = {"turn": turn.id, "webhook": handle.id, "session": session.id, "session-turn": told.id}
    return {
        name: await client.temporal.get_workflow_handle(run).fetch_history()
        for name, run in runs.items()
    }


async def main() -> None:
    """Record the histories."""
    agent = Agent(name="adder", model="scripted:adder")
    app = AgentWorker(agent, prices={"scripted:*": Price(input="1", output="1")})
    with receiving() as receiver:
        os.environ["PERDURE_WEBHOOK_HOSTS"] = f"private:127.0.0.1:{receiver.port}"
        os.environ["PERDURE_WEBHOOK_SECRETS"] = SECRET
        url = receiver.url("/done", Answer(503, {"retry-after": "1"}))
        async with local_runtime(app, model=ScriptedModel(says("five"), says("seven"))) as client:
            for name, history in (await record(client, url)).items():
                (FOLDER / f"{name}.json").write_text(scrubbed(history), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
