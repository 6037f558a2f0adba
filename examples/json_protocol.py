"""A small model that a schema holds to tools and answers.

With llama.cpp's server on port 8080: `perdure dev examples.json_protocol:app`.
"""

import asyncio
from typing import Any

from perdure import Agent, tool
from perdure.providers import OpenAIChat
from perdure.testing import ScriptedModel, local_runtime
from perdure.worker import AgentWorker


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


adder = Agent(
    name="adder",
    model="llama:smollm2",
    instructions="Never add in your head.",
    tools=[add],
    protocol="json",
)
app = AgentWorker(
    adder, providers={"llama": OpenAIChat(base_url="http://127.0.0.1:8080/v1", api_key_env=None)}
)


async def main() -> None:
    # all that the schema lets it say
    model = ScriptedModel('{"name": "add", "arguments": {"a": 7, "b": 8}}', '{"answer": "15"}')
    async with local_runtime(app, model=model) as client:
        report = await client.run("adder", "What is 7 + 8?")
    schema: Any = model.requests[0].response_schema
    told: Any = model.requests[1].messages[-1]
    print(
        "A reply holds one of:",
        *(" and ".join(choice["properties"]) for choice in schema["anyOf"]),
        sep="\n  ",
    )
    print("The model was told:", told.text)
    print(
        "The transcript is that of any protocol:",
        [type(message).__name__ for message in report.messages],
    )
    print(report.output)


if __name__ == "__main__":
    asyncio.run(main())
