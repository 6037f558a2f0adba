"""Records the histories of a session and its second turn: `python -m tests.replay.record_session`.

The turn has a call, and begins with the messages of the turn before.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from temporalio.client import WorkflowHistory

from perdure import Agent, Price, Usage
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, calls, local_runtime, says
from perdure.worker import AgentWorker

from .record import add, scrubbed, sum_of

FOLDER = Path(__file__).parent / "sessions"
USED = Usage(input_tokens=50, output_tokens=5)


def app() -> AgentWorker:
    """The worker."""
    agent = Agent(name="adder", model="scripted:adder", tools=[add])
    return AgentWorker(agent, prices={"scripted:*": Price(input="1", output="1")})


async def record(client: AgentClient, session_id: str) -> dict[str, WorkflowHistory]:
    """Have two turns, and fetch the histories by their names."""
    session = client.session(session_id, "adder")
    await (await session.say("2 + 3?", id="m-1")).result()
    await (await session.say("And 3 + 4?", id="m-2")).result()
    await session.close()
    handle = client.temporal.get_workflow_handle(session_id)
    await handle.result()
    turn = client.temporal.get_workflow_handle(f"{session_id}/2")
    return {"session": await handle.fetch_history(), "turn": await turn.fetch_history()}


async def main() -> None:
    """Record both histories."""
    model = ScriptedModel(
        says("five", usage=USED), calls(sum_of(3, 4), usage=USED), says("seven", usage=USED)
    )
    async with local_runtime(app(), model=model) as client:
        for name, history in (await record(client, "sums")).items():
            path = FOLDER / f"{name}.json"
            path.write_text(scrubbed(history), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
