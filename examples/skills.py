"""An agent with skills: two folders and a value with a tool.

`perdure dev examples.skills:app`, or as it stands, with a scripted model.
"""

import asyncio
from pathlib import Path

from perdure import Agent, Skill, tool
from perdure.testing import ScriptedModel, call, calls, local_runtime, says
from perdure.worker import AgentWorker


@tool(read_only=True)
def price_of(item: str) -> str:
    """The price of an item."""
    return {"kettle": "30 euros"}[item]


prices = Skill("prices", "Look prices up; never guess one.", tools=[price_of])
shopkeeper = Agent(
    name="shopkeeper",
    model="openai:gpt-5-mini",
    instructions="You answer the customers of a shop.",
    # the folders in `skills`, by name: letters, then refunds
    skills=[Path(__file__).parent / "skills", prices],
)
app = AgentWorker(shopkeeper)


async def main() -> None:
    reads = calls(
        call("load_skill", name="letters"), call("load_skill", name="letters", path="refund.md")
    )
    model = ScriptedModel(reads, says("Dear Ada, your refund of 30 euros is on its way."))
    async with local_runtime(app, model=model) as client:
        report = await client.run(
            "shopkeeper", "Write to Ada that she gets the money for her kettle back."
        )
    print(
        model.requests[0].system,
        *(result.content for result in report.steps[0].results),
        report.output,
        sep="\n\n---\n\n",
    )


if __name__ == "__main__":
    asyncio.run(main())
