"""An agent made of parts: toolboxes under prefixes, a part of one, one added later, a resolver.

`python examples/composition.py`.
"""

import asyncio

from perdure import Agent, Tool, Toolbox, tool
from perdure.testing import ScriptedModel, call, calls, local_runtime, says


def shop(city: str) -> Toolbox:
    @tool(read_only=True)
    def stock(item: str) -> str:
        """How many of an item are there."""
        return f"3 of {item} in {city}"

    @tool
    def order(item: str) -> str:
        """Order an item."""
        return f"{item} ordered for {city}"

    return Toolbox(city, [stock, order])


@tool(read_only=True)
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


class Others:
    """Finds tools that a turn asks for by name and the agent was not given."""

    def resolve(self, name: str) -> Tool | None:
        return weather if name == "weather" else None  # None is no error


# both shops have a tool `stock`: without the prefixes, the worker would not start and would name
# both
oslo = shop("Oslo").prefixed("oslo_")
rome = shop("Rome").filtered(["stock"]).prefixed("rome_")
small = Agent(name="buyer", model="openai:gpt-5-mini", toolboxes=[oslo], resolver=Others())
buyer = small.with_toolboxes(rome)  # another value; `small` is what it was


async def main() -> None:
    model = ScriptedModel(
        says("hello"),
        calls(call("rome_stock", item="tea"), call("weather", city="Rome")),
        says("three"),
    )
    async with local_runtime(buyer, model=model) as client:
        await client.run(buyer, "Hello!")
        report = await client.run(
            buyer,
            "Is there tea in Rome?",
            allowed_tools=["oslo_stock", "rome_stock", "weather", "horoscope"],
        )
    for request in model.requests[:2]:
        print("offered:", *(item.name for item in request.tools))
    print("results:", *(result.content for result in report.steps[0].results), sep="\n  ")


if __name__ == "__main__":
    asyncio.run(main())
