"""Calls of one answer that run at once.

With a model: `perdure dev examples.parallel_tools:app`; without:
`python examples/parallel_tools.py`.
"""

import asyncio

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, local_runtime, says
from perdure.worker import AgentWorker

meeting = asyncio.Barrier(3)  # nobody gets past it alone


@tool(read_only=True)
async def price(shop: str) -> str:
    """What a kettle costs in a shop."""
    await meeting.wait()
    if shop == "north":
        raise ConnectionError("the shop does not answer")
    return {"south": "30 euros", "west": "28 euros"}[shop]


buyer = Agent(
    name="buyer",
    model="openai:gpt-5-mini",
    instructions="Ask all shops.",
    tools=[price],
    parallel_tools=True,
)
app = AgentWorker(buyer)


async def main() -> None:
    model = ScriptedModel(
        calls(*(call("price", shop=shop) for shop in ("south", "north", "west"))),
        says("In the west, for 28 euros."),
    )
    async with local_runtime(app, model=model) as client:
        report = await client.run("buyer", "Where is a kettle cheapest?")
    # in the order of the calls
    for asked, result in zip(report.steps[0].message.calls, report.steps[0].results, strict=True):
        print(asked.arguments, "→", result.content)
    print(report.output)


if __name__ == "__main__":
    asyncio.run(main())
