"""The agent of the batch tests.

Its worker is a separate process: `python -m perdure worker tests.support.e2e.batch_app:make`. Its
model
records each request in a file, and answers with the task after a moment.
"""

import asyncio
import os
from pathlib import Path

from perdure import Agent, Price, Usage, errors
from perdure.activities.provider import Heard, ModelRequest
from perdure.testing import FunctionModel, says
from perdure.values.answers import ModelAnswer
from perdure.values.messages import UserMessage
from perdure.worker import AgentWorker

AGENT = "classifier"


class Recorded:
    """A model that records the tasks that it is asked."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer after a moment. The task `refuse` fails until the file `allow` is there."""
        folder = Path(os.environ["E2E_JOURNAL"])
        [task] = [one.text for one in request.messages if isinstance(one, UserMessage)]
        with (folder / "asked").open("a", encoding="utf-8") as journal:
            journal.write(f"{task}\n")
        if task == "refuse" and not (folder / "allow").exists():
            raise errors.LLMRefusedError("not this one")
        await asyncio.sleep(0.05)
        reply = says(f"done: {task}", usage=Usage(input_tokens=50, output_tokens=5))
        return await FunctionModel(lambda _: reply).complete(request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Answer."""
        return await self.complete(request)

    async def close(self) -> None:
        """Do nothing."""


def make() -> AgentWorker:
    """The worker."""
    agent = Agent(name=AGENT, model="recorded:classifier", instructions="Classify.")
    prices = {"recorded:*": Price(input="1", output="1")}
    return AgentWorker(agent, providers={"recorded": Recorded()}, prices=prices)
