"""Records the histories of a batch and of its part: `python -m tests.replay.record_batch`.

Four tasks, one at a time, with a budget; the third fails, so that the fourth is not started.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from temporalio.client import WorkflowHistory

from perdure import Agent, Budget, Price, Usage, errors
from perdure.activities.provider import ModelRequest
from perdure.batch.wire import part_id
from perdure.clients import AgentClient
from perdure.clients.batches.handle import described
from perdure.testing import FunctionModel, fails, local_runtime, says
from perdure.testing.scripted import Reply
from perdure.values.messages import UserMessage
from perdure.worker import AgentWorker

from .record import scrubbed

FOLDER = Path(__file__).parent / "batches"
TASKS = ["one", "two", "refuse", "four"]


def reply(request: ModelRequest) -> Reply:
    """Answer with the task, and refuse one."""
    [task] = [one.text for one in request.messages if isinstance(one, UserMessage)]
    if task == "refuse":
        return fails(errors.LLMRefusedError("not this one"))
    return says(f"done: {task}", usage=Usage(input_tokens=50, output_tokens=5))


def app() -> AgentWorker:
    """The worker."""
    agent = Agent(name="classifier", model="scripted:classifier")
    return AgentWorker(agent, prices={"scripted:*": Price(input="1", output="1")})


async def record(client: AgentClient, batch_id: str) -> dict[str, WorkflowHistory]:
    """Run the batch, and fetch the histories by their names."""
    batch = await client.start_batch(
        batch_id, "classifier", TASKS, at_once=1, on_error="stop", budget=Budget(usd="10")
    )
    await batch.wait()
    _, note = await described(client.temporal, batch_id)
    ids = {"batch": batch_id, "part": part_id(batch_id, 1, note.rounds[0].digest, 1)}
    return {
        name: await client.temporal.get_workflow_handle(one).fetch_history()
        for name, one in ids.items()
    }


async def main() -> None:
    """Record both histories."""
    async with local_runtime(app(), model=FunctionModel(reply)) as client:
        for name, history in (await record(client, "nightly")).items():
            path = FOLDER / f"{name}.json"
            path.write_text(scrubbed(history), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
